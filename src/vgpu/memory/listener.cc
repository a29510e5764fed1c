// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/listener.h"

#include "vgpu/memory/charge.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/sparse_multicast.h"

namespace hami::vgpu {

// A thread that asks about what is in the context has asked, once this has had the lock under which it does.
void MemoryOfContextEnding() {
  LeaveEndingFreeEvents();
  PoolsLeaveEnding();
}

void MemoryOfContextEnded(const EndedContext& context) {
  Refund(context.device, context.bytes, Kind::kContext);
  Entry entry;
  while (table().TakeOfContext(context.id, &entry)) RefundEntry(entry);
  PoolsLostContext(context.handle);
  ForgetFreeEvents(context.handle);
  VmmLostContext(context.handle);
  if (g_memory_flags.graph_devices.load(std::memory_order_relaxed) != 0) SettleGraphs(context.device, context.ordinal);
}

void ForgetMemory() {
  g_memory.account.Reset();
  g_memory.measure_word.Reset();
  g_memory.table.Reset();
  g_memory.making.Reset();
  g_memory.pools.Reset();
  g_memory.free_events.Reset();
  g_memory.vmm.Reset();
  g_memory.modules.Reset();
  g_memory.graphs.Reset();
}

}  // namespace hami::vgpu
