// SPDX-License-Identifier: Apache-2.0
//
// The half of cdi.h that looks at and writes to disk.

#include <algorithm>
#include <filesystem>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "plugin/cdi.h"

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;
using base::Concat;

constexpr std::size_t kMostSpecBytes = 1 << 20;

std::string WithoutLastSlash(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

bool IsLibraryOf(const std::string& name, const std::string& version) {
  if (version.empty() || !name.starts_with("lib") || !name.ends_with(".so." + version)) return false;
  return name.find("nvidia") != std::string::npos || name.starts_with("libcuda") || name.starts_with("libnvcuvid") ||
         name.starts_with("libnvoptix");
}

// Every regular file of FOLDERS below ROOT whose name WANTED likes; a name is taken from the first folder that has it.
template <typename Wanted>
std::vector<CdiFile> Collect(const std::string& root, const std::string& host_root,
                             const std::vector<const char*>& folders, const Wanted& wanted) {
  std::vector<CdiFile> files;
  std::vector<std::string> seen;
  for (const char* folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(root + folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename();
      std::error_code ignored;
      if (!wanted(name) || !it->is_regular_file(ignored)) continue;
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      seen.push_back(name);
      files.push_back({Concat({host_root, folder, "/", name}), Concat({folder, "/", name})});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const CdiFile& a, const CdiFile& b) { return a.container_path < b.container_path; });
  return files;
}

constexpr std::string_view kLibcuda = "libcuda.so.";

// "libcuda.so.580.95.05", and not the link libcuda.so.1.
bool IsLibcuda(const std::string& name) {
  return name.starts_with(kLibcuda) && name.find('.', kLibcuda.size()) != std::string::npos;
}

// The newest, should an update have left an older one behind.
std::string VersionOf(const std::vector<CdiFile>& libcudas) {
  if (libcudas.empty()) return {};
  const std::string& path = libcudas.back().container_path;
  return path.substr(path.rfind('/') + 1 + kLibcuda.size());
}

std::vector<std::string> Existing(const std::string& root, const std::vector<std::string>& paths) {
  std::vector<std::string> existing;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::exists(root + path, ignored)) existing.push_back(path);
  }
  return existing;
}

std::vector<std::string> NodesBelow(const std::string& root, const std::string& folder, std::string_view prefix) {
  std::vector<std::string> nodes;
  std::error_code error;
  for (fs::directory_iterator it(root + folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.starts_with(prefix)) nodes.push_back(Concat({folder, "/", name}));
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

// Where this program sees the node's /dev. Device nodes belong to the kernel: those of this namespace are looked at,
// where the driver's root has none of its own.
std::string OwnDevRoot(const Options& options) {
  std::error_code ignored;
  const std::string root = WithoutLastSlash(options.driver_root_in_container);
  return fs::exists(root + "/dev/nvidiactl", ignored) ? root : "";
}

}  // namespace

std::vector<std::string> CdiModesOf(const std::string& folder) {
  std::vector<std::string> modes;
  for (const char* mode : {"gdrcopy", "gds", "mofed"}) {
    std::error_code ignored;
    if (fs::exists(Concat({folder, "/", CdiSpec{mode, {}}.FileName()}), ignored)) modes.emplace_back(mode);
  }
  return modes;
}

std::vector<int> PresentImexChannels(const Options& options) {
  const std::string root = OwnDevRoot(options);
  std::vector<int> present;
  for (const int channel : options.imex_channels) {
    if (!Existing(root, {ImexChannelNode(channel)}).empty()) present.push_back(channel);
  }
  return present;
}

DriverFiles FindDriverFiles(const Options& options) {
  std::error_code ignored;
  const std::string host_root = WithoutLastSlash(options.driver_root);
  const bool mounted = fs::is_directory(options.driver_root_in_container, ignored);
  const std::string root = mounted ? WithoutLastSlash(options.driver_root_in_container) : host_root;
  const std::vector<const char*> library_folders = {"/usr/lib64", "/usr/lib/x86_64-linux-gnu",
                                                    "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/lib64"};
  DriverFiles files;
  const std::string version = VersionOf(Collect(root, host_root, library_folders, IsLibcuda));
  files.libraries =
      Collect(root, host_root, library_folders, [&](const auto& name) { return IsLibraryOf(name, version); });
  if (files.libraries.empty()) {
    files.libraries = Collect(root, host_root, library_folders,
                              [](const auto& name) { return name == "libcuda.so.1" || name == "libnvidia-ml.so.1"; });
  }
  files.programs = Collect(root, host_root, {"/usr/bin", "/bin"}, [](const auto& name) {
    return name == "nvidia-smi" || name == "nvidia-debugdump" || name == "nvidia-persistenced" ||
           name == "nvidia-cuda-mps-control" || name == "nvidia-cuda-mps-server";
  });
  const std::string dev_root = OwnDevRoot(options);
  files.control_nodes =
      Existing(dev_root, {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"});
  files.gdrcopy_nodes = Existing(dev_root, {"/dev/gdrdrv"});
  files.gds_nodes = NodesBelow(dev_root, "/dev", "nvidia-fs");
  files.mofed_nodes = NodesBelow(dev_root, "/dev/infiniband", "uverbs");
  for (const std::string& node : Existing(dev_root, {"/dev/infiniband/rdma_cm"})) files.mofed_nodes.push_back(node);
  return files;
}

void CdiFolder::Refresh(const Cards& cards) {
  const bool wanted = std::any_of(options_.list_strategies.begin(), options_.list_strategies.end(), [](auto strategy) {
    return strategy == ListStrategy::kCdiAnnotations || strategy == ListStrategy::kCdiCri;
  });
  if (!wanted || !cards.ready) return;
  const std::scoped_lock lock(mutex_);
  const base::Status written = WriteCdiSpecs(MakeCdiSpecs(cards, FindDriverFiles(options_), options_,
                                                          instances_ ? instances_(cards) : std::vector<CdiInstance>()),
                                             path_);
  std::string trouble = written ? std::string() : written.error().message;
  if (!written && trouble != trouble_) base::LogError(written.error());
  trouble_ = std::move(trouble);
}

base::Status WriteCdiSpecs(const std::vector<CdiSpec>& specs, const std::string& folder) {
  HAMI_TRY(base::MakeFolders(folder, 0755));
  for (const CdiSpec& spec : specs) {
    const std::string path = Concat({folder, "/", spec.FileName()});
    const auto present = base::ReadFile(path, kMostSpecBytes);
    if (!present || *present != spec.text) HAMI_TRY(base::ReplaceFile(path, spec.text, 0644));
  }
  for (const char* device_class : {"gpu", "imex-channel", "gdrcopy", "gds", "mofed"}) {
    const bool wanted =
        std::any_of(specs.begin(), specs.end(), [&](const CdiSpec& spec) { return spec.device_class == device_class; });
    std::error_code ignored;
    if (!wanted) fs::remove(Concat({folder, "/", CdiSpec{device_class, {}}.FileName()}), ignored);
  }
  return {};
}

}  // namespace hami::plugin
