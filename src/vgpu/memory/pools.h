// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered memory. What counts is what a pool has reserved from the device, not what is handed out of it: a pool
// keeps freed memory until a synchronisation (or its release threshold) gives it back. Invariant: each pool of this
// process that was ever allocated from is charged at least its reserved size, and exactly that after every allocation,
// synchronisation, trim, query and refusal. Before the driver is asked, what the pool may grow by is reserved, in the
// steps in which the driver was seen to grow pools on this device; every process of the container learns from the
// others' (the region keeps it), so only the very first growth can come as a surprise, and one that does not fit is
// undone. What a pool has unused spares a reservation only where the driver can surely use it: not while its free is
// under way on another stream (pending_frees.h). A request that fits only when such frees are reached waits for them, a
// little. Host pools are not charged.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/context_memory.h"
#include "vgpu/memory/flags.h"
#include "vgpu/memory/pending_frees.h"
#include "vgpu/memory/table.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/mapped_vector.h"

namespace hami::vgpu {

// An allocation of `bytes` from `pool`. `allocate` calls the driver; `undo` gives back what it got.
struct PoolRequest {
  ContextRef context;
  CUmemoryPool pool;
  CUdeviceptr* out;
  size_t bytes;
  CUstream stream;
  StreamId name;  // of the stream
};
template <typename Allocate, typename Undo>
CUresult AllocateFromPool(const PoolRequest& request, Allocate allocate, Undo undo);

// Notes where a new pool keeps its memory, or one that the driver handed out of its own, which may be known already.
// Pools nobody told us about belong to the device of the first stream that allocates from them.
void PoolCreated(CUmemoryPool pool, const CUmemPoolProps& props);
void PoolMet(CUmemoryPool pool, const CUmemLocation& location);
// Before the driver destroys it: the last moment at which it can be asked what it holds.
void PoolDestroying(CUmemoryPool pool);
// After the driver destroyed it; blocks that are still out keep it charged.
void PoolDestroyed(CUmemoryPool pool);
// A block of a pool is the application's no more (the entry was taken from the table).
void PoolBlockFreed(const Entry& entry);
// Around all that when it is freed in stream order: by which stream.
void PoolFreeBegins(const Entry& entry);
void PoolFreeEnds(const Entry& entry, const StreamId& stream, CUstream handle, bool freed);

// Makes the charges of a device's pools equal to what they hold; kAllDevices for all.
inline constexpr int kAllDevices = -3;
// False when what one of them holds can not be told: it was destroyed while frees were under way.
bool SettlePools(int device);
// Gives unused reserve back to the device if at least `needed` bytes can be had that way. True when it did.
bool TrimPools(int device, uint64_t needed);

void PoolsSynchronised(const Waited& waited);
inline void AfterSynchronise(const Waited& waited = {}) {
  if (g_memory_flags.pools_may_shrink.load(std::memory_order_relaxed)) PoolsSynchronised(waited);
}
// Before a stream is destroyed, and, with nullptr, before some are that nobody names.
void PoolsLoseStream(CUstream stream);
// From now on no stream of a context that is ending is asked about; for contexts.cc, once that can be seen.
void PoolsLeaveEnding();
// Gives back what streams were asked to free and the driver says they did, plain memory and that of pools. Waits for
// nothing; with the measure lock held.
void SettleFrees();
// All frees on its streams are done with.
void PoolsLostContext(CUcontext context);

// The pools of this process.
struct PoolBook {
  struct Pool {
    CUmemoryPool handle;
    uint64_t id;  // the handle of a destroyed pool may be another one's soon
    int device;
    uint64_t charged;  // what the region holds for it
    uint64_t live;     // bytes of blocks that are out
    bool on_host;
    bool destroyed;
  };

  Lock lock{LockRank::kPools};  // guards what follows
  MappedVector<Pool> list;
  PendingFrees frees;
  uint64_t last_id = 0;
  std::atomic<int64_t> no_wait_before{0};  // monotonic nanoseconds; not guarded

  void Reset();
};

// --- implementation of the template
// ------------------------------------------------------------------------------------

// The parts of an allocation around the driver's call. The pools' lock is held from Begin, when it answers kReserved,
// to End.
enum class Begun : uint8_t { kUncounted, kReserved, kNoRoom };
Begun BeginPoolAllocation(const PoolRequest& request, uint64_t* growth);
// What the pool really grew by: false if that does not fit, and the block has to go back.
bool EndPoolAllocation(const PoolRequest& request, uint64_t growth, CUresult result);
void AfterPoolUndo(const PoolRequest& request);
// Waits for frees under way that will make room for the request; false when there are none, or not soon. Not to be
// called with the measure lock held: a measurement could not wait for that.
bool AwaitFrees(const PoolRequest& request);
CUresult RefusePoolAllocation(const PoolRequest& request);

template <typename Allocate, typename Undo>
CUresult FinishPoolAllocation(const PoolRequest& request, uint64_t growth, Allocate allocate, Undo undo) {
  const CUdeviceptr before = *request.out;
  const CUresult result = allocate();
  if (EndPoolAllocation(request, growth, result)) return result;
  undo();
  AfterPoolUndo(request);
  *request.out = before;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <typename Allocate, typename Undo>
CUresult AllocateFromPool(const PoolRequest& request, Allocate allocate, Undo undo) {
  for (bool waited = false;; waited = true) {
    {
      const Charging charging(request.context.device);
      uint64_t growth = 0;
      const Begun begun = BeginPoolAllocation(request, &growth);
      if (begun == Begun::kUncounted) return allocate();
      if (begun == Begun::kReserved) return FinishPoolAllocation(request, growth, allocate, undo);
    }
    if (waited || !AwaitFrees(request)) return RefusePoolAllocation(request);
  }
}

}  // namespace hami::vgpu
