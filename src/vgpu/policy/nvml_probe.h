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
  bool own_known = false;  // NVML lists this process, and which of the list it is is known
  bool free_known = false;
  uint64_t own = 0;   // bytes this process holds on the device, as the driver counts
  uint64_t free = 0;  // physical bytes free on the device
};

// Who is on a device. Large: not for a stranger's stack.
struct ProcessList {
  static constexpr unsigned kRoom = 1024;
  unsigned count = 0;
  nvmlProcessInfo_t items[kRoom] = {};
};

Measurement Measure(nvmlDevice_t handle);
Measurement Measure(nvmlDevice_t handle, ProcessList* list);
// The same for a list taken earlier, with what has been learnt since.
void FindOwn(const ProcessList& list, Measurement* measurement);

// Learns the pid by which NVML knows this process, from lists taken just before and just after it made its first
// context: a container counts pids differently than the host. It is the own pid if that appeared; else the only one
// that did, if it holds about what the device lost and is no other process of the container. Otherwise it stays
// unknown, and only figures that need it do without.
void IdentifySelf(const ProcessList& before, const ProcessList& after, uint64_t lost_bytes);
// 0 = not known.
unsigned NvmlPid();

void ResetNvmlProbe();

}  // namespace hami::vgpu
