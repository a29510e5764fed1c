// SPDX-License-Identifier: Apache-2.0
// Programs that wait for their streams by events only, or by other streams: what the driver has freed makes room at
// once, and what it has not does not.
#include <sched.h>

#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

constexpr size_t kBlock = 400 * kMiB;

// A stream, and values in memory that it waits for.
class Gated {
 public:
  Gated() {
    OK(cuMemAlloc_v2(&gate_, 512));
    OK(cuMemsetD32_v2(gate_, 0, 1));
  }
  void Wait(unsigned value) const { OK(cuStreamWaitValue32_v2(stream_, gate_, value, CU_STREAM_WAIT_VALUE_GEQ)); }
  void Open(unsigned value) const { OK(cuMemsetD32_v2(gate_, value, 1)); }
  CUstream stream() const { return stream_; }

 private:
  const CUstream stream_ = NewStream();
  CUdeviceptr gate_ = 0;
};

CUevent EventOn(CUstream stream) {
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(event, stream));
  return event;
}

void BySynchronise(CUevent event) { OK(cuEventSynchronize(event)); }

void ByQuery(CUevent event) {
  CUresult result = CUDA_SUCCESS;
  while ((result = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) sched_yield();
  OK(result);
}

void ByOtherStream(CUevent event) {
  const CUstream other = NewStream();
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuStreamSynchronize(other));
}

using Wait = void (*)(CUevent);

// The stream goes on to work that does not end, as in a pipeline: nobody will ever wait for all of it.
void FreedInOrder(Wait wait, CUresult (*take)(CUdeviceptr*, size_t)) {
  Gated gated;
  CUdeviceptr block = 0;
  const size_t before = Room();
  OK(cuMemAlloc_v2(&block, kBlock));
  gated.Wait(1);
  OK(cuMemFreeAsync(block, gated.stream()));
  CUevent event = EventOn(gated.stream());
  gated.Wait(2);
  OOM(cuMemAlloc_v2(&block, before));  // not reached
  Balanced();
  gated.Open(1);
  wait(event);
  OK(take(&block, before / kMiB * kMiB));
  EXPECT(Truth() <= kGiB);
  Balanced();
  gated.Open(2);
}

CUresult Plain(CUdeviceptr* out, size_t bytes) { return cuMemAlloc_v2(out, bytes); }
CUresult Pooled(CUdeviceptr* out, size_t bytes) { return cuMemAllocAsync(out, bytes - 2 * kMiB, nullptr); }

SCENARIO(plain_freed_event_synchronised) {
  Begin();
  FreedInOrder(BySynchronise, Plain);
}

SCENARIO(plain_freed_event_queried) {
  Begin();
  FreedInOrder(ByQuery, Plain);
}

SCENARIO(plain_freed_other_stream) {
  Begin();
  FreedInOrder(ByOtherStream, Plain);
}

SCENARIO(plain_freed_pool_wants_it) {
  Begin();
  FreedInOrder(ByQuery, Pooled);
}

// A query tells what was freed as soon as it is, and not before.
SCENARIO(plain_freed_shows) {
  Begin();
  Gated gated;
  CUdeviceptr blocks[3] = {};
  const size_t before = Room();
  for (unsigned i = 0; i < 3; ++i) OK(cuMemAlloc_v2(&blocks[i], 100 * kMiB));
  for (unsigned i = 0; i < 3; ++i) {
    gated.Wait(i + 1);
    OK(cuMemFreeAsync(blocks[i], gated.stream()));
  }
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_SAME(before - Room(), (3 - i) * 100 * kMiB);
    Balanced();
    gated.Open(i + 1);
    while (Truth() > kGiB - before + (2 - i) * 100 * kMiB) sched_yield();
  }
  EXPECT_SAME(Room(), before);
}

// More of them than are told apart, on streams that come and go, and in contexts that end.
SCENARIO(plain_freed_many) {
  CUcontext primary = Begin();
  const size_t before = Room();
  for (int round = 0; round < 3; ++round) {
    CUcontext created = nullptr;
    OK(cuCtxCreate_v2(&created, 0, 0));
    for (int i = 0; i < 40; ++i) {
      CUdeviceptr block = 0;
      const CUstream stream = NewStream();
      for (int n = 0; n < 5; ++n) {
        OK(cuMemAlloc_v2(&block, 2 * kMiB));
        OK(cuMemFreeAsync(block, stream));
      }
      ByQuery(EventOn(stream));
      OK(cuStreamDestroy_v2(stream));
      if (i % 8 == 0) Balanced();
    }
    Balanced();
    if (round == 1) OK(cuCtxDestroy_v2(created));
    OK(cuCtxSetCurrent(primary));
    if (round != 1) OK(cuCtxDestroy_v2(created));
    EXPECT_SAME(Room(), before);
  }
}

// Of more than there are marks for, all are known when the last is.
SCENARIO(plain_freed_more_than_marks) {
  Begin();
  Gated gated;
  const size_t before = Room();
  std::vector<CUdeviceptr> blocks(150);
  for (CUdeviceptr& block : blocks) OK(cuMemAlloc_v2(&block, 2 * kMiB));
  gated.Wait(1);
  for (const CUdeviceptr block : blocks) OK(cuMemFreeAsync(block, gated.stream()));
  CUevent event = EventOn(gated.stream());
  gated.Wait(2);
  EXPECT_SAME(before - Room(), 300 * kMiB);
  gated.Open(1);
  ByQuery(event);
  CUdeviceptr most = 0;
  OK(cuMemAlloc_v2(&most, before / 512 * 512));
  EXPECT(Truth() <= kGiB);
  Balanced();
  gated.Open(2);
}

// Pools: what they have given back makes room, also behind events.
CUmemoryPool PoolThatKeeps(cuuint64_t bytes) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  OK(cuMemPoolCreate(&pool, &props));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
  return pool;
}

void PooledFreed(cuuint64_t keep, Wait wait) {
  Gated gated;
  CUdeviceptr block = 0;
  const CUstream other = NewStream();
  CUmemoryPool pool = PoolThatKeeps(keep);
  const size_t room = Room() / (2 * kMiB) * (2 * kMiB);
  for (int round = 0; round < 2; ++round) {
    OK(cuMemAllocFromPoolAsync(&block, kBlock, pool, gated.stream()));
    OK(cuMemFreeAsync(block, gated.stream()));
    CUevent event = EventOn(gated.stream());
    gated.Wait(static_cast<unsigned>(round) + 1);  // and the stream has more to do
    wait(event);
    if (round == 0) {
      OK(cuMemAlloc_v2(&block, room));
    } else {
      OK(cuMemAllocFromPoolAsync(&block, room, pool, other));
    }
    Balanced();
    EXPECT(Truth() <= kGiB);
    gated.Open(static_cast<unsigned>(round) + 1);
    OK(cuMemFree_v2(block));  // the driver waits for everything
  }
}

// Of a step that is in use in part the driver gives nothing back, but has room in it for any stream that comes after.
SCENARIO(pool_freed_within_a_step) {
  Begin();
  CUstream streams[2] = {};
  CUdeviceptr blocks[2] = {};
  CUdeviceptr plain = 0;
  for (CUstream& stream : streams) stream = NewStream();
  CUmemoryPool pool = PoolThatKeeps(0);
  for (CUdeviceptr& block : blocks) OK(cuMemAllocFromPoolAsync(&block, kMiB, pool, streams[0]));
  OK(cuMemAlloc_v2(&plain, Room() / 512 * 512));
  OK(cuMemFreeAsync(blocks[0], streams[0]));
  ByQuery(EventOn(streams[0]));
  OK(cuMemAllocFromPoolAsync(&blocks[0], kMiB, pool, streams[1]));
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// A pool that is no more can not be asked what it still holds; its stream can.
SCENARIO(pool_destroyed_event_queried) {
  Begin();
  Gated gated;
  CUdeviceptr block = 0;
  const size_t before = Room();
  CUmemoryPool pool = PoolThatKeeps(0);
  OK(cuMemAllocFromPoolAsync(&block, kBlock, pool, gated.stream()));
  gated.Wait(1);
  OK(cuMemFreeAsync(block, gated.stream()));
  CUevent event = EventOn(gated.stream());
  OK(cuMemPoolDestroy(pool));
  OOM(cuMemAlloc_v2(&block, before));
  Balanced();
  gated.Open(1);
  ByQuery(event);
  OK(cuMemAlloc_v2(&block, before / 512 * 512));
  EXPECT(Truth() <= kGiB);
  Balanced();
}

// What a stream freed that is no more, or a thread's own, is known when the context was waited for, as ever.
SCENARIO(pool_freed_stream_destroyed) {
  Begin();
  CUdeviceptr block = 0;
  CUdeviceptr plain = 0;
  const CUstream other = NewStream();
  CUmemoryPool pool = PoolThatKeeps(0);
  for (int round = 0; round < 4; ++round) {
    CUstream stream = nullptr;
    if (round % 2 == 0) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr kept = 0;
    const CUstream named = round % 2 == 0 ? stream : CU_STREAM_PER_THREAD;
    OK(cuMemAllocFromPoolAsync(&kept, kMiB, pool, named));
    OK(cuMemAllocFromPoolAsync(&block, kMiB, pool, named));
    OK(cuMemAlloc_v2(&plain, Room() / 512 * 512));
    OK(cuMemFreeAsync(block, named));
    ByQuery(EventOn(named));
    if (round % 2 == 0) {
      OK(cuStreamDestroy_v2(stream));
      cuMemAllocFromPoolAsync(&block, kMiB, pool,
                              other);  // either answer is right; nothing that is gone may be touched
    }
    OK(cuCtxSynchronize());
    Balanced();
    EXPECT(Truth() <= kGiB);
    OK(cuMemFree_v2(plain));
    OK(cuMemFreeAsync(kept, other));
    OK(cuCtxSynchronize());
  }
}

SCENARIO(pool_freed_event_synchronised) {
  Begin();
  PooledFreed(0, BySynchronise);
}

SCENARIO(pool_freed_event_queried) {
  Begin();
  PooledFreed(UINT64_MAX, ByQuery);
}

SCENARIO(pool_freed_other_stream) {
  Begin();
  PooledFreed(0, ByOtherStream);
}

}  // namespace
}  // namespace guest
