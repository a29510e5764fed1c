// SPDX-License-Identifier: Apache-2.0

#include "device/config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <utility>

#include "base/strings.h"
#include "device/config_reader.h"

namespace hami::device {
namespace {

using base::Fail;
using base::Result;
using base::Status;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// `<n>g.<…>`
bool IsProfileName(std::string_view name) {
  const auto dot = name.find("g.");
  return dot != std::string_view::npos && dot > 0 && dot + 2 < name.size() &&
         std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(dot), IsDigit);
}

bool IsResourceName(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_' ||
           c == '/';
  });
}

void ReadAllowance(ConfigReader& in, NvidiaConfig& out) {
  MigAllowance allowance;
  in.Texts("models", allowance.models);
  in.Texts("profiles", allowance.profiles);
  if (allowance.models.empty()) in.Fail("models", "must name at least one model");
  if (allowance.profiles.empty()) in.Fail("profiles", "must name at least one profile");
  for (const std::string& name : allowance.profiles) {
    if (!IsProfileName(name)) in.Fail("profiles", "not a MIG profile (like 1g.10gb): " + base::Printable(name));
  }
  out.mig_allowlist.push_back(std::move(allowance));
}

// v2.9 listed whole-card geometries; what remains of them is which profiles a model may have.
void ReadGeometry(ConfigReader& in, NvidiaConfig& out) {
  MigAllowance allowance;
  in.Texts("models", allowance.models);
  in.EachInner("allowedGeometries", [&](ConfigReader& instance) {
    std::string name;
    std::int64_t core = 0;
    std::int64_t memory = 0;
    std::int64_t count = 0;
    instance.Text("name", name);
    instance.Integer("core", core);
    instance.Integer("memory", memory);
    instance.Integer("count", count);
    if (!IsProfileName(name)) instance.Fail("name", "not a MIG profile (like 1g.10gb): " + base::Printable(name));
    if (std::find(allowance.profiles.begin(), allowance.profiles.end(), name) == allowance.profiles.end()) {
      allowance.profiles.push_back(name);
    }
  });
  if (allowance.models.empty()) in.Fail("models", "must name at least one model");
  if (allowance.profiles.empty()) in.Fail("allowedGeometries", "must list at least one geometry");
  out.mig_allowlist.push_back(std::move(allowance));
}

void NotNegative(ConfigReader& in, const char* key, std::int64_t value) {
  if (value < 0) in.Fail(key, "must not be negative");
}

// HAMi reads these as 32 bits; and sums of them over a pod stay inside 64.
void Fits32Bits(ConfigReader& in, const char* key, std::int64_t value) {
  NotNegative(in, key, value);
  if (value > std::numeric_limits<std::int32_t>::max()) in.Fail(key, "is too large: at most 2147483647");
}

// What can be no resource of a container would never be asked for, and of two with one name one would never be seen.
void CheckResourceNames(ConfigReader& in, const NvidiaConfig& config) {
  const std::array<std::pair<const char*, const std::string*>, 5> names = {{
      {"resourceCountName", &config.count_resource},
      {"resourceMemoryName", &config.memory_resource},
      {"resourceMemoryPercentageName", &config.memory_percent_resource},
      {"resourceCoreName", &config.core_resource},
      {"resourcePriorityName", &config.priority_resource},
  }};
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->second->empty()) continue;
    if (!IsResourceName(*name->second)) {
      in.Fail(name->first, "not the name of a resource (like nvidia.com/gpu): " + base::Printable(*name->second));
    }
    const auto twin =
        std::find_if(names.begin(), name, [&](const auto& other) { return *other.second == *name->second; });
    if (twin != name) in.Fail(name->first, std::string("the same name as ") + twin->first);
  }
}

// The device plugin says what they may be.
constexpr std::array<const char*, 5> kNodeDefaults = {"deviceSplitCount", "deviceMemoryScaling", "deviceCoreScaling",
                                                      "preConfiguredDeviceMemory", "libCudaLogLevel"};

void ReadNvidia(ConfigReader& in, NvidiaConfig& out) {
  in.Text("resourceCountName", out.count_resource);
  in.Text("resourceMemoryName", out.memory_resource);
  in.Text("resourceMemoryPercentageName", out.memory_percent_resource);
  in.Text("resourceCoreName", out.core_resource);
  in.Text("resourcePriorityName", out.priority_resource);
  in.Bool("overwriteEnv", out.overwrite_env);
  in.Integer("defaultMemory", out.default_memory);
  in.Integer("defaultCores", out.default_cores);
  in.Integer("defaultGPUNum", out.default_count);
  in.Integer("memoryFactor", out.memory_factor);
  in.Bool("disableCoreLimit", out.disable_core_limit);
  in.Text("gpuCorePolicy", out.core_policy);
  in.Text("runtimeClassName", out.runtime_class);
  in.Integer("deviceSplitCount", out.split_count);
  in.Real("deviceMemoryScaling", out.memory_scaling);
  in.Real("deviceCoreScaling", out.core_scaling);
  in.Integer("preConfiguredDeviceMemory", out.preconfigured_memory);
  in.Text("libCudaLogLevel", out.log_level);
  in.Bool("enableNumaTopology", out.numa_topology);
  in.Each("migProfileAllowlist", [&](ConfigReader& entry) { ReadAllowance(entry, out); });
  in.Each("knownMigGeometries", [&](ConfigReader& entry) { ReadGeometry(entry, out); });
  CheckResourceNames(in, out);
  Fits32Bits(in, "defaultMemory", out.default_memory);
  Fits32Bits(in, "defaultCores", out.default_cores);
  Fits32Bits(in, "defaultGPUNum", out.default_count);
  NotNegative(in, "memoryFactor", out.memory_factor);
  NotNegative(in, "preConfiguredDeviceMemory", out.preconfigured_memory);
  for (const char* key : kNodeDefaults) out.lines[key] = in.Line(key);
  constexpr std::int64_t kLargest = 1 << 20;  // keeps memory × factor inside 64 bits
  if (out.memory_factor > kLargest) in.Fail("memoryFactor", "is too large");
  const std::array<const char*, 4> policies = {"", "default", "force", "disable"};
  if (std::none_of(policies.begin(), policies.end(), [&](const char* name) { return out.core_policy == name; })) {
    in.Fail("gpuCorePolicy", "must be default, force or disable");
  }
}

using Keys = std::initializer_list<const char*>;

// HAMi's types of other vendors' values, but for texts.
constexpr std::array<std::pair<std::string_view, GoType>, 11> kTypes = {{
    {"memoryFactor", GoType::kInt32},
    {"memoryAllocatable", GoType::kInt64},
    {"memoryCapacity", GoType::kInt64},
    {"memory", GoType::kInt64},
    {"aiCore", GoType::kInt32},
    {"aiCPU", GoType::kInt32},
    {"sgpuTopologyAware", GoType::kBool},
    {"hamiVnpuCore", GoType::kBool},
    {"overwriteEnv", GoType::kBool},
    {"superPod", GoType::kBool},
    {"memoryPerCard", GoType::kAny},
}};

// What HAMi would start with is let pass, and nothing else.
void KeepTyped(ConfigReader& in, const char* key, std::string* value = nullptr) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [key](const auto& type) { return type.first == key; });
  in.Keep(key, found == kTypes.end() ? GoType::kText : found->second, value);
}

void KeepAll(ConfigReader& in, const std::string& path, Keys keys, OtherSections& out) {
  for (const char* key : keys) {
    std::string value;
    KeepTyped(in, key, &value);
    if (!value.empty()) out[path + "." + key] = value;
  }
}

struct OtherSection {
  const char* name;
  Keys keys;
};

constexpr Keys kCountMemoryCore = {"resourceCountName", "resourceMemoryName", "resourceCoreName"};

const std::array<OtherSection, 9>& Others() {
  static const std::array<OtherSection, 9> sections = {{
      {"cambricon", kCountMemoryCore},
      {"hygon", {"resourceCountName", "resourceMemoryName", "resourceCoreName", "memoryFactor"}},
      {"metax",
       {"resourceCountName", "resourceVCountName", "resourceVMemoryName", "resourceVCoreName", "sgpuTopologyAware"}},
      {"enflame",
       {"resourceNameGCU", "resourceNameDRSGCU", "resourceNameGCUMemory", "resourceNameGCUCore", "resourceNameVGCU",
        "resourceNameVGCUPercentage"}},
      {"mthreads", {"resourceCountName", "resourceMemoryName", "resourceCoreName", "memoryPerCard"}},
      {"kunlun", {"resourceCountName", "resourceVCountName", "resourceVMemoryName"}},
      {"awsneuron", {"resourceCountName", "resourceCoreName"}},
      {"amd", kCountMemoryCore},
      {"vastai", {"resourceCountName"}},
  }};
  return sections;
}

void ReadNpuChip(ConfigReader& chip, const std::string& path, OtherSections& out) {
  KeepAll(chip, path,
          {"chipName", "commonWord", "resourceName", "resourceMemoryName", "resourceCoreName", "memoryAllocatable",
           "memoryCapacity", "memoryFactor", "aiCore", "aiCPU", "runtimeClassName", "overwriteEnv", "superPod"},
          out);
  std::size_t index = 0;
  chip.Each("templates", [&](ConfigReader& entry) {
    KeepAll(entry, base::Concat({path, ".templates[", std::to_string(index++), "]"}),
            {"name", "memory", "aiCore", "aiCPU"}, out);
  });
}

void ReadOthers(ConfigReader& root, OtherSections& out) {
  for (const OtherSection& section : Others()) {
    root.Section(section.name, [&](ConfigReader& in) { KeepAll(in, section.name, section.keys, out); });
  }
  root.Section("biren", [&](ConfigReader& in) { KeepAll(in, "biren", {"resourceCountName"}, out); });
  std::size_t index = 0;
  root.Each("iluvatars", [&](ConfigReader& chip) {
    KeepAll(chip, "iluvatars[" + std::to_string(index++) + "]",
            {"chipName", "commonWord", "resourceCountName", "resourceMemoryName", "resourceCoreName"}, out);
  });
  root.Section("vnpus", [&](ConfigReader& in) {
    KeepAll(in, "vnpus", {"hamiVnpuCore"}, out);
    index = 0;
    in.Each("configs",
            [&](ConfigReader& chip) { ReadNpuChip(chip, "vnpus.configs[" + std::to_string(index++) + "]", out); });
  });
}

Status Read(const YAML::Node& document, const std::string& file, DeviceConfig& config) {
  ConfigReader root(document, file, "");
  bool anything = root.Has("nvidia");
  // The device plugin's own settings, in the form of NVIDIA's, may stand in the same file; the plugin reads them.
  for (const char* key : {"version", "flags", "resources", "sharing", "imex"}) {
    anything = anything || root.Has(key);
    root.Keep(key);
  }
  root.Section("nvidia", [&](ConfigReader& in) { ReadNvidia(in, config.nvidia); });
  ReadOthers(root, config.others);
  HAMI_TRY(root.Finish());
  anything = anything || !config.others.empty();
  if (!anything) return Fail(file + ": all configurations are empty");
  return {};
}

}  // namespace

Result<DeviceConfig> ParseDeviceConfig(std::string_view text, const std::string& file) {
  DeviceConfig config;
  HAMI_TRY(ReadDocument(text, file, [&](const YAML::Node& document) { return Read(document, file, config); }));
  return config;
}

}  // namespace hami::device
