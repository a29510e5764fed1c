// SPDX-License-Identifier: Apache-2.0
//
// What this node is to offer: device-config.yaml for all nodes, then the one entry of the node configuration that fits
// this node, field by field. Pure: texts and labels in, settings out. Strict: an unknown key, a value out of range or
// two entries for one node are errors `FILE:LINE: KEY: why`; a file that is not there means defaults.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/config.h"
#include "device/vendors/nvidia.h"
#include "plugin/mode.h"
#include "plugin/node_selector.h"
#include "plugin/options.h"

namespace hami::plugin {

// GPUs that this node keeps for itself.
struct Exclusion {
  std::vector<std::string> uuids;
  std::vector<std::int64_t> indices;
  bool operator==(const Exclusion&) const = default;
};

struct NodeSettings {
  std::string resource_name = "nvidia.com/gpu";
  OperatingMode mode = OperatingMode::kHamiCore;         // in force
  OperatingMode wanted_mode = OperatingMode::kHamiCore;  // as configured
  MigStrategy mig_strategy = MigStrategy::kNone;         // as configured
  std::int64_t split_count = 10;                         // slots of a GPU
  double memory_scaling = 1;
  double core_scaling = 1;
  std::int64_t preconfigured_memory = 0;  // MiB, where the driver tells no size
  std::string log_level = "1";            // of libvgpu; empty: its own default
  bool numa_topology = false;             // tell kubelet the NUMA node of each slot
  bool align_allocation = false;          // enablegetpreferredallocation: follow kubelet's choice of GPU
  bool disable_core_limit = false;
  Exclusion excluded;
  std::vector<device::MigAllowance> mig_allowlist;
  device::NvidiaConfig requests = device::HamisNames();  // how the scheduler reads what pods ask for

  // What is offered of MIG devices that were there before. Other modes have an answer of their own.
  MigStrategy Strategy() const { return mode == OperatingMode::kHamiCore ? mig_strategy : MigStrategy::kNone; }
  bool operator==(const NodeSettings&) const = default;
};

// One entry of the node configuration: what it overrides, and for which nodes.
struct NodeEntry {
  std::string name;      // exact, or with * and ?
  std::string selector;  // of node labels: `a=b,c!=d,e,!f`; empty: by name
  std::optional<OperatingMode> mode;
  std::optional<MigStrategy> mig_strategy;
  std::optional<std::int64_t> split_count;
  std::optional<double> memory_scaling;
  std::optional<double> core_scaling;
  std::optional<std::int64_t> preconfigured_memory;
  std::optional<std::string> log_level;
  std::optional<bool> numa_topology;
  std::optional<bool> align_allocation;
  std::optional<Exclusion> excluded;
  std::string mistake;  // what of it can not be honoured; only its own nodes go by that
};

struct NodeConfig {
  NodeSettings defaults;  // of device-config.yaml and the flags
  std::vector<NodeEntry> entries;

  bool NeedsLabels() const;
};

// A text absent: the file is not there. FILE names are for errors.
struct ConfigTexts {
  std::string device_file;
  std::optional<std::string> device_text;
  std::string node_file;
  std::optional<std::string> node_text;
  bool operator==(const ConfigTexts&) const = default;
};
// Refuses a --resource-name that is not CONFIGURED, the resourceCountName of device-config.yaml or what it defaults to.
base::Status CheckResourceName(const Options& options, const std::string& configured);

// A mistake in an entry with another node's name, or with a selector, is kept in the entry.
base::Result<NodeConfig> ParseNodeConfig(const ConfigTexts& texts, const Options& options);

// An entry with exactly this name, else the first whose selector fits LABELS, else the first whose pattern fits; else
// the defaults.
NodeSettings SettingsFor(const NodeConfig& config, const std::string& node, const Labels& labels);

// What is wrong with the entry that is this node's; empty: nothing, or there is none.
std::string MistakeFor(const NodeConfig& config, const std::string& node, const Labels& labels);

// Reads both files named in OPTIONS. The node configuration may be absent; device-config.yaml, if named, may not.
base::Result<ConfigTexts> LoadConfigTexts(const Options& options);

}  // namespace hami::plugin
