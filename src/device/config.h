// SPDX-License-Identifier: Apache-2.0
//
// device-config.yaml: which resources each vendor owns and how its requests are read. Every section and key of HAMi's
// file is known, v2.9's MIG geometries included, so that existing files load unchanged; only the vendors built in act
// on theirs. Strict: an unknown, doubled or wrongly typed key is an error `FILE:LINE: SECTION.KEY: what is wrong`,
// because a key that is silently ignored is a limit that is silently not there.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hami::device {

struct MigAllowance {
  std::vector<std::string> models;
  std::vector<std::string> profiles;
  bool operator==(const MigAllowance&) const = default;
};

struct NvidiaConfig {
  std::string count_resource;
  std::string memory_resource;
  std::string memory_percent_resource;
  std::string core_resource;
  std::string priority_resource;
  bool overwrite_env = false;
  std::int64_t default_memory = 0;  // MiB; 0: the whole card
  std::int64_t default_cores = 0;
  std::int64_t default_count = 1;
  std::int64_t memory_factor = 1;
  bool disable_core_limit = false;
  std::string core_policy;  // empty, default, force or disable
  std::string runtime_class;
  std::vector<MigAllowance> mig_allowlist;
  // Read by the device plugin only.
  std::int64_t split_count = 10;
  double memory_scaling = 1;
  double core_scaling = 1;
  std::int64_t preconfigured_memory = 0;
  std::string log_level = "1";  // empty: libvgpu's own default
  bool numa_topology = false;
  std::map<std::string, int> lines;  // where these stand, by key, for errors
  bool operator==(const NvidiaConfig&) const = default;
};

// A section of a vendor that nothing acts upon yet: its scalars as text, `section.key` or `section[0].key`.
using OtherSections = std::map<std::string, std::string>;

struct DeviceConfig {
  NvidiaConfig nvidia;
  OtherSections others;
};

// FILE names the text in errors.
base::Result<DeviceConfig> ParseDeviceConfig(std::string_view text, const std::string& file);

}  // namespace hami::device
