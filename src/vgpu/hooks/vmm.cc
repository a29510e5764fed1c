// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: the charge follows the physical memory, see policy/vmm.h.

#include "vgpu/policy/vmm.h"

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

// Where a part of a sparse array begins, in one number.
uint64_t PartOf(const CUarrayMapInfo& map) {
  uint64_t part = static_cast<uint64_t>(map.subresourceType) + 1;
  const auto add = [&part](uint64_t value) { part = (part ^ value) * 0x100'0000'01b3 + (part >> 47); };
  if (map.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    add(map.subresource.miptail.layer);
    add(map.subresource.miptail.offset);
    return part;
  }
  const auto& level = map.subresource.sparseLevel;
  for (const unsigned value : {level.level, level.layer, level.offsetX, level.offsetY, level.offsetZ}) add(value);
  return part;
}

// The driver has taken the list; the stream may get to it later. A use counts from here, and ends here.
template <typename Map>
CUresult Mapped(const CUarrayMapInfo* maps, unsigned count, Map map_all) {
  if (maps == nullptr || !Active()) return map_all();
  const Passage passage(Way::kShared);
  const CUresult result = map_all();
  if (result != CUDA_SUCCESS) return result;
  for (const CUarrayMapInfo* map = maps; map != maps + count; ++map) {
    const bool mipmap = map->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    const uint64_t owner = mipmap ? KeyOf(map->resource.mipmap) : KeyOf(map->resource.array);
    if (map->memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
      VmmBound(owner, PartOf(*map), map->memHandle.memHandle);
    } else {
      VmmUnbound(owner, PartOf(*map));
    }
  }
  return result;
}

// A multicast object has no properties of memory.
int DeviceOfHandle(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp prop{};
  const CUresult result = real::cuMemGetAllocationPropertiesFromHandle(&prop, handle);
  return result == CUDA_SUCCESS ? DeviceOfProperties(prop) : kUnlimited;
}

CUresult Bound(CUresult result, const MulticastRange& at, CUmemGenericAllocationHandle handle) {
  if (result == CUDA_SUCCESS && Active()) VmmMulticastBound(at, handle);
  return result;
}

CUresult BoundAddress(CUresult result, const MulticastRange& at, CUdeviceptr address) {
  if (result == CUDA_SUCCESS && Active()) VmmMulticastBoundAddress(at, address);
  return result;
}

}  // namespace

HAMI_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* prop,
                                 unsigned long long flags) {
  const auto create = [&] { return real::cuMemCreate(out, bytes, prop, flags); };
  if (!Active() || out == nullptr || prop == nullptr || bytes == 0) return create();
  const int device = DeviceOfProperties(*prop);
  if (device == kUnlimited) return create();
  const Charging charging(device);
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
  const Passage passage(Way::kShared);
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
  const Passage passage(Way::kShared);
  VmmMap map;
  if (!VmmMapping(handle, bytes, &map)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real::cuMemMap(address, bytes, offset, handle, flags);
  VmmMapped(map, address, result == CUDA_SUCCESS);
  return result;
}

HAMI_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (!Active()) return real::cuMemUnmap(address, bytes);
  const Passage passage(Way::kShared);
  const CUresult result = real::cuMemUnmap(address, bytes);
  if (result == CUDA_SUCCESS) VmmUnmapped(address, bytes);
  return result;
}

HAMI_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                    CUmemAllocationHandleType type) {
  if (!Active()) return real::cuMemImportFromShareableHandle(out, os_handle, type);
  const Passage passage(Way::kShared);
  VmmImport import;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !VmmImporting(static_cast<int>(KeyOf(os_handle)), &import)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = real::cuMemImportFromShareableHandle(out, os_handle, type);
  if (result != CUDA_SUCCESS || out == nullptr) {
    VmmImportFailed(import);
    return result;
  }
  if (import.object == 0) import.device = DeviceOfHandle(*out);
  VmmImported(*out, import);
  return result;
}

HAMI_EXPORT CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type, unsigned long long flags) {
  const CUresult result = real::cuMemExportToShareableHandle(out, handle, type, flags);
  if (result == CUDA_SUCCESS && out != nullptr && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && Active()) {
    VmmExported(handle, *static_cast<const int*>(out));
  }
  return result;
}

HAMI_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo* maps, unsigned count, CUstream stream) {
  return Mapped(maps, count, [&] { return real::cuMemMapArrayAsync(maps, count, stream); });
}
HAMI_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* maps, unsigned count, CUstream stream) {
  return Mapped(maps, count, [&] { return real::cuMemMapArrayAsync_ptsz(maps, count, stream); });
}

HAMI_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* prop) {
  const CUresult result = real::cuMulticastCreate(out, prop);
  if (result == CUDA_SUCCESS && out != nullptr && Active()) VmmMulticastCreated(*out);
  return result;
}

HAMI_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t at,
                                        CUmemGenericAllocationHandle memory, size_t offset, size_t bytes,
                                        unsigned long long flags) {
  return Bound(real::cuMulticastBindMem(multicast, at, memory, offset, bytes, flags), {multicast, at, bytes}, memory);
}

HAMI_EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice ordinal, size_t at,
                                           CUmemGenericAllocationHandle memory, size_t offset, size_t bytes,
                                           unsigned long long flags) {
  return Bound(real::cuMulticastBindMem_v2(multicast, ordinal, at, memory, offset, bytes, flags),
               {multicast, at, bytes}, memory);
}

HAMI_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t at, CUdeviceptr address,
                                         size_t bytes, unsigned long long flags) {
  return BoundAddress(real::cuMulticastBindAddr(multicast, at, address, bytes, flags), {multicast, at, bytes}, address);
}

HAMI_EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice ordinal, size_t at,
                                            CUdeviceptr address, size_t bytes, unsigned long long flags) {
  return BoundAddress(real::cuMulticastBindAddr_v2(multicast, ordinal, at, address, bytes, flags),
                      {multicast, at, bytes}, address);
}

HAMI_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice ordinal, size_t at,
                                       size_t bytes) {
  if (!Active()) return real::cuMulticastUnbind(multicast, ordinal, at, bytes);
  const Passage passage(Way::kShared);
  const CUresult result = real::cuMulticastUnbind(multicast, ordinal, at, bytes);
  if (result == CUDA_SUCCESS) VmmMulticastUnbound({multicast, at, bytes}, DeviceOfOrdinal(ordinal));
  return result;
}
