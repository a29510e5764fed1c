// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/array.h"

#include <algorithm>
#include <unordered_set>

#include "simgpu/driver/engine.h"
#include "simgpu/driver/mem_internal.h"
#include "simgpu/driver/sparse.h"

namespace simgpu {
namespace {

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  ArrayLayout layout;
  CUdeviceptr storage = 0;
  Context* ctx = nullptr;
  bool level = false;      // of a mipmapped array, which owns it
  SparseMemoryPtr memory;  // null: it has its own
};

struct Mipmap {
  CUdeviceptr storage = 0;
  SparseMemoryPtr memory;
  Context* ctx = nullptr;
  std::vector<Array*> levels;
};

struct Arrays {
  std::mutex lock;
  std::unordered_set<Array*> arrays;
  std::unordered_set<Mipmap*> mipmaps;
};

Arrays& TheArrays() {
  static Arrays& arrays = *new Arrays;
  return arrays;
}

using ArrayLock = std::lock_guard<std::mutex>;

Array* Find(CUarray handle) {
  auto* array = reinterpret_cast<Array*>(handle);
  return TheArrays().arrays.count(array) != 0 ? array : nullptr;
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR& desc) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  wide.Width = desc.Width;
  wide.Height = desc.Height;
  wide.Format = desc.Format;
  wide.NumChannels = desc.NumChannels;
  return wide;
}

// Storage for an array of that shape: memory, or only a place for it.
CUresult Store(Context& ctx, const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels, bool mipmap, std::size_t bytes,
               CUdeviceptr* storage, SparseMemoryPtr* memory) {
  if (HasOwnMemory(desc)) return AllocDevice(ctx, bytes, MemKind::kArray, storage);
  auto made = std::make_shared<SparseMemory>();
  made->machine = ctx.machine();
  SIMGPU_TRY(LayOutTiles(desc, levels, mipmap, &made->layout));
  SIMGPU_TRY(ReserveDevice(ctx, bytes, MemKind::kArray, storage));
  *memory = std::move(made);
  return CUDA_SUCCESS;
}

CUresult Create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Array made;
  SIMGPU_TRY(LayOut(desc, &made.layout));
  SIMGPU_TRY(Store(*ctx, desc, 1, false, made.layout.bytes, &made.storage, &made.memory));
  made.desc = desc;
  made.ctx = ctx;
  auto* array = new Array(made);
  const ArrayLock guard(TheArrays().lock);
  TheArrays().arrays.insert(array);
  *out = reinterpret_cast<CUarray>(array);
  return CUDA_SUCCESS;
}

CUresult CreateMipmap(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned count) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Array> levels(std::min(count, MaxLevels(desc)));
  std::size_t bytes = 0;
  for (unsigned i = 0; i < levels.size(); ++i) {
    Array& level = levels[i];
    level.desc = LevelOf(desc, i);
    SIMGPU_TRY(LayOut(level.desc, &level.layout));
    level.ctx = ctx;
    level.level = true;
    level.storage = bytes;
    bytes += RoundUp(level.layout.bytes, kAllocationUnit);
  }
  Mipmap made;
  if (levels.empty()) return CUDA_ERROR_INVALID_VALUE;
  const auto level_count = static_cast<unsigned>(levels.size());
  SIMGPU_TRY(Store(*ctx, desc, level_count, true, bytes, &made.storage, &made.memory));
  made.ctx = ctx;
  auto* mipmap = new Mipmap(made);
  const ArrayLock guard(TheArrays().lock);
  for (Array& level : levels) {
    level.storage += made.storage;
    mipmap->levels.push_back(new Array(level));
    TheArrays().arrays.insert(mipmap->levels.back());
  }
  TheArrays().mipmaps.insert(mipmap);
  *out = reinterpret_cast<CUmipmappedArray>(mipmap);
  return CUDA_SUCCESS;
}

// What is left of an array that is in no table any more.
struct Remains {
  CUdeviceptr storage = 0;
  SparseMemoryPtr memory;
};

Remains Remove(Array* array) {
  Remains remains{array->storage, std::move(array->memory)};
  TheArrays().arrays.erase(array);
  delete array;
  return remains;
}

Remains Remove(Mipmap* mipmap) {
  Remains remains{mipmap->storage, std::move(mipmap->memory)};
  for (Array* level : mipmap->levels) Remove(level);
  TheArrays().mipmaps.erase(mipmap);
  delete mipmap;
  return remains;
}

CUresult Free(const Remains& remains) {
  EndSparseMemory(remains.memory);
  return FreeDevice(remains.storage);
}

CUresult GetDescriptor(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ArrayLock guard(TheArrays().lock);
  const Array* array = Find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = array->desc;
  return CUDA_SUCCESS;
}

// Waits for work that may still use the storage.
CUresult Drain() {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  DrainContext(*ctx);
  return CUDA_SUCCESS;
}

}  // namespace

bool FindArray(CUarray handle, ArrayView* out) {
  const ArrayLock guard(TheArrays().lock);
  const Array* array = Find(handle);
  if (array == nullptr) return false;
  out->storage = reinterpret_cast<std::byte*>(array->storage);
  out->layout = array->layout;
  out->machine = array->ctx->machine();
  out->flags = array->desc.Flags;
  return true;
}

bool IsMipmap(CUmipmappedArray handle) {
  const ArrayLock guard(TheArrays().lock);
  return TheArrays().mipmaps.count(reinterpret_cast<Mipmap*>(handle)) != 0;
}

CUresult FindSparseMemory(CUarray handle, SparseMemoryPtr* out) {
  const ArrayLock guard(TheArrays().lock);
  const Array* array = Find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = array->memory;
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult FindSparseMemory(CUmipmappedArray handle, SparseMemoryPtr* out) {
  const ArrayLock guard(TheArrays().lock);
  auto* mipmap = reinterpret_cast<Mipmap*>(handle);
  if (TheArrays().mipmaps.count(mipmap) == 0) return CUDA_ERROR_INVALID_HANDLE;
  *out = mipmap->memory;
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void ReleaseArraysOf(Context& ctx) {
  std::vector<Remains> gone;
  {
    Arrays& arrays = TheArrays();
    const ArrayLock guard(arrays.lock);
    const std::vector<Mipmap*> mipmaps(arrays.mipmaps.begin(), arrays.mipmaps.end());
    for (Mipmap* mipmap : mipmaps) {
      if (mipmap->ctx == &ctx) gone.push_back(Remove(mipmap));
    }
    const std::vector<Array*> all(arrays.arrays.begin(), arrays.arrays.end());
    for (Array* array : all) {
      if (array->ctx == &ctx && !array->level) gone.push_back(Remove(array));
    }
  }
  for (const Remains& remains : gone) Free(remains);
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* desc) {
  SIMGPU_ENTER(cuArrayCreate_v2);
  return desc == nullptr ? CUDA_ERROR_INVALID_VALUE : Create(out, Widen(*desc));
}

CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  SIMGPU_ENTER(cuArray3DCreate_v2);
  return desc == nullptr ? CUDA_ERROR_INVALID_VALUE : Create(out, *desc);
}

CUresult cuArrayDestroy(CUarray handle) {
  SIMGPU_ENTER(cuArrayDestroy);
  SIMGPU_TRY(Drain());
  Remains remains;
  {
    const ArrayLock guard(TheArrays().lock);
    Array* array = Find(handle);
    if (array == nullptr || array->level) return CUDA_ERROR_INVALID_HANDLE;
    remains = Remove(array);
  }
  return Free(remains);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  SIMGPU_ENTER(cuArrayGetDescriptor_v2);
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(GetDescriptor(&desc, handle));
  out->Width = desc.Width;
  out->Height = desc.Height;
  out->Format = desc.Format;
  out->NumChannels = desc.NumChannels;
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  SIMGPU_ENTER(cuArray3DGetDescriptor_v2);
  return GetDescriptor(out, handle);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc, unsigned int levels) {
  SIMGPU_ENTER(cuMipmappedArrayCreate);
  return desc == nullptr ? CUDA_ERROR_INVALID_VALUE : CreateMipmap(out, *desc, levels);
}

CUresult cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned int level) {
  SIMGPU_ENTER(cuMipmappedArrayGetLevel);
  const ArrayLock guard(TheArrays().lock);
  auto* mipmap = reinterpret_cast<Mipmap*>(handle);
  if (TheArrays().mipmaps.count(mipmap) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUarray>(mipmap->levels[level]);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  SIMGPU_ENTER(cuMipmappedArrayDestroy);
  SIMGPU_TRY(Drain());
  Remains remains;
  {
    const ArrayLock guard(TheArrays().lock);
    auto* mipmap = reinterpret_cast<Mipmap*>(handle);
    if (TheArrays().mipmaps.count(mipmap) == 0) return CUDA_ERROR_INVALID_HANDLE;
    remains = Remove(mipmap);
  }
  return Free(remains);
}
