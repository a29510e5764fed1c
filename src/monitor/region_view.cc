// SPDX-License-Identifier: Apache-2.0

#include "monitor/region_view.h"

#include <algorithm>

namespace hami::monitor {
namespace {

void Add(std::uint64_t& sum, std::uint64_t amount) {
  if (__builtin_add_overflow(sum, amount, &sum)) sum = UINT64_MAX;
}

// What the kernel says is true, but it says nothing of processes in other pid namespaces than this program's and those
// below. What the file says may be another's number; our library writes there what it saw itself called by the driver,
// and a driver that calls it as its container does says nothing to anybody outside.
pid_t HostPidOf(const region::SnapshotSlot& slot, bool ours) {
  if (slot.holder > 0) return slot.holder;
  return ours && slot.host_pid == slot.pid ? 0 : std::max(0, slot.host_pid);
}

void AddSlot(const region::SnapshotSlot& slot, RegionView& view) {
  // A slot that HAMi's library gave back keeps its figures; its status says that they are void.
  if (slot.liveness == region::Liveness::kDead || slot.status == region::kStatusFree) return;
  ++(slot.liveness == region::Liveness::kAlive ? view.living : view.possible);
  const pid_t pid = HostPidOf(slot, view.ours);
  if (pid > 0) view.host_pids.push_back(pid);
  const bool nameless = pid == 0 && slot.liveness == region::Liveness::kAlive;
  for (std::size_t d = 0; d < view.devices.size(); ++d) {
    const region::SnapshotMemory& memory = slot.memory[d];
    DeviceUse& use = view.devices[d];
    Add(use.used, memory.total);
    Add(use.context, memory.context);
    Add(use.module, memory.module);
    Add(use.data, memory.data);
    Add(use.offset, memory.offset);
    Add(use.sm_percent, memory.sm_percent);
    if (nameless && memory.total > 0) ++use.nameless;  // without any memory there it does nothing there
  }
}

}  // namespace

RegionView Summarise(const region::Snapshot& snapshot) {
  RegionView view;
  view.version = snapshot.version;
  view.minor_version = snapshot.minor_version;
  view.ours = snapshot.has_private;
  view.utilization_switch = snapshot.utilization_switch;
  view.recent_kernel = snapshot.recent_kernel;
  view.priority = snapshot.priority;
  view.last_kernel_time = snapshot.last_kernel_time;
  std::size_t count = snapshot.device_count;
  for (std::size_t d = count; d < region::kMaxDevices; ++d) {
    if (snapshot.devices[d].limit != 0 || snapshot.devices[d].sm_limit != 0) count = d + 1;
  }
  view.devices.resize(count);
  for (std::size_t d = 0; d < view.devices.size(); ++d) {
    const region::SnapshotDevice& device = snapshot.devices[d];
    DeviceUse& use = view.devices[d];
    if (d < snapshot.device_count) use.uuid = device.uuid;
    use.limit = device.limit;
    use.sm_limit = device.sm_limit;
    use.used = use.data = device.owed;
    use.peak = device.peak;
    use.refusals = device.refusals;
    use.gpu_ns = device.gpu_ns;
    use.throttled_ns = device.throttled_ns;
    use.spilled_bytes = device.spilled_bytes;
  }
  for (int i = 0; i < snapshot.slot_count; ++i) AddSlot(snapshot.slots[i], view);
  return view;
}

}  // namespace hami::monitor
