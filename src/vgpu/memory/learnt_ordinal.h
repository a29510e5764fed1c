// SPDX-License-Identifier: Apache-2.0
//
// The driver's ordinal of a device of the region, once a call has shown it. Zeros: not yet (memory.h wants that).
#pragma once

#include <atomic>

#include "abi/cuda_abi.h"

namespace hami::vgpu {

class LearntOrdinal {
 public:
  CUdevice get() const { return next_.load(std::memory_order_relaxed) - 1; }  // -1 = not known
  bool known() const { return get() >= 0; }
  void Learn(CUdevice ordinal) { next_.store(ordinal + 1, std::memory_order_relaxed); }
  void Reset() { next_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<CUdevice> next_{0};
};

}  // namespace hami::vgpu
