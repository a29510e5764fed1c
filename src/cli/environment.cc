// SPDX-License-Identifier: Apache-2.0

#include "cli/environment.h"

#include <unistd.h>

#include <algorithm>

#include "base/strings.h"
#include "base/units.h"

namespace hami::cli {
namespace {

constexpr const char* kPreload = "LD_PRELOAD";
constexpr const char* kRegionVariable = "CUDA_DEVICE_MEMORY_SHARED_CACHE";
constexpr const char* kLibraryName = "libvgpu.so";
constexpr const char* kCommonAreaVariable = "HAMI_COMMON_AREA";
constexpr const char* kBurstVariable = "HAMI_CORES_BURST";

// HAMi's syntax: a number with an optional one-letter suffix.
std::string LimitText(std::uint64_t bytes) {
  return bytes % base::kMiB == 0 ? std::to_string(bytes / base::kMiB) + "m" : std::to_string(bytes);
}

// Left over from elsewhere, these would change what the share means.
bool IsStale(const std::string& name) {
  return name.starts_with("CUDA_DEVICE_MEMORY_LIMIT") || name.starts_with("CUDA_DEVICE_SM_LIMIT") ||
         name == "HAMI_DEVICE_LIMITS" || name == "CUDA_OVERSUBSCRIBE" || name == "CUDA_DISABLE_CONTROL" ||
         name == kCommonAreaVariable || name == kBurstVariable || name == "GPU_CORE_UTILIZATION_POLICY" ||
         name.starts_with("CUDA_MPS_");
}

}  // namespace

Environment CurrentEnvironment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

base::Result<std::vector<Setting>> ShareSettings(const ShareRecord& record, const std::string& region_path,
                                                 const std::string& library_path, const Environment& base) {
  if (library_path.find_first_of(": \t") != std::string::npos) {
    return base::Fail("the path '" + library_path + "' can not be preloaded: it has a blank or a colon",
                      "install hami, or set HAMI_LIBVGPU to a copy of libvgpu.so at a plain path");
  }
  std::map<std::string, std::optional<std::string>> settings;
  for (const auto& [name, value] : base) {
    if (IsStale(name)) settings[name] = std::nullopt;
  }
  std::vector<std::string> numbers;
  std::vector<std::string> by_uuid;
  for (std::size_t i = 0; i < record.grants.size(); ++i) {
    const Grant& grant = record.grants[i];
    const std::string limit = LimitText(grant.limit_bytes);
    numbers.push_back(std::to_string(i));
    by_uuid.push_back(base::Concat({grant.uuid, "=", limit, ":", std::to_string(grant.cores)}));
    settings["CUDA_DEVICE_MEMORY_LIMIT_" + numbers.back()] = limit;
    if (grant.cores != 0) settings["CUDA_DEVICE_SM_LIMIT"] = std::to_string(grant.cores);
  }
  // Many programs call int() on it. The library shows the granted GPUs under these numbers, and no others.
  settings["CUDA_VISIBLE_DEVICES"] = base::Join(numbers, ",");
  settings["HAMI_DEVICE_LIMITS"] = base::Join(by_uuid, ",");
  settings[kRegionVariable] = region_path;
  settings["CUDA_TASK_PRIORITY"] = std::to_string(static_cast<int>(record.priority));
  if (record.oversubscribe) settings["CUDA_OVERSUBSCRIBE"] = "true";
  settings["HAMI_SHARE"] = record.name;
  const auto preload = base.find(kPreload);
  const bool has_preload = preload != base.end() && !preload->second.empty();
  settings[kPreload] = has_preload ? preload->second + ":" + library_path : library_path;
  std::vector<Setting> list;
  for (auto& [name, value] : settings) list.push_back({name, std::move(value)});
  return list;
}

void AddGpuTime(std::vector<Setting>* settings, const std::string& common_area, unsigned burst) {
  std::erase_if(*settings, [](const Setting& setting) {
    return setting.name == kCommonAreaVariable || setting.name == kBurstVariable;
  });
  settings->push_back({kCommonAreaVariable, common_area});
  settings->push_back({kBurstVariable, burst == 0 ? std::nullopt : std::optional(std::to_string(burst))});
}

std::string ShareFileText(const std::vector<Setting>& settings) {
  // What the share does not have is said as well: a program could say otherwise.
  std::map<std::string, std::string> lines{{"CUDA_OVERSUBSCRIBE", "false"},
                                           {"GPU_CORE_UTILIZATION_POLICY", "default"},
                                           {"HAMI_FAIL_OPEN", "false"},
                                           {kBurstVariable, "0"}};
  for (const Setting& setting : settings) {
    const bool limits = setting.name.starts_with("CUDA_DEVICE_") || setting.name.starts_with("HAMI_") ||
                        setting.name == "CUDA_OVERSUBSCRIBE" || setting.name == "CUDA_TASK_PRIORITY";
    if (!limits || !setting.value) continue;
    if (setting.value->find('\n') != std::string::npos) return "";
    lines[setting.name] = *setting.value;
  }
  std::string text;
  for (const auto& [name, value] : lines) text += base::Concat({name, "=", value, "\n"});
  return text;
}

Environment Apply(Environment environment, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    if (setting.value) {
      environment[setting.name] = *setting.value;
    } else {
      environment.erase(setting.name);
    }
  }
  return environment;
}

std::vector<std::string> Flatten(const Environment& environment) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  return entries;
}

Environment WithoutLibrary(Environment environment) {
  const auto preload = environment.find(kPreload);
  if (preload == environment.end()) return environment;
  std::replace(preload->second.begin(), preload->second.end(), ' ', ':');
  std::vector<std::string> kept = base::Split(preload->second, ':');
  std::erase_if(kept, [](const std::string& path) { return path.empty() || path.ends_with(kLibraryName); });
  if (kept.empty()) {
    environment.erase(preload);
  } else {
    preload->second = base::Join(kept, ":");
  }
  return environment;
}

bool IsInsideShare(const Environment& environment) {
  const auto preload = environment.find(kPreload);
  return environment.contains(kRegionVariable) && preload != environment.end() &&
         preload->second.find(kLibraryName) != std::string::npos;
}

}  // namespace hami::cli
