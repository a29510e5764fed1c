// SPDX-License-Identifier: Apache-2.0
//
// What is known of the living shares, gathered for showing and for planning: the record (what was promised) and the
// region (what is used), joined per GPU. Everything here is plain, printable data. Nothing is written.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/inventory.h"
#include "cli/plan.h"
#include "cli/state.h"

namespace hami::cli {

struct ProcessView {
  int pid = 0;
  int host_pid = 0;    // 0: not known
  int proven_pid = 0;  // its pid here, where the kernel says that it uses the region; 0: only the region says so
  std::string command;
  std::vector<std::uint64_t> bytes;  // per device of the share
  bool suspended = false;
};

struct DeviceView {
  std::string uuid;
  std::optional<unsigned> gpu;  // NVML's index; absent without a driver
  std::uint64_t limit_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t refusals = 0;
  unsigned cores = 0;           // 0: no limit
  unsigned reserved_cores = 0;  // what nobody else can have
  unsigned burst = 0;           // percent up to which idle compute time may be used; 0: no more than the cores
};

struct ShareView {
  std::string name;
  std::string state;      // "running", "idle" (no process uses a GPU now), "suspended", "blocked" or "damaged"
  std::string problem;    // why it is damaged
  bool recorded = false;  // false: its record can not be read, and of what follows nothing is known
  std::vector<std::string> command;
  bool oversubscribe = false;
  bool mps = false;  // mode mps; else hami-core
  Priority priority = Priority::kLow;
  std::int64_t created_at = 0;  // unix seconds
  std::vector<DeviceView> devices;
  std::vector<ProcessView> processes;
};

// INVENTORY may be null.
std::vector<ShareView> ViewShares(const std::vector<StoredShare>& shares, const Inventory* inventory);

// The planner's view of the same. A share's hold on a GPU is the largest of what was recorded, what its region allows
// now and what it uses, so that neither a resize nor a region that lies lets anything be sold twice. An error when a
// living share's record can not be read: nobody knows what it holds. A process belongs to no share unless the kernel
// says so.
base::Result<std::vector<Holder>> HoldersOf(const std::vector<ShareView>& shares);
// The first share of which nobody knows what it holds: while it lives nothing is granted. Null: there is none.
const ShareView* FindUnknownHolder(const std::vector<ShareView>& shares);
std::vector<Device> DevicesOf(const Inventory& inventory, const std::vector<ShareView>& shares);

base::json::array SharesToJson(const std::vector<ShareView>& shares, std::int64_t now);

// "30 %", "30-80 %" with a burst, "-" without a limit.
std::string CoresText(unsigned cores, unsigned burst);

// "0" or "GPU-12345678" when the index is not known.
std::string GpuName(const DeviceView& device);

}  // namespace hami::cli
