// SPDX-License-Identifier: Apache-2.0
//
// Which of the processes that NVML lists is this one. A container counts pids differently than the host, so a pid alone
// tells nothing there, and neither does appearing: other processes appear at the same moment. This process identifies
// itself by what only it knows: it takes and gives back memory of random sizes, and looks which of the listed processes
// has grown and shrunk by exactly that. Invariant: a pid is believed only when no other one fits. Refuses to guess: a
// process that NVML does not list, or lists without memory, stays unknown.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/runtime/nvml_probe.h"

namespace hami::vgpu {

// What a probe takes is a random multiple of the driver's own blocks, so that NVML shows its size to the byte.
inline constexpr uint64_t kProbeUnit = uint64_t{2} << 20;
inline constexpr uint64_t kProbeUnits = 16;
inline constexpr uint64_t kLargestProbe = kProbeUnit * kProbeUnits;

// The pids that may still be this process's. Every round of taking and giving back removes those that did not follow.
class Suspects {
 public:
  // `base`, `up`, `down`: before a probe of `bytes` was taken, while it is held, and after it was given back.
  void Round(const ProcessList& base, const ProcessList& up, const ProcessList& down, uint64_t bytes);
  // 0 = not yet.
  unsigned Found() const { return count_ == 1 && streak_ >= kRounds ? pids_[0] : 0; }
  // So many rounds without anybody who followed: NVML does not show this process.
  bool Hopeless() const { return empty_ >= kRounds; }

 private:
  static constexpr int kRounds = 2;
  static constexpr unsigned kMost = 64;
  unsigned pids_[kMost] = {};
  unsigned count_ = 0;
  int streak_ = 0;  // rounds that agreed with each other
  int empty_ = 0;
};

// `listed`: who is on the device now that this process has `context` there. True when the pid is known (NvmlPid). The
// caller alone may change this process's memory, and no other process of the container probes at the same time. `spare`
// is what it has counted and not taken: a probe of no more needs no room of its own.
bool IdentifyByPid(const ProcessList& listed);
bool IdentifyByProbe(int device, nvmlDevice_t handle, CUcontext context, uint64_t spare);

}  // namespace hami::vgpu
