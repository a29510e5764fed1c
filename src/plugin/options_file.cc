// SPDX-License-Identifier: Apache-2.0

#include "plugin/options_file.h"

#include <yaml-cpp/yaml.h>

#include "base/strings.h"
#include "device/config_reader.h"

namespace hami::plugin {
namespace {

using base::Status;
using device::ConfigReader;

// A text that one of the value readers understands.
template <typename T>
void Value(ConfigReader& in, const char* key, T& out, base::Result<T> (*read)(const std::string&)) {
  if (!in.Has(key)) {
    in.Keep(key);
    return;
  }
  std::string text;
  in.Text(key, text);
  auto value = read(text);
  if (value) {
    out = *std::move(value);
  } else {
    in.Fail(key, value.error().message);
  }
}

// NVIDIA lets a list be written as the text of its only item.
void ReadStrategies(ConfigReader& in, const YAML::Node& section, Options& out) {
  constexpr const char* kKey = "deviceListStrategy";
  if (!in.Has(kKey)) return in.Keep(kKey);
  std::vector<std::string> names;
  if (section[kKey].IsScalar()) {
    std::string text;
    in.Text(kKey, text);
    names = base::Split(text, ',');
  } else {
    in.Texts(kKey, names);
  }
  out.list_strategies.clear();
  for (const std::string& name : names) {
    const auto strategy = ReadListStrategy(std::string(base::Trim(name)));
    if (!strategy) return in.Fail(kKey, strategy.error().message);
    out.list_strategies.push_back(*strategy);
  }
}

void ReadPlugin(ConfigReader& in, const YAML::Node& section, Options& out) {
  ReadStrategies(in, section, out);
  in.Bool("passDeviceSpecs", out.pass_device_specs);
  Value(in, "deviceIDStrategy", out.id_strategy, ReadIdStrategy);
  in.Text("cdiAnnotationPrefix", out.cdi_annotation_prefix);
  in.Text("nvidiaCTKPath", out.cdi_hook_path);
  in.Text("nvidiaCDIHookPath", out.cdi_hook_path);
  in.Text("containerDriverRoot", out.driver_root_in_container);
}

void ReadFlags(ConfigReader& in, const YAML::Node& section, Options& out, std::vector<std::string>& warnings) {
  Value(in, "migStrategy", out.mig_strategy, ReadMigStrategy);
  in.Bool("failOnInitError", out.fail_on_init_error);
  in.Text("nvidiaDriverRoot", out.driver_root);
  in.Text("nvidiaDevRoot", out.dev_root);
  in.Bool("gdrcopyEnabled", out.gdrcopy);
  in.Bool("gdsEnabled", out.gds);
  in.Bool("mofedEnabled", out.mofed);
  std::string discovery;
  in.Text("deviceDiscoveryStrategy", discovery);
  if (!discovery.empty() && discovery != "auto" && discovery != "nvml") {
    in.Fail("deviceDiscoveryStrategy", "must be auto or nvml");
  }
  for (const char* key : {"useNodeFeatureAPI", "gfd"}) {
    if (in.Has(key))
      warnings.push_back(base::Concat({"flags.", key, " does nothing: node features are not published"}));
    in.Keep(key);
  }
  const YAML::Node plugin = section.IsMap() ? section["plugin"] : YAML::Node();
  in.Section("plugin", [&](ConfigReader& inner) { ReadPlugin(inner, plugin, out); });
}

void ReadImex(ConfigReader& in, Options& out) {
  std::vector<std::string> channels;
  in.Texts("channelIDs", channels);
  for (const std::string& text : channels) {
    const auto channel = ReadChannel(text);
    if (!channel) return in.Fail("channelIDs", channel.error().message);
    out.imex_channels.push_back(*channel);
  }
  in.Bool("required", out.imex_required);
}

Status Read(const YAML::Node& document, const std::string& file, Options& out, std::vector<std::string>& warnings) {
  ConfigReader root(document, file, "");
  std::string version;
  root.Text("version", version);
  if (!version.empty() && version != "v1") root.Fail("version", "must be v1");
  const YAML::Node flags = document.IsMap() ? document["flags"] : YAML::Node();
  root.Section("flags", [&](ConfigReader& in) { ReadFlags(in, flags, out, warnings); });
  root.Section("imex", [&](ConfigReader& in) { ReadImex(in, out); });
  if (root.Has("resources")) warnings.push_back(file + ": resources: renaming resources does nothing");
  root.Keep("resources");
  if (root.Has("sharing")) {
    root.Fail("sharing",
              "is not supported: deviceSplitCount of the nvidia section says how many containers share a GPU");
  }
  root.Keep("sharing");
  // The rest of the file belongs to node_config.cc, which checks it.
  if (document.IsMap()) {
    for (const auto& pair : document) {
      if (pair.first.IsScalar()) root.Keep(pair.first.Scalar().c_str());
    }
  }
  return root.Finish();
}

}  // namespace

Status ApplyOptionsFile(std::string_view text, const std::string& file, Options& out,
                        std::vector<std::string>& warnings) {
  return device::ReadDocument(text, file,
                              [&](const YAML::Node& document) { return Read(document, file, out, warnings); });
}

}  // namespace hami::plugin
