// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/pools.h"

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/pages.h"

namespace hami::vgpu {

constinit std::atomic<bool> g_pools_may_shrink{false};

namespace {

// Pools grow by multiples of this.
constexpr uint64_t kGrowth = uint64_t{2} << 20;

struct Pool {
  CUmemoryPool handle;
  int device;
  uint64_t charged;  // what the region holds for it
  uint64_t live;     // bytes of blocks that are out
  uint64_t leaving;  // bytes freed since the last synchronisation: their stream may not have got there
  bool on_host;
  bool destroyed;
};

constinit Lock g_lock{};
constinit Growing<Pool> g_pools{};

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

Pool* FindOrAddLocked(CUmemoryPool handle, int device) {
  Pool* pool = FindLocked(handle);
  if (pool != nullptr) return pool;
  pool = g_pools.Add();
  if (pool != nullptr) *pool = {handle, device, 0, 0, 0, false, false};
  return pool;
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
  } else if (pool.live == 0) {
    SetChargedLocked(pool, 0);
  }
}

void SettleAllLocked(int device) {
  bool may_shrink = false;
  for (size_t i = g_pools.size(); i-- > 0;) {
    Pool& pool = g_pools[i];
    if (device == kAllDevices || pool.device == device) SettleLocked(pool);
    may_shrink = may_shrink || pool.charged > pool.live;
    if (pool.destroyed && pool.charged == 0) g_pools.Remove(&pool);
  }
  g_pools_may_shrink.store(may_shrink, std::memory_order_relaxed);
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

// As charge.h's Reserve, for a caller that holds the pools' lock: reserves what the pool may grow by. Tried in this
// order: as if nothing spare could be used, with the part that is surely spare, after trimming, and at last with what
// is spare if the frees under way have been reached. Whether the last two were right is only known after the driver's
// call.
bool ReserveGrowthLocked(const Pool& pool, uint64_t bytes, uint64_t spare, uint64_t* growth) {
  const int device = pool.device;
  const uint64_t sure = spare > pool.leaving ? spare - pool.leaving : 0;
  *growth = bytes > sure ? RoundUp(bytes, kGrowth) : 0;
  if (*growth == 0 || TryReserve(device, *growth, Kind::kData)) return true;
  if (device < 0) return false;
  const uint64_t whole = *growth;
  SettleAllLocked(device);
  if (TryReserve(device, whole, Kind::kData)) return true;
  *growth = bytes > spare ? RoundUp(bytes - spare, kGrowth) : 0;
  if (*growth == 0 || TryReserve(device, *growth, Kind::kData)) return true;
  *growth = whole;
  const uint64_t limit = LimitBytes(device);
  const uint64_t used = UsedBytes(device);
  const uint64_t excess = used + whole > limit ? used + whole - limit : 0;
  return whole <= limit && TrimLocked(device, excess) && TryReserve(device, whole, Kind::kData);
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
      entry.extra = KeyOf(request.pool);
      entry.space = Space::kPointer;
      entry.flags = kFromPool;
      entry.device = static_cast<int8_t>(pool->device);
      table().Insert(entry);
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
  Pool* const pool = g_pools.Add();
  if (pool != nullptr) *pool = {handle, device, 0, 0, 0, on_host, false};
}

void PoolDestroyed(CUmemoryPool handle) {
  const Locked locked(g_lock);
  if (Pool* const pool = FindLocked(handle); pool != nullptr) pool->destroyed = true;
  SettleAllLocked(kAllDevices);
}

void PoolBlockFreed(const Entry& entry) {
  const Locked locked(g_lock);
  for (Pool& pool : g_pools) {
    if (KeyOf(pool.handle) != entry.extra) continue;
    pool.live -= entry.bytes < pool.live ? entry.bytes : pool.live;
    pool.leaving += entry.bytes;
    break;
  }
  g_pools_may_shrink.store(true, std::memory_order_relaxed);
}

void SettlePools(int device) {
  if (g_pools.size() == 0) return;
  const Locked locked(g_lock);
  SettleAllLocked(device);
}

void PoolsSynchronised() {
  const Locked locked(g_lock);
  for (Pool& pool : g_pools) pool.leaving = 0;
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
