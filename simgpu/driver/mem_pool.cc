// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/mem_pool.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "simgpu/driver/ipc.h"
#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

struct PerDevice {
  Pool* standard = nullptr;
  Pool* current = nullptr;
  Pool* graph = nullptr;
};

// The lock comes before the memory lock.
struct Pools {
  std::mutex lock;
  std::unordered_set<const void*> handles;  // what an application may name
  std::vector<Pool*> all;                   // also destroyed ones that still hold memory, and graph pools
  PerDevice devices[kMaxDevices];
};

Pools& ThePools() {
  static Pools& pools = *new Pools;
  return pools;
}

using PoolLock = std::lock_guard<std::mutex>;

// Something was freed or a threshold was lowered since the pools were last trimmed.
constinit std::atomic<bool> g_dirty{false};

std::uint64_t Taken(const Pool& pool) { return pool.used + pool.pending; }

// What the pool grows and is trimmed by.
std::uint64_t StepOf(const Pool& pool) { return pool.device->spec->profile.pool_step_bytes; }

void SetReserved(Pool& pool, std::uint64_t bytes) {
  if (bytes < pool.reserved) Machine::Get().Refund(pool.device->machine, pool.reserved - bytes, Use::kData);
  pool.reserved = bytes;
  pool.reserved_high = std::max(pool.reserved_high, bytes);
}

bool ReclaimLocked(int machine) {
  bool any = false;
  for (Pool* pool : ThePools().all) {
    if (pool->device->machine != machine || pool->reserved == Taken(*pool)) continue;
    SetReserved(*pool, Taken(*pool));
    any = true;
  }
  return any;
}

// Down to the chunks in use, but not below `keep`. Compared before rounding: `keep` may be UINT64_MAX.
void TrimLocked(Pool& pool, std::uint64_t keep) {
  if (keep >= pool.reserved) return;
  const std::uint64_t target = std::max<std::uint64_t>(keep, RoundUp(Taken(pool), StepOf(pool)));
  if (target < pool.reserved) SetReserved(pool, target);
}

// Makes room for `bytes` more.
bool GrowLocked(Pool& pool, std::uint64_t bytes) {
  const std::uint64_t limit = pool.props.maxSize;
  if (limit != 0 && Taken(pool) + bytes > RoundUp(limit, kGranule)) return false;
  if (Taken(pool) + bytes <= pool.reserved) return true;
  Machine& machine = Machine::Get();
  const int dev = pool.device->machine;
  const auto grow_to = [&](std::uint64_t reserved) {
    if (!machine.Charge(dev, reserved - pool.reserved, Use::kData)) return false;
    SetReserved(pool, reserved);
    return true;
  };
  if (grow_to(RoundUp(Taken(pool) + bytes, StepOf(pool)))) return true;
  ReclaimLocked(dev);
  // Near the end a whole chunk may not fit where the request does.
  return grow_to(RoundUp(Taken(pool) + bytes, StepOf(pool))) || grow_to(Taken(pool) + bytes);
}

void AddUsed(Pool& pool, std::uint64_t bytes) {
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
}

void DeleteIfDone(Pool* pool) {
  if (!pool->destroyed || pool->allocations > 0) return;
  SetReserved(*pool, 0);
  std::erase(ThePools().all, pool);
  delete pool;
}

Pool* MakeLocked(PoolKind kind, const Device& device, const CUmemPoolProps& props) {
  auto* pool = new Pool;
  pool->kind = kind;
  pool->device = &device;
  pool->props = props;
  pool->access[device.ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (kind == PoolKind::kGraph) pool->threshold = UINT64_MAX;
  ThePools().all.push_back(pool);
  if (kind != PoolKind::kGraph) ThePools().handles.insert(pool);
  return pool;
}

PerDevice& NeedLocked(int ordinal) {
  PerDevice& device = ThePools().devices[ordinal];
  if (device.standard == nullptr) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = ordinal;
    device.standard = device.current = MakeLocked(PoolKind::kDefault, *FindDevice(ordinal), props);
    device.graph = MakeLocked(PoolKind::kGraph, *FindDevice(ordinal), props);
  }
  return device;
}

// What `stream` freed and may have again, as far as `bytes` are needed.
std::uint64_t Reusable(const Pool& pool, std::uint64_t stream, std::uint64_t bytes) {
  std::uint64_t sum = 0;
  for (const Freed& freed : pool.freed) sum += freed.stream == stream ? freed.bytes : 0;
  return std::min(sum, bytes);
}

void Reuse(Pool& pool, std::uint64_t stream, std::uint64_t bytes) {
  pool.pending -= bytes;
  for (Freed& freed : pool.freed) {
    if (freed.stream != stream) continue;
    const std::uint64_t taken = std::min(freed.bytes, bytes);
    freed.bytes -= taken;
    bytes -= taken;
  }
}

// The stream got there, or ended.
void Reached(Pool& pool, CUdeviceptr base) {
  const auto found = std::find_if(pool.freed.begin(), pool.freed.end(), [&](const Freed& f) { return f.base == base; });
  if (found == pool.freed.end()) return;
  pool.pending -= found->bytes;
  pool.freed.erase(found);
}

std::uint64_t Rounded(const Allocation& allocation) { return RoundUp(allocation.size, kAllocationUnit); }

}  // namespace

Pool* FindPool(CUmemoryPool handle) {
  Pools& pools = ThePools();
  const PoolLock guard(pools.lock);
  return pools.handles.count(handle) != 0 ? reinterpret_cast<Pool*>(handle) : nullptr;
}

Pool* DefaultPool(int ordinal) {
  const PoolLock guard(ThePools().lock);
  return NeedLocked(ordinal).standard;
}

Pool* CurrentPool(int ordinal) {
  const PoolLock guard(ThePools().lock);
  return NeedLocked(ordinal).current;
}

Pool* GraphPool(int ordinal) {
  const PoolLock guard(ThePools().lock);
  return NeedLocked(ordinal).graph;
}

CUresult SetCurrentPool(int ordinal, Pool* pool) {
  const PoolLock guard(ThePools().lock);
  if (pool->kind == PoolKind::kImported || pool->device->ordinal != ordinal) return CUDA_ERROR_INVALID_VALUE;
  NeedLocked(ordinal).current = pool;
  return CUDA_SUCCESS;
}

Pool* CreatePool(PoolKind kind, const Device& device, const CUmemPoolProps& props) {
  const PoolLock guard(ThePools().lock);
  return MakeLocked(kind, device, props);
}

CUresult DestroyPool(Pool* pool) {
  Pools& pools = ThePools();
  const PoolLock guard(pools.lock);
  if (pool->kind == PoolKind::kDefault) return CUDA_ERROR_INVALID_VALUE;
  if (pools.handles.erase(pool) == 0) return CUDA_ERROR_INVALID_VALUE;
  PerDevice& device = NeedLocked(pool->device->ordinal);
  if (device.current == pool) device.current = device.standard;
  pool->destroyed = true;
  DeleteIfDone(pool);
  return CUDA_SUCCESS;
}

CUresult PoolAlloc(Pool& pool, std::size_t size, std::uint64_t stream, CUdeviceptr* out) {
  if (!Plausible(size)) return size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t rounded = RoundUp(size, kAllocationUnit);
  const PoolLock guard(ThePools().lock);
  const std::uint64_t reused = Reusable(pool, stream, rounded);
  if (!GrowLocked(pool, rounded - reused)) return CUDA_ERROR_OUT_OF_MEMORY;
  const MemLock held = LockMemory();
  Allocation* made = NewLocked(pool.device->machine, size, MemKind::kAsync, held);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->pool = &pool;
  Reuse(pool, stream, reused);
  AddUsed(pool, rounded);
  ++pool.allocations;
  *out = made->base;
  return CUDA_SUCCESS;
}

CUresult ImportPoolPointer(const Ticket& ticket, Pool& pool, CUdeviceptr* out) {
  const PoolLock guard(ThePools().lock);
  SIMGPU_TRY(OpenTicket(ticket, kTicketPool, MemKind::kPoolImport, nullptr, &pool, out));
  ++pool.allocations;
  return CUDA_SUCCESS;
}

bool HasPending(int machine) {
  Pools& pools = ThePools();
  const PoolLock guard(pools.lock);
  return std::any_of(pools.all.begin(), pools.all.end(),
                     [&](const Pool* pool) { return pool->device->machine == machine && pool->pending > 0; });
}

CUresult MarkFreed(CUdeviceptr base, std::uint64_t stream) {
  const PoolLock guard(ThePools().lock);
  const MemLock held = LockMemory();
  Allocation* found = FindBase(base, held);
  if (found == nullptr || !found->in_use) return CUDA_ERROR_INVALID_VALUE;
  if (found->kind != MemKind::kAsync && found->kind != MemKind::kDevice && found->kind != MemKind::kPoolImport) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  found->in_use = false;
  if (found->kind == MemKind::kAsync) {
    found->pool->used -= Rounded(*found);
    found->pool->pending += Rounded(*found);
    found->pool->freed.push_back({base, stream, Rounded(*found)});
  }
  return CUDA_SUCCESS;
}

void ReleaseFreed(CUdeviceptr base) {
  Range range;
  // The range may have gone with its context, and its address may live again.
  if (FindRange(base, &range) && range.base == base && !range.in_use) Destroy(base);
}

void LeavePool(const Allocation& allocation) {
  const PoolLock guard(ThePools().lock);
  Pool& pool = *allocation.pool;
  const bool freed = allocation.kind == MemKind::kAsync && !allocation.in_use;
  const bool in_use =
      allocation.kind == MemKind::kAsync || (allocation.kind == MemKind::kGraph && allocation.backings > 0);
  if (freed) {
    Reached(pool, allocation.base);
  } else if (in_use) {
    pool.used -= Rounded(allocation);
  }
  --pool.allocations;
  g_dirty.store(true, std::memory_order_relaxed);
  DeleteIfDone(&pool);
}

void TrimPoolsAtSync(int ordinal) {
  if (!g_dirty.load(std::memory_order_relaxed)) return;
  Pools& pools = ThePools();
  const PoolLock guard(pools.lock);
  if (ordinal < 0) g_dirty.store(false, std::memory_order_relaxed);
  for (Pool* pool : pools.all) {
    if (ordinal < 0 || pool->device->ordinal == ordinal) TrimLocked(*pool, pool->threshold);
  }
}

bool ReclaimPools(int machine) {
  const PoolLock guard(ThePools().lock);
  return ReclaimLocked(machine);
}

void DropPoolMemory(int ordinal) {
  const Device& device = *FindDevice(ordinal);
  std::vector<CUdeviceptr> lost;
  {
    const MemLock held = LockMemory();
    if (const Arena* arena = ArenaOf(device.machine, held)) {
      arena->ForEach([&](const Allocation* allocation) {
        if (allocation->kind == MemKind::kAsync || allocation->kind == MemKind::kGraph)
          lost.push_back(allocation->base);
      });
    }
  }
  for (const CUdeviceptr base : lost) Destroy(base);
  ReclaimPools(device.machine);
}

void TrimPool(Pool& pool, std::uint64_t keep) {
  const PoolLock guard(ThePools().lock);
  TrimLocked(pool, keep);
}

void SetPoolAccess(Pool& pool, int ordinal, CUmemAccess_flags flags) {
  const PoolLock guard(ThePools().lock);
  pool.access[ordinal] = flags;
}

CUmemAccess_flags PoolAccess(Pool& pool, int ordinal) {
  const PoolLock guard(ThePools().lock);
  return static_cast<CUmemAccess_flags>(pool.access[ordinal]);
}

CUresult GetPoolAttribute(Pool& pool, CUmemPool_attribute attribute, void* value) {
  const PoolLock guard(ThePools().lock);
  auto* number = static_cast<int*>(value);
  auto* bytes = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *number = pool.reuse[0];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *number = pool.reuse[1];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *number = pool.reuse[2];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *bytes = pool.threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *bytes = pool.reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *bytes = pool.reserved_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *bytes = pool.used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *bytes = pool.used_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetPoolAttribute(Pool& pool, CUmemPool_attribute attribute, const void* value) {
  const PoolLock guard(ThePools().lock);
  const auto flag = [&](int& target) {
    const int wanted = *static_cast<const int*>(value);
    if (wanted != 0 && wanted != 1) return CUDA_ERROR_INVALID_VALUE;
    target = wanted;
    return CUDA_SUCCESS;
  };
  // A watermark can be reset to zero only, which means: to what is there now.
  const auto reset = [&](std::uint64_t& high, std::uint64_t current) {
    if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    high = current;
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return flag(pool.reuse[0]);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return flag(pool.reuse[1]);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return flag(pool.reuse[2]);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool.threshold = *static_cast<const cuuint64_t*>(value);
      g_dirty.store(true, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return reset(pool.reserved_high, pool.reserved);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return reset(pool.used_high, pool.used);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// --- graph memory ---------------------------------------------------------------------------------------------------

CUresult GraphReserve(int ordinal, std::size_t size, CUdeviceptr* out) {
  if (!Plausible(size)) return size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  const PoolLock guard(ThePools().lock);
  Pool* pool = NeedLocked(ordinal).graph;
  const MemLock held = LockMemory();
  Allocation* made = NewLocked(pool->device->machine, size, MemKind::kGraph, held);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->pool = pool;
  ++pool->allocations;
  *out = made->base;
  return CUDA_SUCCESS;
}

CUresult GraphBack(CUdeviceptr base) {
  const PoolLock guard(ThePools().lock);
  Pool* pool = nullptr;
  std::uint64_t bytes = 0;
  {
    const MemLock held = LockMemory();
    Allocation* found = FindBase(base, held);
    if (found == nullptr || found->kind != MemKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
    if (found->backings > 0) {
      ++found->backings;
      return CUDA_SUCCESS;
    }
    pool = found->pool;
    bytes = Rounded(*found);
  }
  if (!GrowLocked(*pool, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  AddUsed(*pool, bytes);
  const MemLock held = LockMemory();
  if (Allocation* found = FindBase(base, held)) ++found->backings;
  return CUDA_SUCCESS;
}

void GraphUnback(CUdeviceptr base) {
  {
    const PoolLock guard(ThePools().lock);
    const MemLock held = LockMemory();
    Allocation* found = FindBase(base, held);
    if (found == nullptr || found->kind != MemKind::kGraph || found->backings == 0) return;
    if (--found->backings > 0) return;
    found->pool->used -= Rounded(*found);
    if (!found->orphan) return;
  }
  Destroy(base);
}

void GraphOwe(CUdeviceptr base) {
  const MemLock held = LockMemory();
  if (Allocation* found = FindBase(base, held)) found->owed = true;
}

bool GraphIsOwed(CUdeviceptr base) {
  const MemLock held = LockMemory();
  const Allocation* found = FindBase(base, held);
  return found != nullptr && found->owed;
}

bool GraphSettle(CUdeviceptr base) {
  const MemLock held = LockMemory();
  Allocation* found = FindBase(base, held);
  return found != nullptr && std::exchange(found->owed, false);
}

void GraphUnreserve(CUdeviceptr base) {
  {
    const MemLock held = LockMemory();
    Allocation* found = FindBase(base, held);
    if (found == nullptr || found->kind != MemKind::kGraph) return;
    found->orphan = found->backings > 0;
    if (found->orphan) return;
  }
  Destroy(base);
}

bool IsGraphMemory(CUdeviceptr base) {
  const MemLock held = LockMemory();
  const Allocation* found = FindBase(base, held);
  return found != nullptr && found->kind == MemKind::kGraph;
}

}  // namespace simgpu
