// SPDX-License-Identifier: Apache-2.0
//
// Memory of graphs with allocation nodes. The nodes' sizes are known when a graph is instantiated, the driver takes the
// memory when the graph is uploaded or launched, and keeps it in a pool of the device until that is trimmed. Invariant:
// before a launch that may take memory, that much is reserved; after it the charge equals the pool's reserved size.
// Graphs without allocation nodes, and processes without such graphs, pay one load per launch.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "region/region.h"
#include "vgpu/memory/flags.h"
#include "vgpu/memory/learnt_ordinal.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

// Remembers what the instantiated graph may need.
void GraphInstantiated(CUgraph graph, CUgraphExec exec);
void GraphExecDestroyed(CUgraphExec exec);

CUresult LaunchAllocating(CUgraphExec exec, CUresult (*launch)(void*), void* arg);

// Calls `launch` with what the graph may take reserved.
template <typename Launch>
CUresult LaunchGraph(CUgraphExec exec, Launch launch) {
  if (g_memory_flags.graph_devices.load(std::memory_order_relaxed) == 0) return launch();
  return LaunchAllocating(
      exec, [](void* arg) { return (*static_cast<Launch*>(arg))(); }, &launch);
}

// Makes the charge of a device's graph memory equal to what the driver has reserved for it.
void SettleGraphs(int device, CUdevice ordinal);
void SettleGraphs(int device);  // where its ordinal is known
// Gives unused graph memory back to the device. True when that freed something.
bool TrimGraphs(int device);

// What this process keeps of graphs' memory.
struct GraphBook {
  struct Device {
    uint64_t charged = 0;
    LearntOrdinal ordinal;
  };
  Lock launch_lock{LockRank::kGraphLaunch};  // two launches must not count on the same unused memory
  Lock lock{LockRank::kGraphMemory};         // guards what follows
  Device devices[region::kMaxDevices] = {};

  void Reset();
};

}  // namespace hami::vgpu
