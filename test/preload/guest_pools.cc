// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: the default pool, explicit pools, per-thread streams, thresholds.
#include "test/preload/guest.h"

namespace guest {
namespace {

using Allocate = CUresult (*)(CUdeviceptr*, size_t, CUstream);
using Free = CUresult (*)(CUdeviceptr, CUstream);

void UpToTheLimit(Allocate allocate, Free free) {
  const size_t before = Room();
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 77;
  CUresult result = CUDA_SUCCESS;
  while ((result = allocate(&block, 32 * kMiB, nullptr)) == CUDA_SUCCESS) {
    blocks.push_back(block);
    EXPECT(Truth() <= kGiB);
  }
  EXPECT_SAME(result, CUDA_ERROR_OUT_OF_MEMORY);  // 2 and not -1: frameworks retry after it (C1)
  EXPECT(Room() < 34 * kMiB);
  Balanced();
  for (const CUdeviceptr b : blocks) OK(free(b, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(async_default_pool) {
  Begin();
  UpToTheLimit(cuMemAllocAsync, cuMemFreeAsync);
}

SCENARIO(async_per_thread_stream) {
  Begin();
  UpToTheLimit(cuMemAllocAsync_ptsz, cuMemFreeAsync_ptsz);
}

CUmemoryPool MakePool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  OK(cuMemPoolCreate(&pool, &props));
  return pool;
}

CUmemoryPool g_pool = nullptr;

SCENARIO(async_explicit_pool) {
  Begin();
  g_pool = MakePool();
  UpToTheLimit([](CUdeviceptr* out, size_t bytes,
                  CUstream stream) { return cuMemAllocFromPoolAsync(out, bytes, g_pool, stream); },
               cuMemFreeAsync);
  UpToTheLimit([](CUdeviceptr* out, size_t bytes,
                  CUstream stream) { return cuMemAllocFromPoolAsync_ptsz(out, bytes, g_pool, stream); },
               cuMemFreeAsync_ptsz);
  OK(cuMemPoolDestroy(g_pool));
  Balanced();
}

// What a pool keeps after the free still counts, and gives way when something else needs the room.
SCENARIO(pool_keeps_reserve) {
  Begin();
  const size_t before = Room();
  CUmemoryPool pool = MakePool();
  cuuint64_t keep = UINT64_MAX;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr block = 0;
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, nullptr));
  OK(cuMemFreeAsync(block, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_SAME(before - Room(), 400 * kMiB);
  Balanced();
  // Reused without growth.
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, nullptr));
  EXPECT_SAME(before - Room(), 400 * kMiB);
  OK(cuMemFreeAsync(block, nullptr));
  OK(cuCtxSynchronize());
  // Fits only if the unused reserve goes: it does, and the request is not refused.
  CUdeviceptr large = 0;
  OK(cuMemAlloc_v2(&large, before - 100 * kMiB));
  EXPECT(Truth() <= kGiB);
  Balanced();
  OK(cuMemFree_v2(large));
  OK(cuMemPoolDestroy(pool));
  EXPECT_SAME(Room(), before);
}

SCENARIO(pool_trim) {
  Begin();
  const size_t before = Room();
  CUmemoryPool pool = MakePool();
  cuuint64_t keep = UINT64_MAX;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr block = 0;
  OK(cuMemAllocFromPoolAsync(&block, 100 * kMiB, pool, nullptr));
  OK(cuMemFree_v2(block));  // a pool's memory may be freed this way too
  OK(cuMemPoolTrimTo(pool, 0));
  EXPECT_SAME(Room(), before);
  OK(cuMemPoolDestroy(pool));
}

// A free on another current device is still a free of the right one (C7).
SCENARIO(async_free_elsewhere) {
  Begin(0);
  const size_t before = Room();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr block = 0;
  OK(cuMemAllocAsync(&block, 100 * kMiB, stream));
  OK(cuStreamSynchronize(stream));
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxPushCurrent_v2(other));
  const size_t other_before = Room();
  OK(cuMemFreeAsync(block, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_SAME(Room(), other_before);
  OK(cuCtxPopCurrent_v2(&other));
  EXPECT_SAME(Room(), before);
}

// Memory recorded into a graph is not allocated by the recording, and its free is the driver's business.
SCENARIO(async_capture) {
  Begin();
  const size_t before = Room();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr block = 0;
  OK(cuMemAllocAsync(&block, 64 * kMiB, stream));
  OK(cuMemFreeAsync(block, stream));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT_SAME(Room(), before);
  OK(cuGraphDestroy(graph));
  EXPECT_SAME(Room(), before);
}

// A pool belongs to the device it was made on, whichever is current.
SCENARIO(pool_of_other_device) {
  Begin(0);
  const size_t before = Room();
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = 1;
  CUmemoryPool pool = nullptr;
  OK(cuMemPoolCreate(&pool, &props));
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  CUdeviceptr block = 0;
  OK(cuMemAllocFromPoolAsync(&block, 100 * kMiB, pool, nullptr));
  EXPECT_SAME(Room(), before);
  OOM(cuMemAllocFromPoolAsync(&block, kGiB, pool, nullptr));
  OK(cuCtxSetCurrent(other));
  EXPECT(MemInfo().used() >= 400 * kMiB);
  EXPECT(Truth(1) <= MemInfo().used());
}

// To the last step of the driver's, and never past the limit on the way there: what the pool grows by is reserved in
// the steps that were seen.
SCENARIO(pool_to_the_limit) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAllocAsync(&block, 1000, nullptr));
  size_t blocks = 0;
  while (cuMemAllocAsync(&block, kMiB + 1000, nullptr) == CUDA_SUCCESS) {
    ++blocks;
    EXPECT(Truth() <= kGiB);
  }
  EXPECT(blocks > 100);
  EXPECT(Room() < 4 * kMiB);
  Balanced();
}

// A pool that is destroyed while frees are under way still holds its memory, and can not be asked any more.
SCENARIO(pool_destroyed_with_frees_pending) {
  Begin();
  const size_t before = Room();
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuModuleLoadData(&module, "simgpu-image 1\ncode 4K\nkernel spin\n  cost total 40000ms\n"));
  OK(cuModuleGetFunction(&kernel, module, "spin"));
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  CUdeviceptr block = 0;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, stream));
  OK(cuLaunchKernel(kernel, 132, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr));
  OK(cuMemFreeAsync(block, stream));
  OK(cuMemPoolDestroy(pool));
  OOM(cuMemAlloc_v2(&block, 500 * kMiB));
  EXPECT(MemInfo().used() >= Truth());
  OK(cuStreamSynchronize(stream));
  EXPECT(before - Room() < 2 * kMiB);
  OK(cuMemAlloc_v2(&block, 500 * kMiB));
}

}  // namespace
}  // namespace guest
