// SPDX-License-Identifier: Apache-2.0
//
// NVML as seen from inside the container: only its own processes, with the memory the region says they use, and the
// utilisation they cause. Process ids are the container's own, because programs look them up in their /proc. What NVML
// lists of others is removed; sizes asked for with an empty buffer may therefore be larger than what is filled.
#pragma once

#include <stdint.h>

#include "abi/nvml_abi.h"

namespace hami::vgpu {

// The pid, as the container counts, of the process that NVML calls `nvml_pid`; 0 when it is none of the container's.
unsigned ContainerPid(unsigned nvml_pid);
// The other way round: what NVML calls the container's process `pid`; 0 when it is not ours.
unsigned PidInNvml(unsigned pid);
inline bool IsOurs(unsigned nvml_pid) { return ContainerPid(nvml_pid) != 0; }

// The container's processes on a region device. Returns how many there are, also beyond `room`.
struct OwnProcess {
  unsigned pid;
  uint64_t bytes;
};
unsigned OwnProcesses(int device, OwnProcess* out, unsigned room);

// Percent of the last second that the container's processes kept the device busy. False: NVML does not tell per
// process.
bool OwnUtilization(nvmlDevice_t handle, nvmlUtilization_t* out);

// The same from the region, as its processes last recorded it (the sum, at most 100).
unsigned RecordedUtilization(int device);

// Keeps the elements of an array that belong to us, under the container's pids; returns how many.
template <typename T>
unsigned KeepOurs(T* items, unsigned count) {
  unsigned kept = 0;
  for (unsigned i = 0; i < count; ++i) {
    const unsigned pid = ContainerPid(items[i].pid);
    if (pid == 0) continue;
    items[kept] = items[i];
    items[kept++].pid = pid;
  }
  return kept;
}

}  // namespace hami::vgpu
