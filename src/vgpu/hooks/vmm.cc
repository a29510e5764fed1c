// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: the charge follows the physical memory, see policy/vmm.h.

#include "vgpu/policy/vmm.h"

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

HAMI_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* prop,
                                 unsigned long long flags) {
  const auto create = [&] { return real::cuMemCreate(out, bytes, prop, flags); };
  if (!Active() || out == nullptr || prop == nullptr || bytes == 0) return create();
  const int device = DeviceOfProperties(*prop);
  if (device == kUnlimited) return create();
  if (!Reserve(device, bytes, Kind::kData)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = create();
  if (result == CUDA_SUCCESS) {
    VmmCreated(*out, bytes, device);
  } else {
    Refund(device, bytes, Kind::kData);
  }
  return result;
}

HAMI_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!Active()) return real::cuMemRelease(handle);
  const uint64_t id = VmmReleasing(handle);
  const CUresult result = real::cuMemRelease(handle);
  VmmReleased(handle, id, result == CUDA_SUCCESS);
  return result;
}

HAMI_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  const CUresult result = real::cuMemRetainAllocationHandle(out, address);
  if (result == CUDA_SUCCESS && out != nullptr && Active()) VmmRetained(*out, KeyOf(address));
  return result;
}

HAMI_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                              unsigned long long flags) {
  if (!Active()) return real::cuMemMap(address, bytes, offset, handle, flags);
  if (!VmmMapping(address, bytes, handle)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real::cuMemMap(address, bytes, offset, handle, flags);
  if (result != CUDA_SUCCESS) VmmMapFailed(address);
  return result;
}

HAMI_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const CUresult result = real::cuMemUnmap(address, bytes);
  if (result == CUDA_SUCCESS && Active()) VmmUnmapped(address, bytes);
  return result;
}

HAMI_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                    CUmemAllocationHandleType type) {
  const CUresult result = real::cuMemImportFromShareableHandle(out, os_handle, type);
  CUmemAllocationProp prop{};
  if (result != CUDA_SUCCESS || out == nullptr || !Active() ||
      real::cuMemGetAllocationPropertiesFromHandle(&prop, *out) != CUDA_SUCCESS) {
    return result;
  }
  VmmImported(*out, DeviceOfProperties(prop));
  return result;
}
