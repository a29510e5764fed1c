// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: the charge follows the physical memory, see memory/vmm.h and memory/sparse_multicast.h.

#include "vgpu/memory/vmm.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/free_events.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/sparse_multicast.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/mapped_vector.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

// One entry of a list of mappings into arrays.
struct ArrayStep {
  uint64_t array;
  TileBox box;
  VmmUse use;
  bool maps;
};

// All 0 for an array that is no sparse one.
CUDA_ARRAY_SPARSE_PROPERTIES::Extent TileOf(const CUarrayMapInfo& map) {
  CUDA_ARRAY_SPARSE_PROPERTIES properties{};
  CUresult known = CUDA_ERROR_INVALID_VALUE;
  if (map.resourceType == CU_RESOURCE_TYPE_ARRAY) {
    known = real::cuArrayGetSparseProperties(&properties, map.resource.array);
  } else if (map.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    known = real::cuMipmappedArrayGetSparseProperties(&properties, map.resource.mipmap);
  }
  return known == CUDA_SUCCESS ? properties.tileExtent : CUDA_ARRAY_SPARSE_PROPERTIES::Extent{};
}

// What an array takes that is mapped as a whole; 0 where the driver does not say.
uint64_t WholeOf(const CUarrayMapInfo& map) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  CUdevice ordinal = 0;
  if (real::cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) return 0;
  CUresult known = CUDA_ERROR_INVALID_VALUE;
  if (map.resourceType == CU_RESOURCE_TYPE_ARRAY) {
    known = real::cuArrayGetMemoryRequirements(&needs, map.resource.array, ordinal);
  } else if (map.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    known = real::cuMipmappedArrayGetMemoryRequirements(&needs, map.resource.mipmap, ordinal);
  }
  return known == CUDA_SUCCESS ? needs.size : 0;
}

bool BeginStep(const CUarrayMapInfo& map, ArrayStep* step) {
  const bool mipmap = map.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  step->array = mipmap ? KeyOf(map.resource.mipmap) : KeyOf(map.resource.array);
  const auto tile = TileOf(map);
  step->box = BoxOf(map, tile, tile.width == 0 ? WholeOf(map) : 0);
  step->maps = map.memOperationType == CU_MEM_OPERATION_TYPE_MAP;
  return !step->maps || VmmUsing(map.memHandle.memHandle, step->box.bytes(), &step->use);
}

void EndStep(const ArrayStep& step, const StreamId& stream, bool taken) {
  if (!taken) {
    VmmUnused(step.use);
  } else if (step.maps) {
    VmmTilesMapped(step.array, step.box, step.use, stream);
  } else {
    VmmTilesUnmapped(step.array, step.box, stream);
  }
}

// The driver takes the whole list or nothing; the stream may get to it later.
template <typename Map>
CUresult Mapped(const CUarrayMapInfo* maps, unsigned count, CUstream stream, Map map_all) {
  if (maps == nullptr || !Active()) return map_all();
  const MeasureLock measure_lock(LockMode::kShared);
  MappedVector<ArrayStep> steps;
  bool fits = true;
  for (unsigned i = 0; i < count && fits; ++i) {
    ArrayStep* const step = steps.Add();
    fits = step != nullptr && BeginStep(maps[i], step);
  }
  const CUresult result = fits ? map_all() : CUDA_ERROR_OUT_OF_MEMORY;
  const StreamId name = StreamIdOf(stream);
  for (const ArrayStep& step : steps) EndStep(step, name, result == CUDA_SUCCESS);
  const bool ended = result == CUDA_SUCCESS && VmmUsesEndLater();
  if (ended && !RecordFreeEvent(stream, name)) SettleFrees();
  steps.Clear();
  return result;
}

// A multicast object has no properties of memory.
int DeviceOfHandle(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp prop{};
  const CUresult result = real::cuMemGetAllocationPropertiesFromHandle(&prop, handle);
  return result == CUDA_SUCCESS ? DeviceOfProperties(prop) : kUnlimited;
}

template <typename Bind>
CUresult Bound(const MulticastRange& at, CUmemGenericAllocationHandle memory, Bind bind) {
  if (!Active()) return bind();
  const MeasureLock measure_lock(LockMode::kShared);
  VmmUse use;
  if (!VmmUsing(memory, at.bytes, &use)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = bind();
  VmmMulticastBound(at, use, result == CUDA_SUCCESS);
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
  const MeasureLock measure_lock(LockMode::kShared);
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
  const MeasureLock measure_lock(LockMode::kShared);
  VmmUse use;
  if (!VmmUsing(handle, bytes, &use)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real::cuMemMap(address, bytes, offset, handle, flags);
  VmmMapped(use, address, result == CUDA_SUCCESS);
  return result;
}

HAMI_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (!Active()) return real::cuMemUnmap(address, bytes);
  const MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = real::cuMemUnmap(address, bytes);
  if (result == CUDA_SUCCESS) VmmUnmapped(address, bytes);
  return result;
}

HAMI_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                    CUmemAllocationHandleType type) {
  if (!Active()) return real::cuMemImportFromShareableHandle(out, os_handle, type);
  const MeasureLock measure_lock(LockMode::kShared);
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
  if (!Active()) return real::cuMemExportToShareableHandle(out, handle, type, flags);
  const MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = real::cuMemExportToShareableHandle(out, handle, type, flags);
  if (result == CUDA_SUCCESS && out != nullptr && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    VmmExported(handle, *static_cast<const int*>(out));
  }
  return result;
}

HAMI_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo* maps, unsigned count, CUstream stream) {
  return Mapped(maps, count, stream, [&] { return real::cuMemMapArrayAsync(maps, count, stream); });
}
HAMI_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* maps, unsigned count, CUstream stream) {
  return Mapped(maps, count, stream == nullptr ? CU_STREAM_PER_THREAD : stream,
                [&] { return real::cuMemMapArrayAsync_ptsz(maps, count, stream); });
}

HAMI_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* prop) {
  const CUresult result = real::cuMulticastCreate(out, prop);
  if (result == CUDA_SUCCESS && out != nullptr && Active()) VmmMulticastCreated(*out);
  return result;
}

HAMI_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t at,
                                        CUmemGenericAllocationHandle memory, size_t offset, size_t bytes,
                                        unsigned long long flags) {
  return Bound({multicast, at, bytes}, memory,
               [&] { return real::cuMulticastBindMem(multicast, at, memory, offset, bytes, flags); });
}

HAMI_EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice ordinal, size_t at,
                                           CUmemGenericAllocationHandle memory, size_t offset, size_t bytes,
                                           unsigned long long flags) {
  return Bound({multicast, at, bytes}, memory,
               [&] { return real::cuMulticastBindMem_v2(multicast, ordinal, at, memory, offset, bytes, flags); });
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
  const MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = real::cuMulticastUnbind(multicast, ordinal, at, bytes);
  if (result == CUDA_SUCCESS) VmmMulticastUnbound({multicast, at, bytes}, DeviceOfOrdinal(ordinal));
  return result;
}
