// SPDX-License-Identifier: Apache-2.0
// Contexts cost memory, and everything in them goes with them. simgpu's contexts take 300 MiB unless told otherwise.
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
  OK(cuCtxCreate_v2(&created, 0, 0));
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  const CUresult result = cuCtxDetach(created);
  EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED);
  OK(cuCtxSetCurrent(primary));
  Balanced();  // whether that ended it or not, the counters follow the driver
  unsigned version = 0;
  if (cuCtxGetApiVersion(created, &version) != CUDA_SUCCESS) EXPECT_SAME(Room(), before);
}

}  // namespace
}  // namespace guest
