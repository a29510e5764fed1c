// SPDX-License-Identifier: Apache-2.0
// Pinned host memory: cuMemHostAlloc and cuMemHostRegister. It costs no device memory.
#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

constexpr unsigned kAllocFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult HostAlloc(void** out, std::size_t size, unsigned flags) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || size == 0 || (flags & ~kAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!Plausible(size) || !ChargeHost(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    const MemLock held = LockMemory();
    if (Allocation* made = NewLocked(-1, size, MemKind::kHost, held)) {
      made->ctx = ctx;
      made->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;  // unified addressing maps all of it
      *out = reinterpret_cast<void*>(made->base);
      return CUDA_SUCCESS;
    }
  }
  RefundHost(size);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult HostRegister(void* address, std::size_t size, unsigned flags) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  const auto base = reinterpret_cast<CUdeviceptr>(address);
  if (base == 0 || size == 0 || (flags & ~kRegisterFlags) != 0 || base + size < base) return CUDA_ERROR_INVALID_VALUE;
  const MemLock held = LockMemory();
  if (FindLocked(base, held) != nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  Allocation* made = InsertLocked(base, size, MemKind::kRegistered, held);
  if (made == nullptr) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  made->ctx = ctx;
  made->flags = flags;
  return CUDA_SUCCESS;
}

bool IsPinned(const Range& range) { return range.kind == MemKind::kHost || range.kind == MemKind::kRegistered; }

CUresult FindPinned(const void* address, Range* out) {
  if (address == nullptr || !FindRange(reinterpret_cast<CUdeviceptr>(address), out) || !IsPinned(*out)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuMemHostAlloc(void** out, size_t size, unsigned int flags) {
  SIMGPU_ENTER(cuMemHostAlloc);
  return HostAlloc(out, size, flags);
}

CUresult cuMemAllocHost_v2(void** out, size_t size) {
  SIMGPU_ENTER(cuMemAllocHost_v2);
  return HostAlloc(out, size, 0);
}

CUresult cuMemFreeHost(void* address) {
  SIMGPU_ENTER(cuMemFreeHost);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  Range range;
  SIMGPU_TRY(FindPinned(address, &range));
  const auto base = reinterpret_cast<CUdeviceptr>(address);
  if (range.kind != MemKind::kHost || range.base != base) return CUDA_ERROR_INVALID_VALUE;
  DrainUsersOf(range);
  Destroy(base);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* address, unsigned int flags) {
  SIMGPU_ENTER(cuMemHostGetDevicePointer_v2);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  SIMGPU_TRY(FindPinned(address, &range));
  *out = reinterpret_cast<CUdeviceptr>(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* address) {
  SIMGPU_ENTER(cuMemHostGetFlags);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  SIMGPU_TRY(FindPinned(address, &range));
  *flags = range.flags;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* address, size_t size, unsigned int flags) {
  SIMGPU_ENTER(cuMemHostRegister);
  return HostRegister(address, size, flags);
}

CUresult cuMemHostRegister_v2(void* address, size_t size, unsigned int flags) {
  SIMGPU_ENTER(cuMemHostRegister_v2);
  return HostRegister(address, size, flags);
}

CUresult cuMemHostUnregister(void* address) {
  SIMGPU_ENTER(cuMemHostUnregister);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  const auto base = reinterpret_cast<CUdeviceptr>(address);
  Range range;
  if (FindRange(base, &range) && range.base == base && range.kind == MemKind::kRegistered) DrainUsersOf(range);
  const MemLock held = LockMemory();
  Allocation* found = FindBase(base, held);
  if (found == nullptr || found->kind != MemKind::kRegistered) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  RemoveLocked(found, held);
  return CUDA_SUCCESS;
}
