// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/pools.h"

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/free_events.h"
#include "vgpu/memory/graphs.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/pool_granularity.h"
#include "vgpu/memory/sparse_multicast.h"
#include "vgpu/memory/vmm.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/device_map.h"

namespace hami::vgpu {

namespace {

using Pool = PoolBook::Pool;

// How long an allocation waits for frees under way that would make room for it. Work that takes longer is no reason to
// hold up a program that may be the one to let it go on.
constexpr int64_t kPatience = 500'000'000;
// After a wait in vain the next ones are not tried for a while.
constexpr int64_t kPause = 5'000'000'000;
constexpr int64_t kShortestNap = 50'000;
constexpr int64_t kLongestNap = 2'000'000;

// The pools' lock, for what asks the driver.
class Asking {
 private:
  RelaxedCapture relaxed_;
  Locked locked_{g_memory.pools.lock};
};

// What the driver takes for a block of a pool.
uint64_t Blocks(uint64_t bytes) { return RoundUp(bytes, kAllocationUnit); }

uint64_t Attribute(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t otherwise) {
  cuuint64_t value = 0;
  return real::cuMemPoolGetAttribute(pool, attribute, &value) == CUDA_SUCCESS ? value : otherwise;
}

uint64_t Reserved(const Pool& pool) { return Attribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, pool.live); }

uint64_t InUse(const Pool& pool) { return Attribute(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool.live); }

Pool* FindLocked(CUmemoryPool handle) {
  for (Pool& pool : g_memory.pools.list) {
    if (pool.handle == handle && !pool.destroyed) return &pool;
  }
  return nullptr;
}

Pool* FindIdLocked(uint64_t id) {
  for (Pool& pool : g_memory.pools.list) {
    if (pool.id == id) return &pool;
  }
  return nullptr;
}

Pool* AddLocked(CUmemoryPool handle, int device, bool on_host) {
  Pool* const pool = g_memory.pools.list.Add();
  if (pool != nullptr) *pool = {handle, ++g_memory.pools.last_id, device, 0, 0, on_host, false};
  return pool;
}

Pool* FindOrAddLocked(CUmemoryPool handle, int device) {
  Pool* const pool = FindLocked(handle);
  return pool != nullptr ? pool : AddLocked(handle, device, false);
}

void BlockFreedLocked(const Entry& entry) {
  Pool* const pool = FindIdLocked(entry.extra);
  if (pool == nullptr) return;
  pool->live -= entry.bytes < pool->live ? entry.bytes : pool->live;
}

void SetChargedLocked(Pool& pool, uint64_t bytes) {
  if (bytes < pool.charged) Refund(pool.device, pool.charged - bytes, Kind::kData);
  if (bytes > pool.charged) ChargeAnyway(pool.device, bytes - pool.charged, Kind::kData);
  pool.charged = bytes;
}

void SettleLocked(Pool& pool) {
  if (pool.on_host) return;
  if (!pool.destroyed) {
    SetChargedLocked(pool, Reserved(pool));
  } else if (pool.live == 0 && g_memory.pools.frees.Unreached(pool.id) == 0) {
    SetChargedLocked(pool, 0);  // a destroyed pool can not be asked any more; its last frees have been reached
  }
}

bool SettleAllLocked(int device) {
  bool may_shrink = false;
  bool known = true;
  for (size_t i = g_memory.pools.list.size(); i-- > 0;) {
    Pool& pool = g_memory.pools.list[i];
    if (device == kAllDevices || pool.device == device) SettleLocked(pool);
    may_shrink = may_shrink || pool.charged > pool.live;
    known = known && (!pool.destroyed || pool.charged == 0);
    if (pool.destroyed && pool.charged == 0) g_memory.pools.list.Remove(&pool);
  }
  g_memory_flags.pools_may_shrink.store(may_shrink, std::memory_order_relaxed);
  return known;
}

// What the pool is charged and nothing uses.
uint64_t Spare(const Pool& pool) {
  const uint64_t in_use = InUse(pool);
  return pool.charged > in_use ? pool.charged - in_use : 0;
}

bool Askable(const Pool& pool, int device) {
  return pool.device == device && !pool.on_host && !pool.destroyed && pool.charged != 0;
}

bool TrimLocked(int device, uint64_t needed) {
  uint64_t spare = 0;
  for (const Pool& pool : g_memory.pools.list) spare += Askable(pool, device) ? Spare(pool) : 0;
  if (spare == 0 || spare < needed) return false;
  for (Pool& pool : g_memory.pools.list) {
    if (!Askable(pool, device)) continue;
    real::cuMemPoolTrimTo(pool.handle, 0);
    SettleLocked(pool);
  }
  return true;
}

// As charge.h's Record, for a caller that holds the pools' lock.
void RecordLocked(const Entry& entry) {
  Entry replaced;
  table().Insert(entry, &replaced);
  if (replaced.kind == HandleKind::kNone) return;
  if ((replaced.flags & kFromPool) != 0) {
    BlockFreedLocked(replaced);
  } else {
    RefundEntry(replaced);
  }
}

// As charge.h's Reserve, for a caller that holds the pools' lock: reserves what the pool may grow by when it needs
// `bytes` that it does not have.
bool ReserveStepsLocked(int device, uint64_t bytes, uint64_t* growth) {
  const uint64_t learnt = LearntGranularity(device, Grows::kPool, bytes);
  *growth = RoundUp(bytes, learnt != 0 ? learnt : kGuessedGranularity);
  if (TryReserve(device, *growth, Kind::kData)) return true;
  if (learnt != 0) return false;
  *growth = RoundUp(bytes, kLeastGranularity);
  return TryReserve(device, *growth, Kind::kData);
}

// What of the pool's spare memory the driver can surely use for the request.
uint64_t UsableLocked(const Pool& pool, const PoolRequest& request) {
  const uint64_t spare = Spare(pool);
  const uint64_t unreached = g_memory.pools.frees.Unreached(pool.id, request.name);
  return spare > unreached ? spare - unreached : 0;
}

// Reserves what the pool may grow by: nothing if what it can use is enough; else, with `whole`, as if it could use none
// of that, for it may be in pieces.
bool ReserveGrowthLocked(const PoolRequest& request, bool whole, uint64_t* growth) {
  *growth = 0;
  const Pool* const pool = FindLocked(request.pool);
  if (pool == nullptr) return false;
  const uint64_t usable = UsableLocked(*pool, request);
  const uint64_t bytes = Blocks(request.bytes);
  if (bytes <= usable) return true;
  // A pool that was trimmed to an odd size goes on to the end of the step that it is in.
  const uint64_t odd = pool->charged % kLeastGranularity;
  return ReserveStepsLocked(pool->device, bytes - (whole ? 0 : usable) + odd, growth);
}

uint64_t ExcessOver(uint64_t limit, int device, uint64_t bytes) {
  const uint64_t after = UsedBytes(device) + bytes;
  return after > limit ? after - limit : 0;
}

void SettleFreesLocked() {
  Waited proved;
  while (TakePassedFreeEvent(&proved)) {
    VmmReached(proved);
    g_memory.pools.frees.Reached(proved);
  }
  g_memory.pools.frees.AskStreams(&ContextLives);
}

// As ReserveGrowthLocked, after what this process holds without using has been given back, as far as that is needed.
bool ReclaimAndReserveLocked(const PoolRequest& request, int device, uint64_t* growth) {
  SettleFreesLocked();
  VmmSettleDescriptors();
  SettleAllLocked(device);
  if (ReserveGrowthLocked(request, true, growth)) return true;
  const uint64_t learnt = LearntGranularity(device, Grows::kPool, request.bytes);
  const uint64_t whole = RoundUp(request.bytes, learnt != 0 ? learnt : kLeastGranularity);
  const uint64_t limit = LimitBytes(device);
  for (bool graphs_trimmed = false; whole <= limit; graphs_trimmed = true) {
    if (TrimLocked(device, ExcessOver(limit, device, whole)) && ReserveGrowthLocked(request, true, growth)) return true;
    if (graphs_trimmed || !TrimGraphs(device)) break;
    if (ReserveGrowthLocked(request, true, growth)) return true;
  }
  return ReserveGrowthLocked(request, false, growth);
}

// What frees under way will give back to the device or to its pools, in whole steps: less than one may as well be a
// rest beside blocks that are in use.
uint64_t ComingLocked(int device) {
  uint64_t coming = 0;
  for (const Pool& pool : g_memory.pools.list) {
    if (!Askable(pool, device)) continue;
    const uint64_t spare = Spare(pool) / kLeastGranularity * kLeastGranularity;
    const uint64_t unreached = g_memory.pools.frees.Unreached(pool.id);
    coming += spare < unreached ? spare : unreached;
  }
  return coming;
}

// With oversubscription the request goes on as one for plain memory, and is refused there or not at all.
void PoolRefused(int device, uint64_t bytes) {
  if (!settings().oversubscribe) Refused(device, bytes);
}

struct Where {
  int device;
  bool on_host;
};
Where WhereIs(const CUmemLocation& location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return {kUnlimited, true};
  return {DeviceOfOrdinal(location.id), false};
}

enum class Room { kThere, kComing, kNone };
Room RoomLocked(const PoolRequest& request) {
  const Pool* const pool = FindLocked(request.pool);
  if (pool == nullptr || pool->device < 0) return Room::kNone;
  const uint64_t limit = LimitBytes(pool->device);
  const uint64_t excess = ExcessOver(limit, pool->device, request.bytes);
  if (request.bytes > limit) return Room::kNone;
  if (excess == 0 || Blocks(request.bytes) <= UsableLocked(*pool, request)) return Room::kThere;
  return ComingLocked(pool->device) >= excess ? Room::kComing : Room::kNone;
}

}  // namespace

Begun BeginPoolAllocation(const PoolRequest& request, uint64_t* growth) {
  if (request.out == nullptr || request.context.device == kUnlimited) return Begun::kUncounted;
  const RelaxedCapture relaxed;
  g_memory.pools.lock.Acquire();
  Pool* const pool = FindOrAddLocked(request.pool, request.context.device);
  if (pool == nullptr || pool->on_host) {
    g_memory.pools.lock.Release();
    return Begun::kUncounted;
  }
  SettleLocked(*pool);
  const int device = pool->device;
  if (ReserveGrowthLocked(request, true, growth) || (device >= 0 && ReclaimAndReserveLocked(request, device, growth))) {
    return Begun::kReserved;
  }
  g_memory.pools.lock.Release();
  return Begun::kNoRoom;
}

bool AwaitFrees(const PoolRequest& request) {
  const int64_t begin = region::MonotonicNanos();
  if (begin < g_memory.pools.no_wait_before.load(std::memory_order_relaxed)) return false;
  for (int64_t nap = kShortestNap;; nap = nap < kLongestNap / 2 ? nap * 2 : kLongestNap) {
    {
      const Asking asking;
      g_memory.pools.frees.AskStreams(&ContextLives);
      const Room room = RoomLocked(request);
      if (room != Room::kComing) return room == Room::kThere;
      TrimLocked(FindLocked(request.pool)->device, 0);  // how the driver is asked
    }
    const int64_t now = region::MonotonicNanos();
    if (now - begin > kPatience) {
      g_memory.pools.no_wait_before.store(now + kPause, std::memory_order_relaxed);
      return false;
    }
    region::SleepNanos(nap);
  }
}

CUresult RefusePoolAllocation(const PoolRequest& request) {
  int device = request.context.device;
  {
    const Locked locked(g_memory.pools.lock);
    if (const Pool* const pool = FindLocked(request.pool); pool != nullptr) device = pool->device;
  }
  PoolRefused(device, request.bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool EndPoolAllocation(const PoolRequest& request, uint64_t growth, CUresult result) {
  const RelaxedCapture relaxed;
  // Trimming while reserving may have moved or changed the record: look again.
  Pool* const pool = FindLocked(request.pool);
  bool fits = true;
  if (pool == nullptr) {
    Refund(request.context.device, growth, Kind::kData);
  } else {
    if (result == CUDA_SUCCESS) pool->live += request.bytes;
    if (pool->charged == 0) g_memory.pools.frees.ForgetPool(pool->id);  // nothing was unused, so nothing is under way
    const uint64_t reserved = Reserved(*pool);
    // The block's whole size is taken for what the pool lacked: it may have had room that it could not use.
    if (result == CUDA_SUCCESS && reserved > pool->charged) {
      LearnGranularity(pool->device, Grows::kPool, request.bytes, reserved - pool->charged);
    }
    const uint64_t granted = pool->charged + growth;
    pool->charged = granted;
    if (reserved > granted) {
      fits = TryReserve(pool->device, reserved - granted, Kind::kData);
      if (fits) pool->charged = reserved;
    }
    if (fits) SetChargedLocked(*pool, reserved);
    if (result == CUDA_SUCCESS && fits) {
      Entry entry;
      entry.key = *request.out;
      entry.bytes = request.bytes;
      entry.extra = pool->id;
      entry.kind = HandleKind::kPointer;
      entry.flags = kFromPool;
      entry.device = static_cast<int8_t>(pool->device);
      RecordLocked(entry);
    }
    if (result == CUDA_SUCCESS && !fits) {
      pool->live -= request.bytes;
      g_memory.pools.frees.Begin(pool->id, Blocks(request.bytes));
    }
  }
  g_memory.pools.lock.Release();
  return fits || result != CUDA_SUCCESS;
}

void AfterPoolUndo(const PoolRequest& request) {
  const RelaxedCapture relaxed;
  {
    const Locked locked(g_memory.pools.lock);
    if (const Pool* const pool = FindLocked(request.pool); pool != nullptr) {
      g_memory.pools.frees.End(pool->id, Blocks(request.bytes), request.name, request.stream, true);
    }
  }
  real::cuMemPoolTrimTo(request.pool, 0);
  SettlePools(request.context.device);
  PoolRefused(request.context.device, request.bytes);
}

void PoolCreated(CUmemoryPool handle, const CUmemPoolProps& props) {
  const Where where = WhereIs(props.location);
  const Locked locked(g_memory.pools.lock);
  AddLocked(handle, where.device, where.on_host);
}

void PoolMet(CUmemoryPool handle, const CUmemLocation& location) {
  const Where where = WhereIs(location);
  const Locked locked(g_memory.pools.lock);
  if (FindLocked(handle) == nullptr) AddLocked(handle, where.device, where.on_host);
}

void PoolDestroying(CUmemoryPool handle) {
  const Asking asking;
  Pool* const pool = FindLocked(handle);
  if (pool == nullptr || pool->on_host) return;
  real::cuMemPoolTrimTo(handle, 0);
  SettleLocked(*pool);
  if (pool->charged == 0) g_memory.pools.frees.ForgetPool(pool->id);
}

void PoolDestroyed(CUmemoryPool handle) {
  const Asking asking;
  if (Pool* const pool = FindLocked(handle); pool != nullptr) pool->destroyed = true;
  SettleAllLocked(kAllDevices);
}

void PoolBlockFreed(const Entry& entry) {
  const Locked locked(g_memory.pools.lock);
  BlockFreedLocked(entry);
  g_memory_flags.pools_may_shrink.store(true, std::memory_order_relaxed);
}

bool SettlePools(int device) {
  if (g_memory.pools.list.size() == 0) return true;
  const Asking asking;
  return SettleAllLocked(device);
}

void PoolFreeBegins(const Entry& entry) {
  const Locked locked(g_memory.pools.lock);
  g_memory.pools.frees.Begin(entry.extra, Blocks(entry.bytes));
}

void PoolFreeEnds(const Entry& entry, const StreamId& stream, CUstream handle, bool freed) {
  const Locked locked(g_memory.pools.lock);
  g_memory.pools.frees.End(entry.extra, Blocks(entry.bytes), stream, handle, freed);
}

void PoolsSynchronised(const Waited& waited) {
  if (g_memory.pools.list.size() == 0) return;
  const Asking asking;
  g_memory.pools.frees.Reached(waited);
  SettleAllLocked(kAllDevices);
}

void PoolsLoseStream(CUstream stream) {
  if (g_memory.pools.list.size() == 0) return;
  const Locked locked(g_memory.pools.lock);
  g_memory.pools.frees.ForgetStream(stream);
}

void PoolsLeaveEnding() { const Locked locked(g_memory.pools.lock); }

void SettleFrees() {
  const Asking asking;
  SettleFreesLocked();
}

void PoolsLostContext(CUcontext context) {
  if (g_memory.pools.list.size() == 0) return;
  const Asking asking;
  g_memory.pools.frees.ForgetContext(context);
  SettleAllLocked(kAllDevices);
}

bool TrimPools(int device, uint64_t needed) {
  if (g_memory.pools.list.size() == 0) return false;
  const Asking asking;
  return TrimLocked(device, needed);
}

void PoolBook::Reset() {
  lock.Reset();
  frees.Reset();
  no_wait_before.store(0, std::memory_order_relaxed);
  list.Clear();
  g_memory_flags.pools_may_shrink.store(false, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
