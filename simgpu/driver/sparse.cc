// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/sparse.h"

#include <vector>

#include "simgpu/driver/engine.h"

namespace simgpu {
namespace {

// One entry of a list, checked. `handle` null: unmap.
struct Step {
  SparseMemoryPtr array;
  TileBox box;
  VmmHandle* handle = nullptr;
};

template <typename Visit>
void ForEachTile(const TileBox& box, Visit visit) {
  for (unsigned z = 0; z < box.count[2]; ++z) {
    for (unsigned y = 0; y < box.count[1]; ++y) {
      for (unsigned x = 0; x < box.count[0]; ++x) {
        visit(SparseMemory::Tile{box.level, box.layer, {box.first[0] + x, box.first[1] + y, box.first[2] + z}});
      }
    }
  }
}

// Takes as long as the box has tiles, or as there are mapped ones, whichever is less: a box may be as large as all that
// an array can address.
void Unmap(SparseMemory& array, const TileBox& box, const MemLock& held) {
  const auto drop = [&](auto at) {
    VmmHandle* const handle = at->second;
    const auto next = array.tiles.erase(at);
    DropUse(handle, held);
    return next;
  };
  if (box.bytes / kTileBytes <= array.tiles.size()) {
    ForEachTile(box, [&](const SparseMemory::Tile& tile) {
      if (const auto at = array.tiles.find(tile); at != array.tiles.end()) drop(at);
    });
    return;
  }
  for (auto at = array.tiles.begin(); at != array.tiles.end();) {
    const auto& [level, layer, place] = at->first;
    at = box.Contains(level, layer, place) ? drop(at) : std::next(at);
  }
}

void Map(SparseMemory& array, const TileBox& box, VmmHandle* handle, const MemLock& held) {
  ForEachTile(box, [&](const SparseMemory::Tile& tile) {
    array.tiles.emplace(tile, handle);
    AddUse(handle, held);
  });
}

using Job = std::vector<Step>;

void Release(const Job& job, const MemLock& held) {
  for (const Step& step : job) {
    if (step.handle != nullptr) DropUse(step.handle, held);
  }
}

// The stream has come to the list.
void RunJob(void* arg) {
  const std::unique_ptr<Job> job(static_cast<Job*>(arg));
  const MemLock held = LockMemory();
  for (const Step& step : *job) {
    if (step.array->gone) continue;
    Unmap(*step.array, step.box, held);
    if (step.handle != nullptr) Map(*step.array, step.box, step.handle, held);
  }
  Release(*job, held);
}

CUresult FindArrayOf(const CUarrayMapInfo& entry, SparseMemoryPtr* out) {
  switch (entry.resourceType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return FindSparseMemory(entry.resource.array, out);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return FindSparseMemory(entry.resource.mipmap, out);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool IsTilePool(const VmmHandle& handle) {
  return handle.multicast == nullptr && (handle.prop.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) != 0;
}

// The handle that an entry maps is held from here on.
CUresult CheckEntry(const CUarrayMapInfo& entry, const Device& device, Step* out, const MemLock& held) {
  if (entry.flags != 0 || entry.reserved[0] != 0 || entry.reserved[1] != 0) return CUDA_ERROR_INVALID_VALUE;
  if (entry.deviceBitMask != 1U << device.ordinal || out->array->machine != device.machine) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(BoxOf(out->array->layout, entry, &out->box));
  if (entry.memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
    return entry.memHandle.memHandle == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (entry.memOperationType != CU_MEM_OPERATION_TYPE_MAP || entry.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  VmmHandle* const handle = FindHandle(entry.memHandle.memHandle, held);
  if (handle == nullptr || !IsTilePool(*handle) || handle->machine != device.machine) return CUDA_ERROR_INVALID_VALUE;
  if (entry.offset % kTileBytes != 0 || entry.offset > handle->size || out->box.bytes > handle->size - entry.offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->handle = handle;
  AddUse(handle, held);
  return CUDA_SUCCESS;
}

CUresult Check(const CUarrayMapInfo* list, unsigned count, const Device& device, Job* job) {
  for (unsigned i = 0; i < count; ++i) {
    Step step;
    SIMGPU_TRY(FindArrayOf(list[i], &step.array));
    const MemLock held = LockMemory();
    SIMGPU_TRY(CheckEntry(list[i], device, &step, held));
    job->push_back(step);
  }
  return CUDA_SUCCESS;
}

// All of the list or nothing.
CUresult MapArrays(const CUarrayMapInfo* list, unsigned count, CUstream handle, bool per_thread) {
  SIMGPU_STREAM(stream, handle, per_thread);
  if (list == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto job = std::make_unique<Job>();
  CUresult result = Check(list, count, *ContextOf(*stream).device, job.get());
  if (result == CUDA_SUCCESS) result = SubmitCall(*stream, RunJob, job.get());
  if (result == CUDA_SUCCESS) {
    static_cast<void>(job.release());
  } else {
    const MemLock held = LockMemory();
    Release(*job, held);
  }
  return result;
}

template <typename Handle>
CUresult Properties(CUDA_ARRAY_SPARSE_PROPERTIES* out, Handle handle) {
  SparseMemoryPtr memory;
  if (out == nullptr || FindSparseMemory(handle, &memory) != CUDA_SUCCESS || !memory->layout.sparse) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = PropertiesOf(memory->layout);
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult Requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, Handle handle, CUdevice device) {
  SparseMemoryPtr memory;
  if (out == nullptr || FindDevice(device) == nullptr || FindSparseMemory(handle, &memory) != CUDA_SUCCESS ||
      memory->layout.sparse) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = {memory->layout.bytes, kTileBytes, {}};
  return CUDA_SUCCESS;
}

}  // namespace

void EndSparseMemory(const SparseMemoryPtr& memory) {
  if (memory == nullptr) return;
  const MemLock held = LockMemory();
  memory->gone = true;
  for (const auto& [tile, handle] : memory->tiles) DropUse(handle, held);
  memory->tiles.clear();
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuMemMapArrayAsync(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  SIMGPU_ENTER(cuMemMapArrayAsync);
  return MapArrays(list, count, stream, false);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  SIMGPU_ENTER(cuMemMapArrayAsync_ptsz);
  return MapArrays(list, count, stream, true);
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray array) {
  SIMGPU_ENTER(cuArrayGetSparseProperties);
  return Properties(properties, array);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUmipmappedArray mipmap) {
  SIMGPU_ENTER(cuMipmappedArrayGetSparseProperties);
  return Properties(properties, mipmap);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray array, CUdevice device) {
  SIMGPU_ENTER(cuArrayGetMemoryRequirements);
  return Requirements(requirements, array, device);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUmipmappedArray mipmap,
                                               CUdevice device) {
  SIMGPU_ENTER(cuMipmappedArrayGetMemoryRequirements);
  return Requirements(requirements, mipmap, device);
}
