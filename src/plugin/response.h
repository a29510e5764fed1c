// SPDX-License-Identifier: Apache-2.0
//
// What a container gets for its grant: environment, mounts, device nodes, CDI names. Pure: the same record and settings
// always make the same answer, so a repeated question is answered alike. Names and values are HAMi's wherever HAMi has
// them. Refuses a grant on a card that is not here, and one without memory, which libvgpu would read as no limit.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "plugin/inventory.h"
#include "plugin/options.h"
#include "plugin/record.h"

namespace hami::plugin {

struct Mount {
  std::string container_path;
  std::string host_path;
  bool read_only = false;
  bool operator==(const Mount&) const = default;
};

struct DeviceNode {
  std::string container_path;
  std::string host_path;
  std::string permissions;
  bool operator==(const DeviceNode&) const = default;
};

struct Response {
  std::map<std::string, std::string> environment;
  std::vector<Mount> mounts;
  std::vector<DeviceNode> devices;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> cdi_devices;
  bool operator==(const Response&) const = default;
};

// What of one card a container may use.
struct DeviceLimit {
  std::string uuid;
  std::uint64_t memory_bytes = 0;
  int cores = 0;  // percent; 0: no limit
  std::uint64_t physical_bytes = 0;
  bool operator==(const DeviceLimit&) const = default;
};

// One entry per card, in the order of PCI bus ids: the order in which the driver numbers them inside the container. Two
// shares of one card add up.
base::Result<std::vector<DeviceLimit>> LimitsOf(const device::ContainerGrant& grant, const Cards& cards);
// The same of what was recorded: a MIG instance has an entry of its own, under its own name.
base::Result<std::vector<DeviceLimit>> LimitsOf(const Record& record, const Cards& cards);

// What a container on a node in mode mps shares with its GPU's control daemon: folders of the node.
struct MpsShare {
  std::string pipe;
  std::string shared_memory;
};

// What the answer depends on besides the record.
struct ResponseSettings {
  const Options* options = nullptr;
  bool has_license = false;             // <hook path>/vgpu/license exists
  std::vector<std::string> node_paths;  // of the control device nodes that exist, below the device root
  std::vector<std::string> cdi_modes;   // gdrcopy, gds, mofed: those with a specification
  std::vector<int> imex_channels;       // of those that are wanted, those with a device node
  std::string mig_minors;               // the text of kMigMinors
  std::set<std::string> common_areas;   // cards whose users can tell each other about its time
  std::optional<MpsShare> mps;          // in mode mps
};

// Whether CUDA_DISABLE_CONTROL counts in the container of RECORD. Where it may be that of a pod which says something
// else, or is of another namespace: not, unless it counts everywhere.
bool MayDisableControl(const Record& record, const Options& options);

// Where the areas of the cards are on the node, below <hook path>/vgpu, and in containers: a folder for each card.
inline constexpr const char* kCommonFolder = "gpu-time";
inline constexpr const char* kCommonInContainer = "/run/hami-cpp/gpu-time";

base::Result<Response> MakeResponse(const Record& record, const Cards& cards, const ResponseSettings& settings);

// Of MIG devices that the kubelet counts by their profile (Cards::parts): to be seen, and nothing else. No scheduler
// granted anything, and which container it is nobody says.
base::Result<Response> MakePartResponse(const std::vector<std::string>& slots, const Cards& cards,
                                        const ResponseSettings& settings);

// The device nodes of /dev that belong to no single GPU.
const std::vector<std::string>& ControlNodes();

}  // namespace hami::plugin
