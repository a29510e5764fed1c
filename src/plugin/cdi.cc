// SPDX-License-Identifier: Apache-2.0

#include "plugin/cdi.h"

#include <algorithm>

#include "base/json.h"
#include "base/strings.h"

namespace hami::plugin {
namespace {

namespace json = base::json;
using base::Concat;

// The first version with everything used here: device nodes by host path, mounts with options, hooks with arguments.
constexpr const char* kCdiVersion = "0.5.0";

std::string HostRoot(const Options& options, bool devices) {
  std::string root = devices && !options.dev_root.empty() ? options.dev_root : options.driver_root;
  while (!root.empty() && root.back() == '/') root.pop_back();
  return root;
}

json::object NodeEdit(const std::string& path, const std::string& root) {
  json::object node{{"path", path}};
  if (!root.empty()) node["hostPath"] = root + path;
  return node;
}

json::array NodeEdits(const std::vector<std::string>& paths, const std::string& root) {
  json::array nodes;
  for (const std::string& path : paths) nodes.push_back(NodeEdit(path, root));
  return nodes;
}

json::object MountEdit(const CdiFile& file) {
  return {{"hostPath", file.host_path},
          {"containerPath", file.container_path},
          {"options", json::array{"ro", "nosuid", "nodev", "rbind", "rprivate"}}};
}

json::object HookEdit(const std::string& program, const std::vector<std::string>& arguments) {
  json::array list{program.substr(program.rfind('/') + 1)};
  // nvidia-ctk carries its hooks as a subcommand; nvidia-cdi-hook is nothing else.
  if (program.ends_with("nvidia-ctk")) list.emplace_back("hook");
  for (const std::string& argument : arguments) list.emplace_back(argument);
  return {{"hookName", "createContainer"}, {"path", program}, {"args", std::move(list)}};
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Programs ask for libcuda.so.1 and libcuda.so; the driver installs libcuda.so.580.95.05.
void AddLibraryHooks(const DriverFiles& files, const Options& options, json::array& hooks) {
  if (options.cdi_hook_path.empty() || files.libraries.empty()) return;
  std::vector<std::string> links = {"create-symlinks"};
  std::vector<std::string> cache = {"update-ldcache"};
  std::vector<std::string> folders;
  for (const CdiFile& library : files.libraries) {
    const std::string folder = FolderOf(library.container_path);
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
    const std::string name = library.container_path.substr(folder.size() + 1);
    if (name.starts_with("libcuda.so.") && name != "libcuda.so.1") {
      links.insert(links.end(), {"--link", Concat({"libcuda.so.1::", folder, "/libcuda.so"})});
    }
  }
  for (const std::string& folder : folders) cache.insert(cache.end(), {"--folder", folder});
  if (links.size() > 1) hooks.push_back(HookEdit(options.cdi_hook_path, links));
  hooks.push_back(HookEdit(options.cdi_hook_path, cache));
}

json::object CommonEdits(const DriverFiles& files, const Options& options) {
  json::object edits;
  // The plain runtime's own injection keeps out of a container that has its devices from here.
  edits["env"] = json::array{"NVIDIA_VISIBLE_DEVICES=void"};
  edits["deviceNodes"] = NodeEdits(files.control_nodes, HostRoot(options, true));
  json::array mounts;
  for (const CdiFile& file : files.libraries) mounts.push_back(MountEdit(file));
  for (const CdiFile& file : files.programs) mounts.push_back(MountEdit(file));
  edits["mounts"] = std::move(mounts);
  json::array hooks;
  AddLibraryHooks(files, options, hooks);
  if (!hooks.empty()) edits["hooks"] = std::move(hooks);
  return edits;
}

json::object DeviceEdit(const std::string& name, json::array nodes) {
  return {{"name", name}, {"containerEdits", json::object{{"deviceNodes", std::move(nodes)}}}};
}

CdiSpec MakeSpec(const std::string& device_class, json::array devices, json::object edits) {
  json::object spec{
      {"cdiVersion", kCdiVersion}, {"kind", Concat({kCdiVendor, "/", device_class})}, {"devices", std::move(devices)}};
  if (!edits.empty()) spec["containerEdits"] = std::move(edits);
  return {device_class, base::Pretty(spec)};
}

json::array GpuDevices(const Cards& cards, const Options& options) {
  json::array devices;
  std::vector<std::string> all;
  const std::string root = HostRoot(options, true);
  for (const Card& card : cards.cards) {
    if (!card.minor || card.part) continue;
    const std::string path = "/dev/nvidia" + std::to_string(*card.minor);
    all.push_back(path);
    // By either name, whichever way the containers are told.
    devices.push_back(DeviceEdit(card.uuid, NodeEdits({path}, root)));
    devices.push_back(DeviceEdit(std::to_string(card.index), NodeEdits({path}, root)));
  }
  if (!all.empty()) devices.push_back(DeviceEdit("all", NodeEdits(all, root)));
  return devices;
}

}  // namespace

std::string ImexChannelNode(int channel) { return "/dev/nvidia-caps-imex-channels/channel" + std::to_string(channel); }

std::string CdiName(std::string_view device_class, std::string_view id) {
  return Concat({kCdiVendor, "/", device_class, "=", id});
}

std::string CdiSpec::FileName() const { return Concat({kCdiVendor, "-", device_class, ".json"}); }

std::vector<CdiSpec> MakeCdiSpecs(const Cards& cards, const DriverFiles& files, const Options& options,
                                  const std::vector<CdiInstance>& instances) {
  std::vector<CdiSpec> specs;
  const std::string root = HostRoot(options, true);
  json::array gpus = GpuDevices(cards, options);
  for (const CdiInstance& one : instances) {
    gpus.push_back(DeviceEdit(one.uuid, NodeEdits(one.nodes, root)));
    if (!one.index.empty()) gpus.push_back(DeviceEdit(one.index, NodeEdits(one.nodes, root)));
  }
  if (!gpus.empty()) {
    specs.push_back(MakeSpec("gpu", std::move(gpus), CommonEdits(files, options)));
  }
  json::array channels;
  for (const int channel : options.imex_channels) {
    const std::string number = std::to_string(channel);
    channels.push_back(DeviceEdit(number, NodeEdits({ImexChannelNode(channel)}, root)));
  }
  if (!channels.empty()) specs.push_back(MakeSpec("imex-channel", std::move(channels), {}));
  const auto add_mode = [&](const char* mode, bool wanted, const std::vector<std::string>& nodes) {
    if (!wanted || nodes.empty()) return;
    specs.push_back(MakeSpec(mode, {DeviceEdit("all", NodeEdits(nodes, root))}, {}));
  };
  add_mode("gdrcopy", options.gdrcopy, files.gdrcopy_nodes);
  add_mode("gds", options.gds, files.gds_nodes);
  add_mode("mofed", options.mofed, files.mofed_nodes);
  return specs;
}

}  // namespace hami::plugin
