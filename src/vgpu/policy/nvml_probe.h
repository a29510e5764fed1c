// SPDX-License-Identifier: Apache-2.0
//
// What NVML says about the physical device, asked through the driver's own functions. NVML is initialised at the first
// question and stays so; a failure is asked again later. None of these figures is needed to enforce a limit on memory
// that has a size; they measure what has none: contexts, modules, stacks.
#pragma once

#include <stdint.h>

#include "abi/nvml_abi.h"

namespace hami::vgpu {

// NVML can be asked.
bool NvmlReady();

struct Measurement {
  bool own_known = false;   // NVML lists this process
  bool free_known = false;
  uint64_t own = 0;   // bytes this process holds on the device, as the driver counts
  uint64_t free = 0;  // physical bytes free on the device
};
Measurement Measure(nvmlDevice_t handle);

// The pid by which NVML knows this process; the own pid unless the host's is known to differ.
unsigned NvmlPid();

}  // namespace hami::vgpu
