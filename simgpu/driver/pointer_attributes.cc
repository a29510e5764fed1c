// SPDX-License-Identifier: Apache-2.0
// cuPointerGetAttribute(s) and cuPointerSetAttribute.
#include <cstring>

#include "simgpu/driver/mem_internal.h"
#include "simgpu/driver/mem_pool.h"
#include "simgpu/driver/mem_vmm.h"

namespace simgpu {
namespace {

template <typename Value>
CUresult Put(void* data, Value value) {
  std::memcpy(data, &value, sizeof(Value));
  return CUDA_SUCCESS;
}

bool IsHost(const Range& range) { return range.kind == MemKind::kHost || range.kind == MemKind::kRegistered; }

int OrdinalOf(const Range& range) {
  if (range.ctx != nullptr) return range.ctx->ordinal();
  const Device* device = DeviceOfMachine(range.machine);
  return device != nullptr ? device->ordinal : CU_DEVICE_INVALID;
}

unsigned AllowedHandleTypes(CUdeviceptr address, const Range& range) {
  if (range.pool != nullptr) {
    return static_cast<unsigned>(reinterpret_cast<const Pool*>(range.pool)->props.handleTypes);
  }
  const MemLock held = LockMemory();
  const Allocation* found = FindLocked(address, held);
  return found != nullptr && found->vmm != nullptr ? static_cast<unsigned>(HandleTypesOf(*found->vmm)) : 0;
}

// The reservation around a mapping, else the allocation itself.
void Surroundings(CUdeviceptr address, const Range& range, CUdeviceptr* base, std::size_t* size) {
  *base = range.base;
  *size = range.size;
  if (range.kind == MemKind::kMapped) FindReservation(address, base, size);
}

CUresult Known(void* data, CUpointer_attribute attribute, CUdeviceptr address, const Range& range) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Put<CUcontext>(data, range.ctx != nullptr ? HandleOf(*range.ctx) : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Put<unsigned>(data, IsHost(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Put(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!IsHost(range) && range.kind != MemKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      return Put(data, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Put<unsigned>(data, range.sync_memops ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Put<unsigned long long>(data, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Put<unsigned>(data, range.kind == MemKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Put<int>(data, OrdinalOf(range));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Put<unsigned>(data, range.kind == MemKind::kDevice ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      Surroundings(address, range, &base, &size);
      return Put(data, base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      Surroundings(address, range, &base, &size);
      return Put(data, size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Put<unsigned>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Put(data, std::uint64_t{AllowedHandleTypes(address, range)});
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Put<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Put<unsigned>(data, range.writable   ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                 : range.readable ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                                  : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Put<CUmemoryPool>(data, range.kind == MemKind::kAsync ? range.pool : nullptr);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Put(data, range.size);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Put(data, range.base);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes says of plain host memory: zeros, and no device.
CUresult Unknown(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Put<int>(data, CU_DEVICE_INVALID);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Put<std::uint64_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return Put<unsigned>(data, 0);
  }
}

bool FindUsable(CUdeviceptr address, Range* out) {
  return FindRange(address, out) && out->kind != MemKind::kArray && out->kind != MemKind::kPhysical;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  SIMGPU_ENTER(cuPointerGetAttribute);
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (!FindUsable(address, &range)) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const bool reserved = FindReservation(address, &base, &size);
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) return Put<unsigned>(data, 0);
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) return Put(data, base);
    if (reserved && attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) return Put(data, size);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Known(data, attribute, address, range);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  SIMGPU_ENTER(cuPointerGetAttributes);
  if (attributes == nullptr || data == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  const bool known = FindUsable(address, &range);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // An attribute that this memory has not is zero here, where the single query refuses.
    if (known && Known(data[i], attributes[i], address, range) == CUDA_SUCCESS) continue;
    SIMGPU_TRY(Unknown(data[i], attributes[i]));
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  SIMGPU_ENTER(cuPointerSetAttribute);
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  const MemLock held = LockMemory();
  Allocation* found = FindLocked(address, held);
  if (found == nullptr || found->machine < 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  found->sync_memops = wanted != 0;
  return CUDA_SUCCESS;
}
