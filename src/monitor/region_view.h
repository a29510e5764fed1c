// SPDX-License-Identifier: Apache-2.0
//
// What the monitor keeps of one look at a region: sums per device and the words of feedback, without the table of
// processes. Plain data taken from a Snapshot; it may be a lie of whoever owns the file, but every number is in range.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "region/reader.h"

namespace hami::monitor {

struct DeviceUse {
  std::string uuid;  // as the region says; may be empty
  std::uint64_t limit = 0;
  std::uint64_t sm_limit = 0;
  // Sums over processes not known to be dead, USED and DATA with what is theirs in no slot; at the largest they stop.
  std::uint64_t used = 0;
  std::uint64_t context = 0;
  std::uint64_t module = 0;
  std::uint64_t data = 0;
  std::uint64_t offset = 0;
  std::uint64_t sm_percent = 0;  // HAMi's library tells it
  // Of our library only, otherwise 0.
  std::uint64_t peak = 0;
  std::uint64_t refusals = 0;
  std::uint64_t gpu_ns = 0;
  std::uint64_t throttled_ns = 0;
  std::uint64_t spilled_bytes = 0;
  std::uint64_t nameless = 0;  // living processes on it whose pid on the host nobody tells

  bool unwatched = false;  // the region does not tell SM_PERCENT, and the driver could not be asked
  bool UtilizationKnown() const { return nameless == 0 && !unwatched; }
};

struct RegionView {
  int version = 1;
  std::uint32_t minor_version = 0;
  bool ours = false;               // written by this project's library
  std::vector<DeviceUse> devices;  // those it names, and further ones that have a limit
  std::int32_t utilization_switch = 1;
  std::int32_t recent_kernel = 0;
  std::int32_t priority = 1;
  std::uint64_t last_kernel_time = 0;  // 0: never, or v0
  int living = 0;                      // processes known to live
  int possible = 0;                    // and those of which nobody knows
  std::vector<pid_t> host_pids;        // of both, where the kernel or the region tells
};

RegionView Summarise(const region::Snapshot& snapshot);

}  // namespace hami::monitor
