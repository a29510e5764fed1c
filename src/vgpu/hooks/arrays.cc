// SPDX-License-Identifier: Apache-2.0
//
// Arrays, mipmapped arrays and external memory.

#include "vgpu/loader/driver.h"
#include "vgpu/memory/allocation_size.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/sparse_multicast.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

// What was mapped into a sparse array goes with it.
template <typename Array, typename Destroy>
CUresult Destroyed(HandleKind kind, Array array, Destroy destroy) {
  if (!Active()) return destroy();
  const MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = Uncharged(kind, array, destroy);
  if (result == CUDA_SUCCESS) VmmArrayGone(KeyOf(array));
  return result;
}

}  // namespace

HAMI_EXPORT CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* shape) {
  const auto create = [&] { return real::cuArrayCreate_v2(out, shape); };
  ContextRef context;
  if (!Active() || out == nullptr || shape == nullptr || !CurrentContext(&context)) return create();
  CUDA_ARRAY3D_DESCRIPTOR flat{};
  flat.Width = shape->Width;
  flat.Height = shape->Height;
  flat.Format = shape->Format;
  flat.NumChannels = shape->NumChannels;
  return Charged(context, HandleKind::kArray, InBlocks(context.device, ArrayBytes(flat)), out, create);
}

HAMI_EXPORT CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  const auto create = [&] { return real::cuArray3DCreate_v2(out, shape); };
  ContextRef context;
  if (!Active() || out == nullptr || shape == nullptr || !CurrentContext(&context)) return create();
  return Charged(context, HandleKind::kArray, InBlocks(context.device, ArrayBytes(*shape)), out, create);
}

HAMI_EXPORT CUresult cuArrayDestroy(CUarray array) {
  return Destroyed(HandleKind::kArray, array, [&] { return real::cuArrayDestroy(array); });
}

HAMI_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                                            unsigned levels) {
  const auto create = [&] { return real::cuMipmappedArrayCreate(out, shape, levels); };
  ContextRef context;
  if (!Active() || out == nullptr || shape == nullptr || !CurrentContext(&context)) return create();
  return Charged(context, HandleKind::kMipmap, InBlocks(context.device, MipmapBytes(*shape, levels)), out, create);
}

HAMI_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return Destroyed(HandleKind::kMipmap, array, [&] { return real::cuMipmappedArrayDestroy(array); });
}

HAMI_EXPORT CUresult cuImportExternalMemory(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* what) {
  const auto import = [&] { return real::cuImportExternalMemory(out, what); };
  ContextRef context;
  if (!Active() || out == nullptr || what == nullptr || !CurrentContext(&context)) return import();
  return Charged(context, HandleKind::kExternal, InBlocks(context.device, what->size), out, import);
}

HAMI_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  return Uncharged(HandleKind::kExternal, memory, [&] { return real::cuDestroyExternalMemory(memory); });
}
