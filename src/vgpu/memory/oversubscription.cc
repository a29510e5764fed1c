// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/oversubscription.h"

#include "vgpu/loader/driver.h"

namespace hami::vgpu {

bool PastPhysical(const Place& place, uint64_t bytes) {
  size_t total = 0;
  if (real::cuDeviceTotalMem_v2(&total, place.ordinal) != CUDA_SUCCESS) return false;
  return UsedBytes(place.device) > total || bytes > total;
}

CUresult AllocateSpilled(const Place& place, CUdeviceptr* out, size_t bytes) {
  const CUresult result = real::cuMemAllocManaged(out, bytes, CU_MEM_ATTACH_GLOBAL);
  if (result != CUDA_SUCCESS) return result;
  // Only advice: a system that can not follow it still has the memory.
  real::cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
  real::cuMemAdvise(*out, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, place.ordinal);
  return CUDA_SUCCESS;
}

}  // namespace hami::vgpu
