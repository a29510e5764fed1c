// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/pools.h"

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/graphs.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/pages.h"
#include "vgpu/policy/steps.h"

namespace hami::vgpu {

constinit std::atomic<bool> g_pools_may_shrink{false};

namespace {

struct Pool {
  CUmemoryPool handle;
  uint64_t id;  // the handle of a destroyed pool may be another one's soon
  int device;
  uint64_t charged;  // what the region holds for it
  uint64_t live;     // bytes of blocks that are out
  uint64_t leaving;  // bytes freed since the last synchronisation: their stream may not have got there
  bool on_host;
  bool destroyed;
  bool left_on_many = false;   // streams
  CUstream left_on = nullptr;  // the one on which `leaving` was freed
};

constinit Lock g_lock{};
constinit Growing<Pool> g_pools{};
constinit uint64_t g_next_id = 1;

uint64_t Attribute(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t otherwise) {
  cuuint64_t value = 0;
  return real::cuMemPoolGetAttribute(pool, attribute, &value) == CUDA_SUCCESS ? value : otherwise;
}

uint64_t Reserved(const Pool& pool) { return Attribute(pool.handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, pool.live); }

uint64_t InUse(const Pool& pool) { return Attribute(pool.handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool.live); }

Pool* FindLocked(CUmemoryPool handle) {
  for (Pool& pool : g_pools) {
    if (pool.handle == handle && !pool.destroyed) return &pool;
  }
  return nullptr;
}

Pool* FindIdLocked(uint64_t id) {
  for (Pool& pool : g_pools) {
    if (pool.id == id) return &pool;
  }
  return nullptr;
}

Pool* AddLocked(CUmemoryPool handle, int device, bool on_host) {
  Pool* const pool = g_pools.Add();
  if (pool != nullptr) *pool = {handle, g_next_id++, device, 0, 0, 0, on_host, false};
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
  pool->leaving += entry.bytes;
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
  } else if (pool.live == 0 && pool.leaving == 0) {
    SetChargedLocked(pool, 0);  // a destroyed pool can not be asked any more; its last frees have been reached
  }
}

bool SettleAllLocked(int device) {
  bool may_shrink = false;
  bool known = true;
  for (size_t i = g_pools.size(); i-- > 0;) {
    Pool& pool = g_pools[i];
    if (device == kAllDevices || pool.device == device) SettleLocked(pool);
    may_shrink = may_shrink || pool.charged > pool.live;
    known = known && (!pool.destroyed || pool.charged == 0);
    if (pool.destroyed && pool.charged == 0) g_pools.Remove(&pool);
  }
  g_pools_may_shrink.store(may_shrink, std::memory_order_relaxed);
  return known;
}

bool TrimLocked(int device, uint64_t needed) {
  uint64_t spare = 0;
  for (const Pool& pool : g_pools) {
    if (pool.device != device || pool.on_host || pool.destroyed || pool.charged == 0) continue;
    const uint64_t in_use = InUse(pool);
    spare += pool.charged > in_use ? pool.charged - in_use : 0;
  }
  if (spare == 0 || spare < needed) return false;
  for (Pool& pool : g_pools) {
    if (pool.device != device || pool.on_host || pool.destroyed) continue;
    real::cuMemPoolTrimTo(pool.handle, 0);
    SettleLocked(pool);
  }
  return true;
}

// As charge.h's Record, for a caller that holds the pools' lock.
void RecordLocked(const Entry& entry) {
  Entry replaced;
  table().Insert(entry, &replaced);
  if (replaced.space == Space::kNone) return;
  if ((replaced.flags & kFromPool) != 0) {
    BlockFreedLocked(replaced);
  } else {
    RefundEntry(replaced);
  }
}

// As charge.h's Reserve, for a caller that holds the pools' lock: reserves what the pool may grow by when it needs
// `bytes` that it does not have.
bool ReserveStepsLocked(int device, uint64_t bytes, uint64_t* growth) {
  const uint64_t learnt = LearntStep(device, Grows::kPool, bytes);
  *growth = RoundUp(bytes, learnt != 0 ? learnt : kGuessedStep);
  if (TryReserve(device, *growth, Kind::kData)) return true;
  if (learnt != 0) return false;
  *growth = RoundUp(bytes, kLeastStep);
  return TryReserve(device, *growth, Kind::kData);
}

// Tried in this order: as if nothing spare could be used, with the part that is surely spare, with what is spare if the
// frees under way have been reached, and after trimming. Whether the third was right is only known after the driver's
// call.
bool ReserveGrowthLocked(const Pool& pool, uint64_t bytes, uint64_t spare, uint64_t* growth) {
  const int device = pool.device;
  const uint64_t sure = spare > pool.leaving ? spare - pool.leaving : 0;
  *growth = 0;
  if (bytes <= sure || ReserveStepsLocked(device, bytes, growth)) return true;
  if (device < 0) return false;
  SettleAllLocked(device);
  if (ReserveStepsLocked(device, bytes, growth)) return true;
  *growth = 0;
  if (bytes <= spare || ReserveStepsLocked(device, bytes - spare, growth)) return true;
  const uint64_t learnt = LearntStep(device, Grows::kPool, bytes);
  const uint64_t whole = RoundUp(bytes, learnt != 0 ? learnt : kLeastStep);
  const uint64_t limit = LimitBytes(device);
  const uint64_t used = UsedBytes(device);
  const uint64_t excess = used + whole > limit ? used + whole - limit : 0;
  if (whole > limit) return false;
  if (TrimLocked(device, excess) && ReserveStepsLocked(device, bytes, growth)) return true;
  return TrimGraphs(device) && ReserveStepsLocked(device, bytes, growth);
}

}  // namespace

CUresult BeginPoolAllocation(const PoolRequest& request, uint64_t* growth, bool* counted) {
  *growth = 0;
  *counted = false;
  if (request.out == nullptr || request.place.device == kUnlimited) return CUDA_SUCCESS;
  // Recorded into a graph: nothing is allocated now, and the graph's memory is charged when it is launched.
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (real::cuStreamIsCapturing(request.stream, &capture) == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return CUDA_SUCCESS;
  }
  g_lock.Acquire();
  Pool* const pool = FindOrAddLocked(request.pool, request.place.device);
  if (pool == nullptr || pool->on_host) {
    g_lock.Release();
    return CUDA_SUCCESS;
  }
  SettleLocked(*pool);
  const uint64_t in_use = InUse(*pool);
  const uint64_t spare = pool->charged > in_use ? pool->charged - in_use : 0;
  const int device = pool->device;
  if (!ReserveGrowthLocked(*pool, request.bytes, spare, growth)) {
    g_lock.Release();
    Refused(device, request.bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *counted = true;
  return CUDA_SUCCESS;
}

bool EndPoolAllocation(const PoolRequest& request, uint64_t growth, CUresult result) {
  // Trimming while reserving may have moved or changed the record: look again.
  Pool* const pool = FindLocked(request.pool);
  bool fits = true;
  if (pool == nullptr) {
    Refund(request.place.device, growth, Kind::kData);
  } else {
    if (result == CUDA_SUCCESS) pool->live += request.bytes;
    // Nothing is unused, so nothing is leaving either.
    if (pool->charged == 0) pool->leaving = 0;
    const uint64_t reserved = Reserved(*pool);
    // The block's whole size is taken for what the pool lacked: it may have had room that it could not use.
    if (result == CUDA_SUCCESS && reserved > pool->charged) {
      LearnStep(pool->device, Grows::kPool, request.bytes, reserved - pool->charged);
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
      entry.space = Space::kPointer;
      entry.flags = kFromPool;
      entry.device = static_cast<int8_t>(pool->device);
      RecordLocked(entry);
    }
    if (result == CUDA_SUCCESS && !fits) pool->live -= request.bytes;
  }
  g_lock.Release();
  return fits || result != CUDA_SUCCESS;
}

void AfterPoolUndo(const PoolRequest& request) {
  real::cuMemPoolTrimTo(request.pool, 0);
  SettlePools(request.place.device);
  Refused(request.place.device, request.bytes);
}

void PoolCreated(CUmemoryPool handle, const CUmemPoolProps& props) {
  const bool on_host = props.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
  const int device = on_host ? kUnlimited : DeviceOfOrdinal(props.location.id);
  const Locked locked(g_lock);
  AddLocked(handle, device, on_host);
}

void PoolDestroyed(CUmemoryPool handle) {
  const Locked locked(g_lock);
  if (Pool* const pool = FindLocked(handle); pool != nullptr) pool->destroyed = true;
  SettleAllLocked(kAllDevices);
}

void PoolBlockFreed(const Entry& entry) {
  const Locked locked(g_lock);
  BlockFreedLocked(entry);
  g_pools_may_shrink.store(true, std::memory_order_relaxed);
}

bool SettlePools(int device) {
  if (g_pools.size() == 0) return true;
  const Locked locked(g_lock);
  return SettleAllLocked(device);
}

void PoolFreedOn(const Entry& entry, CUstream stream) {
  const Locked locked(g_lock);
  Pool* const pool = FindIdLocked(entry.extra);
  if (pool == nullptr) return;
  pool->left_on_many = pool->leaving != 0 && (pool->left_on_many || pool->left_on != stream);
  pool->left_on = stream;
}

void PoolsSynchronised(int drained, const CUstream* stream) {
  if (g_pools.size() == 0) return;
  const Locked locked(g_lock);
  for (Pool& pool : g_pools) {
    const bool reached = stream != nullptr && !pool.left_on_many && pool.left_on == *stream;
    if (!pool.destroyed || pool.device == drained || reached) pool.leaving = 0;
  }
  SettleAllLocked(kAllDevices);
}

bool TrimPools(int device, uint64_t needed) {
  if (g_pools.size() == 0) return false;
  const Locked locked(g_lock);
  return TrimLocked(device, needed);
}

void ResetPools() {
  g_lock.Reset();
  g_pools.Clear();
  g_pools_may_shrink.store(false, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
