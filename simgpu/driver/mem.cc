// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/mem.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

// Addresses cost nothing, and a wide arena never runs out of holes of the right size.
constexpr std::size_t kArenaBytes = std::size_t{1} << 40;
constexpr std::size_t kLeastArenaBytes = std::size_t{64} << 20;
// What one simulated host can pin, or hold of managed memory, for one process.
constexpr std::size_t kHostBytes = std::size_t{1} << 39;

struct Tables {
  std::mutex lock;
  Arena* arenas[kMaxDevices + 1] = {};         // [0] host, [1 + machine] devices
  std::map<CUdeviceptr, Allocation*> outside;  // by base; ranges do not overlap
  std::uint64_t next_id = 1;
};

Tables& TheTables() {
  static Tables& tables = *new Tables;
  return tables;
}

constinit std::atomic<std::size_t> g_host_bytes{0};

Arena* NeedArena(int machine) {
  Arena*& arena = TheTables().arenas[machine + 1];
  if (arena == nullptr) {
    auto* made = new Arena;
    if (!made->Create(kArenaBytes, kLeastArenaBytes, machine >= 0)) {
      delete made;
      return nullptr;
    }
    arena = made;
  }
  return arena;
}

Use UseOf(MemKind kind) { return kind == MemKind::kModule ? Use::kModule : Use::kData; }

bool InArena(MemKind kind) {
  switch (kind) {
    case MemKind::kDevice:
    case MemKind::kModule:
    case MemKind::kArray:
    case MemKind::kPhysical:
    case MemKind::kAsync:
    case MemKind::kGraph:
    case MemKind::kManaged:
    case MemKind::kHost:
      return true;
    default:
      return false;
  }
}

}  // namespace

MemLock LockMemory() { return MemLock(TheTables().lock); }

std::size_t RoundUp(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

bool Plausible(std::size_t size) { return size > 0 && size <= kArenaBytes; }

Allocation* FindLocked(CUdeviceptr address, const MemLock&) {
  Tables& tables = TheTables();
  for (Arena* arena : tables.arenas) {
    if (arena != nullptr && arena->Contains(address)) return arena->Find(address);
  }
  auto next = tables.outside.upper_bound(address);
  if (next == tables.outside.begin()) return nullptr;
  Allocation* found = std::prev(next)->second;
  return address - found->base < found->size ? found : nullptr;
}

Allocation* FindBase(CUdeviceptr base, const MemLock& held) {
  Allocation* found = FindLocked(base, held);
  return found != nullptr && found->base == base ? found : nullptr;
}

Allocation* NewLocked(int machine, std::size_t size, MemKind kind, const MemLock&) {
  // Managed and pinned memory lives on the host's addresses wherever it is resident.
  const bool host = kind == MemKind::kManaged || kind == MemKind::kHost;
  Arena* arena = NeedArena(host ? -1 : machine);
  Allocation* made = arena != nullptr ? arena->Allocate(size) : nullptr;
  if (made == nullptr) return nullptr;
  made->kind = kind;
  made->machine = machine;
  made->id = TheTables().next_id++;
  return made;
}

std::uint64_t DeleteLocked(Allocation* allocation, const MemLock&) {
  for (Arena* arena : TheTables().arenas) {
    if (arena != nullptr && arena->Contains(allocation->base)) return arena->Free(allocation);
  }
  return 0;
}

Allocation* FirstFrom(CUdeviceptr address, const MemLock&) {
  Tables& tables = TheTables();
  auto next = tables.outside.upper_bound(address);
  if (next != tables.outside.begin()) {
    Allocation* before = std::prev(next)->second;
    if (address - before->base < before->size) return before;
  }
  return next != tables.outside.end() ? next->second : nullptr;
}

Allocation* InsertLocked(CUdeviceptr base, std::size_t size, MemKind kind, const MemLock& held) {
  const Allocation* next = FirstFrom(base, held);
  if (next != nullptr && next->base < base + size) return nullptr;
  auto* made = new Allocation;
  made->base = base;
  made->size = size;
  made->kind = kind;
  made->id = TheTables().next_id++;
  TheTables().outside.emplace(base, made);
  return made;
}

void RemoveLocked(Allocation* allocation, const MemLock&) {
  TheTables().outside.erase(allocation->base);
  delete allocation;
}

Arena* ArenaOf(int machine, const MemLock&) { return TheTables().arenas[machine + 1]; }

Range Describe(const Allocation& allocation) {
  Range range;
  range.base = allocation.base;
  range.size = allocation.size;
  range.kind = allocation.kind;
  range.machine = allocation.machine;
  range.ctx = allocation.ctx;
  range.id = allocation.id;
  range.pool = reinterpret_cast<CUmemoryPool>(allocation.pool);
  range.flags = allocation.flags;
  range.sync_memops = allocation.sync_memops;
  range.readable = allocation.readable;
  range.writable = allocation.writable;
  range.in_use = allocation.in_use;
  return range;
}

bool FindRange(CUdeviceptr address, Range* out) {
  const MemLock held = LockMemory();
  const Allocation* found = FindLocked(address, held);
  if (found == nullptr) return false;
  *out = Describe(*found);
  return true;
}

bool IsDeviceRange(CUdeviceptr address, std::size_t size) {
  const MemLock held = LockMemory();
  while (true) {
    const Allocation* found = FindLocked(address, held);
    if (found == nullptr || !found->readable || !found->in_use || found->kind == MemKind::kPhysical ||
        found->kind == MemKind::kArray) {
      return false;
    }
    const std::size_t left = found->size - (address - found->base);
    if (left >= size) return true;
    if (found->kind != MemKind::kMapped) return false;
    address += left;
    size -= left;
  }
}

// --- charges
// ----------------------------------------------------------------------------------------------------------

bool ChargeUse(int machine, std::uint64_t bytes, Use use) {
  Machine& books = Machine::Get();
  if (books.Charge(machine, bytes, use)) return true;
  return ReclaimPools(machine) && books.Charge(machine, bytes, use);
}

bool ChargeBytes(int machine, std::uint64_t bytes, bool context) {
  return ChargeUse(machine, bytes, context ? Use::kContext : Use::kData);
}

void RefundBytes(int machine, std::uint64_t bytes, bool context) {
  Machine::Get().Refund(machine, bytes, context ? Use::kContext : Use::kData);
}

bool ChargeHost(std::size_t bytes) {
  if (g_host_bytes.fetch_add(bytes) + bytes <= kHostBytes) return true;
  g_host_bytes.fetch_sub(bytes);
  return false;
}

void RefundHost(std::size_t bytes) { g_host_bytes.fetch_sub(bytes); }

// --- device memory
// ----------------------------------------------------------------------------------------------------

CUresult ReserveDevice(Context& ctx, std::size_t size, MemKind kind, CUdeviceptr* out) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!Plausible(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const MemLock held = LockMemory();
  Allocation* made = NewLocked(ctx.machine(), size, kind, held);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->ctx = &ctx;
  *out = made->base;
  return CUDA_SUCCESS;
}

namespace {

// In a block of device memory that small allocations share; the first one pays for all of it, and the last one to go
// gives it back.
bool PlaceShared(Context& ctx, std::size_t size, MemKind kind, bool open, CUdeviceptr* out) {
  const MemLock held = LockMemory();
  Arena* arena = NeedArena(ctx.machine());
  Allocation* made =
      arena != nullptr ? arena->AllocatePacked(size, static_cast<std::uint32_t>(UseOf(kind)), open) : nullptr;
  if (made == nullptr) return false;
  made->kind = kind;
  made->machine = ctx.machine();
  made->id = TheTables().next_id++;
  made->ctx = &ctx;
  *out = made->base;
  return true;
}

CUresult AllocShared(Context& ctx, std::size_t size, MemKind kind, CUdeviceptr* out) {
  if (PlaceShared(ctx, size, kind, false, out)) return CUDA_SUCCESS;
  if (!ChargeUse(ctx.machine(), kGranule, UseOf(kind))) return CUDA_ERROR_OUT_OF_MEMORY;
  if (PlaceShared(ctx, size, kind, true, out)) return CUDA_SUCCESS;
  Machine::Get().Refund(ctx.machine(), kGranule, UseOf(kind));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

CUresult AllocDevice(Context& ctx, std::size_t size, MemKind kind, CUdeviceptr* out) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!Plausible(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool in_blocks = ctx.device->spec->profile.blocks != 0;
  if (in_blocks && size < kGranule) return AllocShared(ctx, size, kind, out);
  const std::size_t rounded = RoundUp(size, in_blocks ? kGranule : kAllocationUnit);
  if (!ChargeUse(ctx.machine(), rounded, UseOf(kind))) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    const MemLock held = LockMemory();
    if (Allocation* made = NewLocked(ctx.machine(), size, kind, held)) {
      made->charged = rounded;
      made->ctx = &ctx;
      *out = made->base;
      return CUDA_SUCCESS;
    }
  }
  Machine::Get().Refund(ctx.machine(), rounded, UseOf(kind));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult FreeDevice(CUdeviceptr base) {
  std::uint64_t charged = 0;
  int machine = -1;
  Use use = Use::kData;
  {
    const MemLock held = LockMemory();
    Allocation* found = FindBase(base, held);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (found->kind != MemKind::kDevice && found->kind != MemKind::kModule && found->kind != MemKind::kArray) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    charged = found->charged;
    machine = found->machine;
    use = UseOf(found->kind);
    charged += DeleteLocked(found, held);
  }
  Machine::Get().Refund(machine, charged, use);
  return CUDA_SUCCESS;
}

void Destroy(CUdeviceptr base) {
  Allocation gone;
  {
    const MemLock held = LockMemory();
    Allocation* found = FindBase(base, held);
    if (found == nullptr) return;
    if (found->kind == MemKind::kManaged) RefundManaged(found);
    gone = *found;
    if (InArena(gone.kind)) {
      gone.charged += DeleteLocked(found, held);
    } else {
      if (gone.kind == MemKind::kIpc || gone.kind == MemKind::kExternal || gone.kind == MemKind::kPoolImport) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const CUdeviceptr first = gone.base / page * page;
        munmap(reinterpret_cast<void*>(first), RoundUp(gone.base + gone.size - first, page));
      }
      RemoveLocked(found, held);
    }
  }
  if (gone.pool != nullptr) LeavePool(gone);
  if (gone.charged > 0) Machine::Get().Refund(gone.machine, gone.charged, UseOf(gone.kind));
  if (gone.kind == MemKind::kHost) RefundHost(gone.size);
}

void ReleaseMemoryOf(Context& ctx) {
  ReleaseTexturesOf(ctx);
  ReleaseArraysOf(ctx);
  std::vector<CUdeviceptr> mine;
  {
    const MemLock held = LockMemory();
    const auto collect = [&](const Allocation* allocation) {
      if (allocation->ctx == &ctx) mine.push_back(allocation->base);
    };
    for (const Arena* arena : TheTables().arenas) {
      if (arena != nullptr) arena->ForEach(collect);
    }
    for (const auto& [base, allocation] : TheTables().outside) collect(allocation);
  }
  for (const CUdeviceptr base : mine) Destroy(base);

  bool others = false;
  ForEachContext(
      ctx.ordinal(), [](Context&, void* arg) { *static_cast<bool*>(arg) = true; }, &others);
  if (!others) DropPoolMemory(ctx.ordinal());
}

}  // namespace simgpu
