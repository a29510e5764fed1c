// SPDX-License-Identifier: Apache-2.0
//
// What a program sees of memory, in CUDA and NVML alike: total = min(limit, physical), used = min(container's use,
// total), free = min(total − used, physically free). Without a limit the driver's figures are unchanged. Oversubscribed
// containers see their limit. No wrap, no error, whatever the counters say.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/cuda_abi.h"

namespace hami::vgpu {

struct MemoryView {
  uint64_t total = 0;
  uint64_t used = 0;
  uint64_t free = 0;
  bool limited = false;  // false: show the driver's own figures
};
// Counts are brought up to date first: the dead, pools, modules.
MemoryView ViewOf(int device, uint64_t physical_total, uint64_t physical_free);

uint64_t VisibleTotal(int device, uint64_t physical_total);

// Rewrites what the driver answered to cuMemGetInfo; either pointer may be null.
CUresult ShowMemory(int device, size_t* free, size_t* total);

}  // namespace hami::vgpu
