// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/listener.h"

#include "vgpu/memory/charge.h"
#include "vgpu/memory/context_memory.h"
#include "vgpu/memory/free_events.h"
#include "vgpu/memory/graphs.h"
#include "vgpu/memory/measure_lock.h"
#include "vgpu/memory/modules.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/sparse_multicast.h"
#include "vgpu/memory/table.h"
#include "vgpu/memory/vmm.h"

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
  if (g_graph_devices.load(std::memory_order_relaxed) != 0) SettleGraphs(context.device, context.ordinal);
}

void ForgetMemory() {
  ResetMeasureLock();
  table().Reset();
  ResetContextMemory();
  ResetPools();
  ResetFreeEvents();
  ResetVmm();
  ResetModules();
  ResetGraphs();
}

}  // namespace hami::vgpu
