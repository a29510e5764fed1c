// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: the default pool, explicit pools, per-thread streams, thresholds.
#include <sched.h>

#include "test/preload/guest_kernels.h"

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
  const CUstream stream = NewStream();
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
  const CUstream stream = NewStream();
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

// Memory for a stream is its context's, also where the thread has no context at all.
SCENARIO(pool_without_context) {
  const CUcontext context = Begin();
  const CUstream stream = NewStream();
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetMemPool(&pool, 0));
  OK(cuCtxSetCurrent(nullptr));
  CUdeviceptr block = 0;
  OOM(cuMemAllocAsync(&block, 2 * kGiB, stream));
  OOM(cuMemAllocFromPoolAsync(&block, 2 * kGiB, pool, stream));
  OK(cuMemAllocAsync(&block, 256 * kMiB, stream));
  OK(cuCtxSetCurrent(context));
  Balanced();
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

// The driver's own pool of a device, used by a stream of the other.
SCENARIO(default_pool_of_other_device) {
  Begin(0);
  const size_t before = Room();
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, 1));
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  CUdeviceptr block = 0;
  OK(cuMemAllocFromPoolAsync(&block, 600 * kMiB, pool, nullptr));
  EXPECT_SAME(Room(), before);
  OOM(cuMemAllocFromPoolAsync(&block, 500 * kMiB, pool, nullptr));
  OK(cuMemAlloc_v2(&block, 500 * kMiB));
  OK(cuCtxSetCurrent(other));
  EXPECT(MemInfo().used() >= 600 * kMiB);
  OOM(cuMemAlloc_v2(&block, 500 * kMiB));
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
  const CUstream stream = NewStream();
  const CUfunction kernel = KernelOf(LoadImage("simgpu-image 1\ncode 4K\nkernel spin\n  cost total 40000ms\n"), "spin");
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  CUdeviceptr block = 0;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, stream));
  Launch(kernel, stream, 132, 32);
  OK(cuMemFreeAsync(block, stream));
  OK(cuMemPoolDestroy(pool));
  OOM(cuMemAlloc_v2(&block, 500 * kMiB));
  EXPECT(MemInfo().used() >= Truth());
  OK(cuStreamSynchronize(stream));
  EXPECT(before - Room() < 2 * kMiB);
  OK(cuMemAlloc_v2(&block, 500 * kMiB));
}

// A stream that stands still until it is let go.
class Held {
 public:
  Held() {
    OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag_), sizeof *flag_, CU_MEMHOSTALLOC_DEVICEMAP));
    *flag_ = 0;
  }
  void Hold() {
    const auto wait = [](void* self) {
      while (__atomic_load_n(static_cast<Held*>(self)->flag_, __ATOMIC_ACQUIRE) == 0) sched_yield();
    };
    OK(cuLaunchHostFunc(stream_, wait, this));
  }
  void LetGo() { __atomic_store_n(flag_, 1, __ATOMIC_RELEASE); }
  CUstream stream() const { return stream_; }

 private:
  const CUstream stream_ = NewStream();
  int* flag_ = nullptr;
};

CUmemoryPool KeepingPool() {
  CUmemoryPool pool = MakePool();
  cuuint64_t keep = UINT64_MAX;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  return pool;
}

size_t MostReserved(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &bytes));
  return bytes;
}

// What was freed on a stream that has not got there is no room for another stream, whatever else was waited for: the
// driver would have to grow the pool.
SCENARIO(pool_free_not_reached) {
  Begin();
  Held held;
  CUevent event = nullptr;
  CUdeviceptr block = 0;
  CUdeviceptr plain = 0;
  const CUstream other = NewStream();
  OK(cuEventCreate(&event, 0));
  CUmemoryPool pool = KeepingPool();
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, held.stream()));
  OK(cuMemAlloc_v2(&plain, Room() - 100 * kMiB));
  held.Hold();
  OK(cuMemFreeAsync(block, held.stream()));
  OK(cuStreamSynchronize(other));
  OK(cuEventRecord(event, other));
  OK(cuEventSynchronize(event));
  OOM(cuMemAllocFromPoolAsync(&block, 200 * kMiB, pool, other));
  EXPECT_SAME(MostReserved(pool), 400 * kMiB);
  Balanced();
  held.LetGo();
  OK(cuStreamSynchronize(held.stream()));
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, other));
  EXPECT_SAME(MostReserved(pool), 400 * kMiB);
  Balanced();
}

// In order, the same stream has it again at once: a program that never waits needs no more than it uses.
SCENARIO(pool_same_stream) {
  Begin();
  Held held;
  CUdeviceptr block = 0;
  CUdeviceptr plain = 0;
  CUmemoryPool pool = KeepingPool();
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, held.stream()));
  OK(cuMemAlloc_v2(&plain, Room() - 100 * kMiB));
  held.Hold();
  for (int i = 0; i < 3; ++i) {
    OK(cuMemFreeAsync(block, held.stream()));
    OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, held.stream()));
  }
  EXPECT_SAME(MostReserved(pool), 400 * kMiB);
  Balanced();
  held.LetGo();
  OK(cuStreamSynchronize(held.stream()));
  Balanced();
}

// A free that will be reached soon makes room for what does not fit before.
SCENARIO(pool_free_awaited) {
  Begin();
  CUdeviceptr block = 0;
  CUdeviceptr plain = 0;
  const CUstream busy = NewStream();
  const CUstream other = NewStream();
  const CUfunction kernel = KernelOf(LoadImage("simgpu-image 1\ncode 4K\nkernel spin\n  cost total 2000ms\n"), "spin");
  CUmemoryPool pool = KeepingPool();
  OK(cuMemAllocFromPoolAsync(&block, 400 * kMiB, pool, busy));
  OK(cuMemAlloc_v2(&plain, Room() - 10 * kMiB));
  Launch(kernel, busy, 132, 32);
  OK(cuMemFreeAsync(block, busy));
  OK(cuMemAllocFromPoolAsync(&block, 390 * kMiB, pool, other));
  EXPECT(MostReserved(pool) <= 400 * kMiB);
  Balanced();
}

// What a pool keeps and what graphs keep make room together where neither does alone.
SCENARIO(pool_and_graphs_give_way) {
  Begin();
  CUmemoryPool pool = KeepingPool();
  CUdeviceptr block = 0;
  CUgraph graph = nullptr;
  CUgraphNode alloc = nullptr;
  CUgraphNode free = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = 200 * kMiB;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  OK(cuGraphAddMemFreeNode(&free, graph, &alloc, 1, params.dptr));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const size_t before = Room();
  const auto hoard = [&] {
    OK(cuMemAllocFromPoolAsync(&block, 200 * kMiB, pool, nullptr));
    OK(cuMemFreeAsync(block, nullptr));
    OK(cuGraphLaunch(exec, nullptr));
    OK(cuCtxSynchronize());
    EXPECT_SAME(before - Room(), 400 * kMiB);
  };
  hoard();
  OK(cuMemAlloc_v2(&block, before - 50 * kMiB));
  Balanced();
  OK(cuMemFree_v2(block));
  hoard();
  OK(cuMemAllocAsync(&block, before - 50 * kMiB, nullptr));
  Balanced();
}

// What a trim leaves may end in the middle of a step; the growth after that begins there.
SCENARIO(pool_trimmed_to_odd_size) {
  Begin();
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CUdeviceptr plain = 0;
  const CUstream stream = NewStream();
  CUmemoryPool pool = KeepingPool();
  OK(cuMemAllocFromPoolAsync(&first, 2 * kMiB, pool, stream));
  OK(cuMemFreeAsync(first, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemPoolTrimTo(pool, 700 << 10));
  OK(cuMemAllocFromPoolAsync(&first, 700 << 10, pool, stream));
  OK(cuMemAlloc_v2(&plain, Room() - 2 * kMiB));
  OOM(cuMemAllocFromPoolAsync(&second, 1536 << 10, pool, stream));
  EXPECT(MostReserved(pool) <= 2 * kMiB + (700 << 10));
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// Memory of no pool may be freed in stream order, too: the driver holds it until the stream got there.
SCENARIO(plain_freed_in_stream_order) {
  Begin();
  Held held;
  CUdeviceptr block = 0;
  const size_t before = Room();
  OK(cuMemAlloc_v2(&block, 400 * kMiB));
  held.Hold();
  OK(cuMemFreeAsync(block, held.stream()));
  Balanced();
  OOM(cuMemAlloc_v2(&block, Room() + 1));
  held.LetGo();
  OK(cuStreamSynchronize(held.stream()));
  EXPECT_SAME(Room(), before);
  Balanced();
}

uint64_t g_most_used = 0;

// A block takes whole units of 512 bytes of what a pool has: what is less than that is no room for it.
SCENARIO(pool_less_than_a_block_left) {
  Begin();
  CUdeviceptr block = 0;
  CUdeviceptr plain = 0;
  CUmemoryPool pool = KeepingPool();
  OK(cuMemAllocFromPoolAsync(&block, 2 * kMiB, pool, nullptr));
  OK(cuMemFreeAsync(block, nullptr));
  OK(cuStreamSynchronize(nullptr));
  OK(cuMemPoolTrimTo(pool, 1000));
  OK(cuMemAlloc_v2(&plain, Room() / 512 * 512));
  simgpu_look_at_books([](int, uint64_t used) { g_most_used = used > g_most_used ? used : g_most_used; }, nullptr);
  OOM(cuMemAllocFromPoolAsync(&block, 1000, pool, nullptr));
  simgpu_look_at_books(nullptr, nullptr);
  EXPECT(g_most_used <= kGiB);
  Balanced();
}

}  // namespace
}  // namespace guest
