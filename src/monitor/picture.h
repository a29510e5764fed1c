// SPDX-License-Identifier: Apache-2.0
//
// What the monitor knows at one moment, as plain data: made by the loop that reads regions, immutable from then on,
// rendered by whoever asks for metrics. Holds no label value that a tenant can choose: names come from the API server,
// UUIDs from the driver or from the scheduler's grant.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/types.h"
#include "monitor/region_view.h"
#include "nvml/nvml.h"

namespace hami::monitor {

// In the place of a UUID that a region names and nobody else knows.
inline constexpr const char* kUnknownUuid = "unknown";

struct ContainerPicture {
  std::string ns;
  std::string pod;
  std::string container;
  RegionView region;
  std::string problem;  // why there is no region; empty: there is
  bool blocked = false;
  double blocked_seconds = 0;
  std::string resize;    // state; empty: nothing was asked
  bool awaited = false;  // no program made a region yet, and nothing but RESIZE can be said
};

struct MigPicture {
  std::string ns;
  std::string pod;
  std::string container;
  device::MigReservation reservation;
};

using XidsByCode = std::map<std::uint64_t, std::uint64_t>;  // how often since this program runs

struct GpuPicture {
  nvml::Device device;  // with the memory of its MIG devices as it is now
  nvml::Telemetry telemetry;
  std::vector<nvml::NvLink> links;
  // Busy ones, as last seen, and all that have a context. Absent: the driver does not say.
  std::optional<std::vector<nvml::ProcessUtilization>> processes;
  std::optional<std::vector<nvml::Process>> held;
  nvml::PcieThroughput pcie;                   // measured now and then
  XidsByCode xids;                             // those of its MIG devices, too
  std::map<std::string, XidsByCode> mig_xids;  // by UUID of the MIG device that they name
};

// What the driver said last, and whether it still answers.
struct GpusPicture {
  std::chrono::steady_clock::time_point taken{};  // the last look that was a success; none yet: the epoch
  bool answering = false;                         // whether the last look was one
  std::string trouble;                            // if not
  std::vector<GpuPicture> gpus;                   // of that success
  std::chrono::milliseconds interval{2000};       // between looks

  // Too old to speak for the present: no look since, although at least one more should have been.
  bool OlderThan(std::chrono::milliseconds age, std::chrono::steady_clock::time_point now) const {
    return now - taken > std::max(age, 2 * interval);
  }
};

struct SelfPicture {
  std::uint64_t ticks = 0;
  double tick_seconds = 0;  // what the last one cost
  std::uint64_t writes = 0;
  std::uint64_t failed_writes = 0;
  std::uint64_t directories_removed = 0;
  bool pods_known = false;
  std::string folder_problem = {};  // why the last round could not list the containers; empty: it could
};

struct Picture {
  std::string node;
  std::vector<ContainerPicture> containers;  // by namespace, pod, container
  std::vector<MigPicture> migs;
  SelfPicture self;
};

}  // namespace hami::monitor
