// SPDX-License-Identifier: Apache-2.0
// Managed memory. It is resident in blocks of 2 MiB, each on one device, where it is charged, or on the host, where it
// is not. A new allocation goes to its context's device as far as it fits there and to the host for the rest: managed
// memory may be larger than the device. Advice and prefetches move blocks, as far as they fit; kernels and copies do
// not.
#include <algorithm>

#include "simgpu/driver/engine.h"
#include "simgpu/driver/mem_internal.h"

namespace simgpu {

constexpr int kHostLocation = -1;  // CU_DEVICE_CPU
constexpr int kNoLocation = -2;    // CU_DEVICE_INVALID

// Locations are ordinals of this process.
struct ManagedState {
  std::vector<std::int8_t> where;  // by block: an ordinal or kHostLocation
  std::uint64_t accessed_by = 0;   // bit 0: host, bit 1 + ordinal
  int preferred = kNoLocation;
  int last_prefetch = kNoLocation;
  bool read_mostly = false;
};

namespace {

std::size_t BlockBytes(const Allocation& allocation, std::size_t block) {
  const std::size_t begin = block * kGranule;
  return RoundUp(std::min(kGranule, allocation.size - begin), kAllocationUnit);
}

void MoveBlock(Allocation& allocation, std::size_t block, int to) {
  std::int8_t& where = allocation.managed->where[block];
  if (where == to) return;
  Machine& machine = Machine::Get();
  const std::size_t bytes = BlockBytes(allocation, block);
  if (to >= 0 && !machine.Charge(FindDevice(to)->machine, bytes, Use::kData)) return;
  if (where >= 0) machine.Refund(FindDevice(where)->machine, bytes, Use::kData);
  where = static_cast<std::int8_t>(to);
}

// Moves the blocks that [address, address + size) touches.
void MoveLocked(Allocation& allocation, CUdeviceptr address, std::size_t size, int to) {
  const std::size_t begin = address - allocation.base;
  for (std::size_t block = begin / kGranule; block * kGranule < begin + size; ++block) MoveBlock(allocation, block, to);
}

}  // namespace

CUresult AllocManaged(Context& ctx, std::size_t size, unsigned flags, CUdeviceptr* out) {
  if (!Plausible(size) || !ChargeHost(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::size_t rounded = RoundUp(size, kAllocationUnit);
  const bool fits = ChargeUse(ctx.machine(), rounded, Use::kData);
  const MemLock held = LockMemory();
  Allocation* made = NewLocked(ctx.machine(), size, MemKind::kManaged, held);
  if (made == nullptr) {
    if (fits) Machine::Get().Refund(ctx.machine(), rounded, Use::kData);
    RefundHost(size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made->ctx = &ctx;
  made->flags = flags;
  made->managed = new ManagedState;
  made->managed->where.assign((size + kGranule - 1) / kGranule,
                              static_cast<std::int8_t>(fits ? ctx.ordinal() : kHostLocation));
  if (!fits) MoveLocked(*made, made->base, size, ctx.ordinal());
  *out = made->base;
  return CUDA_SUCCESS;
}

void FreeManaged(CUdeviceptr base) { Destroy(base); }

namespace {

// The managed allocation that holds the whole range.
Allocation* FindManaged(CUdeviceptr address, std::size_t size, const MemLock& held) {
  Allocation* found = FindLocked(address, held);
  if (found == nullptr || found->kind != MemKind::kManaged) return nullptr;
  return size > 0 && size <= found->size - (address - found->base) ? found : nullptr;
}

// kNoLocation in *out for a location that is none of this process.
CUresult Locate(const CUmemLocation& location, int* out) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      *out = location.id;
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      *out = kHostLocation;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return FindDevice(*out) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUmemLocation OfDevice(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

CUresult Advise(CUdeviceptr address, std::size_t size, CUmem_advise advice, const CUmemLocation& location) {
  const bool located = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                       advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  int to = kNoLocation;
  if (located) SIMGPU_TRY(Locate(location, &to));
  const MemLock held = LockMemory();
  Allocation* found = FindManaged(address, size, held);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ManagedState& state = *found->managed;
  const std::uint64_t bit = std::uint64_t{1} << (to + 1 < 0 ? 0 : to + 1);
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
      state.read_mostly = true;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      state.read_mostly = false;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      state.preferred = to;
      MoveLocked(*found, address, size, to);
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      state.preferred = kNoLocation;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
      state.accessed_by |= bit;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      state.accessed_by &= ~bit;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

struct PrefetchJob {
  CUdeviceptr address;
  std::size_t size;
  int to;
};

void RunPrefetch(void* arg) {
  auto* job = static_cast<PrefetchJob*>(arg);
  {
    const MemLock held = LockMemory();
    if (Allocation* found = FindManaged(job->address, job->size, held)) {
      MoveLocked(*found, job->address, job->size, job->to);
    }
  }
  delete job;
}

CUresult Prefetch(CUdeviceptr address, std::size_t size, const CUmemLocation& location, unsigned flags, CUstream handle,
                  bool per_thread) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  int to = kNoLocation;
  SIMGPU_TRY(Locate(location, &to));
  CUresult error = CUDA_SUCCESS;
  Stream* stream = ResolveStream(handle, per_thread, &error);
  if (stream == nullptr) return error;
  {
    const MemLock held = LockMemory();
    Allocation* found = FindManaged(address, size, held);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    found->managed->last_prefetch = to;
  }
  auto* job = new PrefetchJob{address, size, to};
  const CUresult submitted = SubmitCall(*stream, RunPrefetch, job);
  if (submitted != CUDA_SUCCESS) delete job;
  return submitted;
}

int IdOf(int location) { return location == kHostLocation ? 0 : location; }

CUmemLocationType TypeOf(int location) {
  if (location == kNoLocation) return CU_MEM_LOCATION_TYPE_INVALID;
  return location == kHostLocation ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
}

CUresult RangeAttribute(void* data, std::size_t room, CUmem_range_attribute attribute, const ManagedState& state) {
  auto* number = static_cast<int*>(data);
  if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
    if (room == 0 || room % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
    std::size_t next = 0;
    for (int bit = 0; bit <= kMaxDevices && next < room / sizeof(int); ++bit) {
      if ((state.accessed_by >> bit & 1) != 0) number[next++] = bit - 1;
    }
    std::fill(number + next, number + room / sizeof(int), kNoLocation);
    return CUDA_SUCCESS;
  }
  if (room != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *number = state.read_mostly ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      *number = state.preferred;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *number = state.last_prefetch;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *number = TypeOf(state.preferred);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *number = IdOf(state.preferred);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *number = TypeOf(state.last_prefetch);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *number = IdOf(state.last_prefetch);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult NeedAnyContext() {
  Context* ctx = nullptr;
  return NeedContext(&ctx);
}

}  // namespace

void RefundManaged(Allocation* allocation) {
  for (std::size_t block = 0; block < allocation->managed->where.size(); ++block) {
    MoveBlock(*allocation, block, kHostLocation);
  }
  RefundHost(allocation->size);
  delete allocation->managed;
  allocation->managed = nullptr;
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuMemAllocManaged(CUdeviceptr* out, size_t size, unsigned int flags) {
  SIMGPU_ENTER(cuMemAllocManaged);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return AllocManaged(*ctx, size, flags, out);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
  SIMGPU_ENTER(cuMemAdvise);
  SIMGPU_TRY(NeedAnyContext());
  return Advise(address, size, advice, OfDevice(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location) {
  SIMGPU_ENTER(cuMemAdvise_v2);
  SIMGPU_TRY(NeedAnyContext());
  return Advise(address, size, advice, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync);
  return Prefetch(address, size, OfDevice(device), 0, stream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync_ptsz);
  return Prefetch(address, size, OfDevice(device), 0, stream, true);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                               CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync_v2);
  return Prefetch(address, size, location, flags, stream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                                    CUstream stream) {
  SIMGPU_ENTER(cuMemPrefetchAsync_v2_ptsz);
  return Prefetch(address, size, location, flags, stream, true);
}

CUresult cuMemRangeGetAttribute(void* data, size_t room, CUmem_range_attribute attribute, CUdeviceptr address,
                                size_t size) {
  SIMGPU_ENTER(cuMemRangeGetAttribute);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MemLock held = LockMemory();
  const Allocation* found = FindManaged(address, size, held);
  return found != nullptr ? RangeAttribute(data, room, attribute, *found->managed) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRangeGetAttributes(void** data, size_t* rooms, CUmem_range_attribute* attributes, size_t count,
                                 CUdeviceptr address, size_t size) {
  SIMGPU_ENTER(cuMemRangeGetAttributes);
  if (data == nullptr || rooms == nullptr || attributes == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const MemLock held = LockMemory();
  const Allocation* found = FindManaged(address, size, held);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    SIMGPU_TRY(RangeAttribute(data[i], rooms[i], attributes[i], *found->managed));
  }
  return CUDA_SUCCESS;
}
