// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/oversubscription.h"

#include "vgpu/loader/driver.h"

namespace hami::vgpu {
namespace {

// The container holds all of the physical memory already, so that asking the driver for more is pointless.

bool PastPhysical(const ContextRef& context, uint64_t bytes) {
  size_t total = 0;
  if (real::cuDeviceTotalMem_v2(&total, context.ordinal) != CUDA_SUCCESS) return false;
  return UsedBytes(context.device) > total || bytes > total;
}

CUresult AllocateSpilled(const ContextRef& context, CUdeviceptr* out, size_t bytes) {
  const CUresult result = real::cuMemAllocManaged(out, bytes, CU_MEM_ATTACH_GLOBAL);
  if (result != CUDA_SUCCESS) return result;
  // Only advice: a system that can not follow it still has the memory.
  real::cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
  real::cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, context.ordinal);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ChargedOrSpilled(const PointerRequest& request, Allocator allocate, void* arg) {
  if (!settings().oversubscribe) return ChargedPointer(request, allocate, arg);
  return ChargedPointer(request, [=](PointerRequest* r) {
    r->flags = 0;
    const bool past = r->context.device >= 0 && PastPhysical(r->context, r->bytes);
    const CUresult result = past ? CUDA_ERROR_OUT_OF_MEMORY : allocate(r, arg);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || r->context.device == kUnlimited) return result;
    const CUresult spilled = AllocateSpilled(r->context, r->out, r->bytes);
    if (spilled != CUDA_SUCCESS) return spilled;
    r->flags = kSpilled;
    region::NoteSpilled(attachment(), static_cast<uint32_t>(r->context.device), r->bytes);
    return spilled;
  });
}

}  // namespace hami::vgpu
