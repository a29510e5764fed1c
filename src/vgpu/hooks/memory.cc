// SPDX-License-Identifier: Apache-2.0
//
// Plain, pitched and managed allocations, their free, and what a program is told about memory.

#include "vgpu/loader/driver.h"
#include "vgpu/memory/allocation_size.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/oversubscription.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/queries.h"
#include "vgpu/runtime/device_map.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

HAMI_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  const auto allocate = [&] { return real::cuMemAlloc_v2(out, bytes); };
  ContextRef context;
  if (!Active() || out == nullptr || bytes == 0 || !CurrentContext(&context)) return allocate();
  return ChargedOrSpilled({context, bytes, out}, allocate);
}

// The pitch is the driver's choice; every GPU so far aligns rows to 512 bytes, and what it really was is settled after.
HAMI_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                                        unsigned element) {
  const auto allocate = [&] { return real::cuMemAllocPitch_v2(out, pitch, width, height, element); };
  ContextRef context;
  if (!Active() || out == nullptr || pitch == nullptr || width == 0 || height == 0 || !CurrentContext(&context)) {
    return allocate();
  }
  return ChargedPitch(context, {out, pitch, width, height}, allocate);
}

HAMI_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  const auto allocate = [&] { return real::cuMemAllocManaged(out, bytes, flags); };
  ContextRef context;
  if (!Active() || out == nullptr || bytes == 0 || !CurrentContext(&context)) return allocate();
  return ChargedPointer({context, bytes, out}, [&](PointerRequest*) { return allocate(); });
}

HAMI_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  const CUresult result = Uncharged(HandleKind::kPointer, pointer, [&] { return real::cuMemFree_v2(pointer); });
  AfterSynchronise();
  return result;
}

HAMI_EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  const CUresult result = real::cuMemGetInfo_v2(free, total);
  ContextRef context;
  if (result != CUDA_SUCCESS || !Active() || !CurrentContext(&context)) return result;
  return ShowMemory(context.device, free, total);
}

HAMI_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
  const CUresult result = real::cuDeviceTotalMem_v2(bytes, ordinal);
  if (result == CUDA_SUCCESS && bytes != nullptr && Active()) *bytes = VisibleTotal(DeviceOfOrdinal(ordinal), *bytes);
  return result;
}
