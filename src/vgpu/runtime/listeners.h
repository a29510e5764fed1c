// SPDX-License-Identifier: Apache-2.0
//
// What happens to contexts and to the process, told to the rooms that keep something of them: memory, GPU time. The
// runtime knows none of them; hooks/listeners.cc, where all are known, says which hear of what, and in which order.
// They are told by the thread in which the thing happens.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"

namespace hami::vgpu {

// A context that has ended. `id` is the number that charges in it carry; `bytes` is what itself was charged.
struct EndedContext {
  CUcontext handle = nullptr;
  CUdevice ordinal = -1;
  int device = -1;
  uint32_t id = 0;
  uint64_t bytes = 0;
};

// A context of the program's was made on the region's device.
void TellContextMade(int device);
// Before a context may end, or all references to a primary one, with no lock held but PrimaryLock: nothing of ours may
// be left in it.
void TellContextMayEnd(CUcontext context);
void TellPrimaryMayEnd(CUdevice ordinal);
// ContextLives is false of a context from now on; the driver has not ended it yet.
void TellContextEnding();
// It did not end, though something was left to its end (LeaveToContextEnd).
void TellContextStays(uint32_t id);
// The driver has ended it.
void TellContextEnded(const EndedContext& context);
// This is the child of a fork: nothing that was known holds.
void TellForked();

}  // namespace hami::vgpu
