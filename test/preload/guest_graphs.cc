// SPDX-License-Identifier: Apache-2.0
// Graphs that allocate: reserved before the launch, and what the graph pool keeps stays charged.
#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

CUgraphExec MakeGraph(size_t bytes, CUgraph* graph, CUdeviceptr* address, bool with_free) {
  CUgraphNode alloc = nullptr;
  CUgraphNode free = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = bytes;
  OK(cuGraphCreate(graph, 0));
  OK(cuGraphAddMemAllocNode(&alloc, *graph, nullptr, 0, &params));
  if (with_free) OK(cuGraphAddMemFreeNode(&free, *graph, &alloc, 1, params.dptr));
  *address = params.dptr;
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, *graph, 0));
  return exec;
}

SCENARIO(graph_memory) {
  Begin();
  const size_t before = Room();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  const CUstream stream = NewStream();
  CUgraphExec exec = MakeGraph(300 * kMiB, &graph, &address, true);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT(before - Room() >= 300 * kMiB);
  Balanced();
  // A second launch uses the same memory.
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT(before - Room() < 400 * kMiB);
  Balanced();
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(graph_too_large) {
  Begin();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  const CUstream stream = NewStream();
  CUgraphExec exec = MakeGraph(2 * kGiB, &graph, &address, true);
  OOM(cuGraphLaunch(exec, stream));
  OOM(cuGraphUpload(exec, stream));
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// The memory outlives the launch and is freed like any other pointer.
SCENARIO(graph_memory_freed_outside) {
  Begin();
  const size_t before = Room();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  const CUstream stream = NewStream();
  CUgraphExec exec = MakeGraph(100 * kMiB, &graph, &address, false);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT(before - Room() >= 100 * kMiB);
  OK(cuMemFreeAsync(address, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuDeviceGraphMemTrim(0));
  EXPECT_SAME(Room(), before);
}

// What the graph pool keeps unused gives way to a request that needs the room.
SCENARIO(graph_pool_gives_way) {
  Begin();
  const size_t before = Room();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  const CUstream stream = NewStream();
  CUgraphExec exec = MakeGraph(300 * kMiB, &graph, &address, true);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, before - 10 * kMiB));
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// What ends with the context ends in the count, too.
SCENARIO(graph_memory_reset) {
  Begin();
  const size_t before = Room();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  CUgraphExec exec = MakeGraph(100 * kMiB, &graph, &address, true);
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuDevicePrimaryCtxReset_v2(0));
  Begin();
  EXPECT_SAME(Room(), before);
  Balanced();
}

// Unused graph memory is given up for stream-ordered memory as for any other.
SCENARIO(graph_pool_gives_way_to_async) {
  Begin();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  CUgraphExec exec = MakeGraph(300 * kMiB, &graph, &address, true);
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
  CUdeviceptr block = 0;
  OK(cuMemAllocAsync(&block, Room() + 100 * kMiB, nullptr));
  EXPECT(Truth() <= kGiB);
}

// A graph with one allocation on each of two devices.
CUgraphExec MakeGraphOnTwo(size_t first, size_t second) {
  CUgraph graph = nullptr;
  OK(cuGraphCreate(&graph, 0));
  for (const int device : {0, 1}) {
    CUgraphNode node = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.poolProps.location.id = device;
    params.bytesize = device == 0 ? first : second;
    OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  }
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  return exec;
}

// Each device is charged what the graph takes of it: what fits on both is granted though the sum would not fit on one,
// and what does not fit on one takes nothing of the other.
SCENARIO(graph_on_two_devices) {
  CUcontext other = nullptr;
  Begin(0);
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  const size_t before = Room();
  CUdeviceptr block = 0;
  OOM(cuGraphLaunch(MakeGraphOnTwo(100 * kMiB, kGiB), nullptr));
  OOM(cuGraphLaunch(MakeGraphOnTwo(kGiB, 100 * kMiB), nullptr));
  EXPECT_SAME(Room(), before);
  CUgraphExec exec = MakeGraphOnTwo(400 * kMiB, 600 * kMiB);
  OK(cuGraphLaunch(exec, nullptr));
  OK(cuCtxSynchronize());
  EXPECT(before - Room() >= 400 * kMiB && before - Room() < 500 * kMiB);
  OOM(cuMemAlloc_v2(&block, 700 * kMiB));
  Balanced();
  OK(cuCtxSetCurrent(other));
  EXPECT(MemInfo().used() >= 600 * kMiB && MemInfo().used() < kGiB);
  EXPECT(Truth(1) <= MemInfo().used());
  OOM(cuMemAlloc_v2(&block, 400 * kMiB));
}

// A launch is granted in the steps in which the driver takes memory, or not at all.
SCENARIO(graph_growth_in_steps) {
  Begin();
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  OK(cuGraphLaunch(MakeGraph(3 * kMiB, &graph, &address, false), nullptr));
  OK(cuCtxSynchronize());
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, Room() - kMiB));
  OOM(cuGraphLaunch(MakeGraph(2 * kMiB, &graph, &address, false), nullptr));
  EXPECT(Truth() <= kGiB);
}

}  // namespace
}  // namespace guest
