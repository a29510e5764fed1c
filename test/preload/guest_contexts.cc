// SPDX-License-Identifier: Apache-2.0
// Contexts cost memory, and everything in them goes with them. simgpu's contexts take 300 MiB unless told otherwise.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "test/preload/guest.h"

namespace guest {
namespace {

SCENARIO(context_counts) {
  Begin();
  EXPECT(MemInfo().used() >= 300 * kMiB);
  Balanced();
}

// Retained twice, released twice: charged once, and gone only with the last (C6).
SCENARIO(primary_references) {
  CUcontext first = Begin();
  CUcontext second = nullptr;
  const size_t used = MemInfo().used();
  OK(cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT(first == second);
  EXPECT_SAME(MemInfo().used(), used);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_SAME(MemInfo().used(), used);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_SAME(Truth(), 0);
  Begin();
  EXPECT_SAME(MemInfo().used(), used);
}

// A reset ends the context and its allocations; the counters follow (C10).
SCENARIO(primary_reset) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 400 * kMiB));
  OK(cuDevicePrimaryCtxReset_v2(0));
  Begin();
  Balanced();
  OK(cuMemAlloc_v2(&block, 400 * kMiB));
  OK(cuDevicePrimaryCtxReset(0));
  Begin();
  Balanced();
}

SCENARIO(created_context) {
  CUcontext primary = Begin();
  const size_t before = Room();
  CUcontext created = nullptr;
  OK(cuCtxCreate_v2(&created, 0, 0));
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  EXPECT(before - Room() >= 400 * kMiB);
  Balanced();
  OK(cuCtxDestroy_v2(created));
  OK(cuCtxSetCurrent(primary));
  EXPECT_SAME(Room(), before);
  Balanced();
}

// 1 GiB has room for three contexts of 300 MiB, not for four.
SCENARIO(contexts_to_the_limit) {
  CUcontext primary = Begin();
  CUcontext created = nullptr;
  OK(cuCtxCreate_v2(&created, 0, 0));
  OK(cuCtxCreate_v2(&created, 0, 0));
  auto* const marker = reinterpret_cast<CUcontext>(uintptr_t{8});
  CUcontext refused = marker;
  OOM(cuCtxCreate_v2(&refused, 0, 0));
  EXPECT(refused == marker);
  OK(cuCtxSetCurrent(primary));
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// The very first context of a container is measured, and taken down again if it does not fit.
SCENARIO(first_context_too_large) {
  OK(cuInit(0));
  auto* const marker = reinterpret_cast<CUcontext>(uintptr_t{8});
  CUcontext context = marker;
  OOM(cuDevicePrimaryCtxRetain(&context, 0));
  EXPECT(context == marker);
  EXPECT_SAME(Truth(), 0);
  unsigned flags = 0;
  int active = 1;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_SAME(active, 0);
}

SCENARIO(green_context) {
  Begin();
  const size_t before = Room();
  CUdevResource all{};
  CUdevResource part{};
  unsigned groups = 1;
  OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 8));
  CUdevResourceDesc description = nullptr;
  OK(cuDevResourceGenerateDesc(&description, &part, 1));
  CUgreenCtx green = nullptr;
  OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  Balanced();
  OK(cuGreenCtxDestroy(green));
  EXPECT_SAME(Room(), before);
}

// The old way to end a context: by reference.
SCENARIO(detached_context) {
  CUcontext primary = Begin();
  const size_t before = Room();
  CUcontext created = nullptr;
  CUcontext attached = nullptr;
  OK(cuCtxCreate_v2(&created, 0, 0));
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  const size_t held = Room();
  OK(cuCtxAttach(&attached, 0));
  EXPECT(attached == created);
  OK(cuCtxDetach(created));
  EXPECT_SAME(Room(), held);  // not the last
  OK(cuCtxDetach(created));
  OK(cuCtxSetCurrent(primary));
  EXPECT_SAME(Room(), before);
  Balanced();
}

// A size that nothing else has.
constexpr size_t kInside = 5 * kMiB;
CUdeviceptr g_inside = 0;
CUdeviceptr g_next = 0;

// Destroys a context with memory in it, and does `meanwhile` when the driver has let the memory's address go, and not
// yet given back its bytes.
void DestroyAnd(void (*meanwhile)()) {
  static void (*g_meanwhile)() = nullptr;
  CUcontext primary = nullptr;
  CUcontext dying = nullptr;
  OK(cuCtxGetCurrent(&primary));
  OK(cuCtxCreate_v2(&dying, 0, 0));
  OK(cuMemAlloc_v2(&g_inside, kInside));
  OK(cuCtxSetCurrent(primary));
  g_meanwhile = meanwhile;
  simgpu_look_at_books(nullptr, [](int, uint64_t bytes) {
    if (bytes != kInside) return;
    simgpu_look_at_books(nullptr, nullptr);
    g_meanwhile();
  });
  OK(cuCtxDestroy_v2(dying));
  Balanced();
}

// The driver takes a context down piece by piece, and an address may be another thread's before the books know that it
// is free: the memory of the one counts until the context has ended, beside that of the other.
SCENARIO(address_of_a_dying_context) {
  Begin();
  const size_t before = Room();
  DestroyAnd([] {
    OK(cuMemAlloc_v2(&g_next, kInside));
    EXPECT(g_next == g_inside);
    Balanced();
  });
  EXPECT_SAME(before - Room(), kInside);
  OK(cuMemFree_v2(g_next));
  EXPECT_SAME(Room(), before);
  Balanced();
}

// Likewise when it became a graph's, whose memory is nobody's until it is launched, and is freed again.
SCENARIO(address_of_a_dying_context_in_a_graph) {
  Begin();
  const size_t before = Room();
  DestroyAnd([] {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = kInside;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    EXPECT(params.dptr == g_inside);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, nullptr));
    OK(cuMemFreeAsync(params.dptr, nullptr));
    Balanced();
    OK(cuStreamSynchronize(nullptr));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(0));
    Balanced();
  });
  EXPECT_SAME(Room(), before);
}

// What is freed while a reference to the context goes counts until it is known whether that was the last one.
SCENARIO(freed_while_a_reference_goes) {
  Begin();
  CUcontext again = nullptr;
  CUdeviceptr block = 0;
  OK(cuDevicePrimaryCtxRetain(&again, 0));
  const size_t before = Room();
  EXPECT_SAME(simgpu_inject("fault call=cuDevicePrimaryCtxRelease_v2 delay_ms=500 count=1", nullptr, 0), 1);
  std::thread other([] { OK(cuDevicePrimaryCtxRelease_v2(0)); });
  for (int i = 0; i < 10'000 && Room() == before; ++i) {
    usleep(1'000);
    OK(cuMemAlloc_v2(&block, kMiB));
    OK(cuMemFree_v2(block));
  }
  EXPECT_SAME(before - Room(), kMiB);
  other.join();
  EXPECT_SAME(Room(), before);
  Balanced();
}

// Lets go of the only reference to the primary context on one thread and takes one on another, while `slow` (a fault)
// holds up one of the driver's functions; 400 MiB are in the context.
void EndAndRetain(const char* slow, bool retain_first) {
  CUcontext again = nullptr;
  CUdeviceptr block = 0;
  Begin();
  const size_t before = Room();
  OK(cuMemAlloc_v2(&block, 400 * kMiB));
  EXPECT_SAME(simgpu_inject(slow, nullptr, 0), 1);
  const auto let_go = [] { OK(cuDevicePrimaryCtxRelease_v2(0)); };
  const auto retain = [&again] { OK(cuDevicePrimaryCtxRetain(&again, 0)); };
  std::thread first([&] { retain_first ? retain() : let_go(); });
  usleep(100'000);
  retain_first ? let_go() : retain();
  first.join();
  OK(cuCtxSetCurrent(again));
  Balanced();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_SAME(Truth(), 0);
  Begin();
  EXPECT_SAME(Room(), before);
  Balanced();
}

// A context that is taken for alive must not end before it has one reference more: nobody would pay for the next one.
SCENARIO(primary_ends_while_it_is_retained) {
  EndAndRetain("fault call=cuDevicePrimaryCtxRetain delay_ms=400 count=1", true);
}

// Nor may there be another one before what was in the last one is given back: it would look as if that lived.
SCENARIO(primary_retained_while_it_ends) {
  EndAndRetain("fault call=cuDevicePrimaryCtxGetState delay_ms=400 count=1", false);
}

// What a launch makes the driver take (code loaded at the first use, a larger stack) is not seen by the launch; the
// next synchronisation measures it. Here the driver takes it from a library that bypasses us.
SCENARIO(first_use_measured_at_sync) {
  Begin();
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, "simgpu-image 1\nkernel k\nglobal g 1048576\n"));
  OK(cuCtxSynchronize());
  void* const deep = dlopen(arguments.at(0).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  EXPECT(deep != nullptr);
  const auto allocate = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(dlsym(deep, "deep_allocate"));
  CUdeviceptr hidden = 0;
  OK(allocate(&hidden, 100 * kMiB));
  // The region's own word: looking at it measures nothing. Slot 0, device 0, module bytes.
  constexpr off_t kModuleOffset = 1856 + 8 + 8;
  const int fd = open(std::getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDONLY);
  uint64_t counted = 0;
  for (int i = 0; i < 300 && counted < 100 * kMiB; ++i) {
    OK(cuCtxSynchronize());
    EXPECT_SAME(pread(fd, &counted, sizeof counted, kModuleOffset), sizeof counted);
    usleep(10'000);
  }
  close(fd);
  EXPECT(counted >= 100 * kMiB);
  Balanced();
}

// Without NVML a context's size is taken from the driver's own figures.
SCENARIO(context_without_nvml) {
  EXPECT_SAME(simgpu_inject("fault call=nvmlInit_v2 error=9", nullptr, 0), 1);
  Begin();
  Balanced();
  EXPECT(Truth() > 0);
  CUcontext second = nullptr;
  OK(cuCtxCreate_v2(&second, 0, 0));
  Balanced();
  OK(cuCtxDestroy_v2(second));
}

}  // namespace
}  // namespace guest
