// SPDX-License-Identifier: Apache-2.0
//
// Events of ours, kept to be used again: samples, windows and trails take them from here. Guarded by the samples'
// lock, but for recording one, which whoever took it does outside.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"

namespace hami::vgpu {

// An event of the context, which must be current; nullptr when there is none to be had.
CUevent TakeEvent(CUcontext context);
void GiveEvent(CUcontext context, CUdevice ordinal, CUevent event);  // null is ignored
void DropEvents(CUcontext context, CUdevice ordinal);
void ResetEvents();

CUresult RecordEvent(CUevent event, CUstream stream, bool per_thread);
// ns that recording took since this was called last.
int64_t TakeEventTime();

// What events take is taken from the program's launches: those that only say more exactly what is known get some 3 % of
// the time, and as much for the events that show whether a stream has work ahead.
inline constexpr int64_t kEventRest = 32;
inline constexpr int64_t kLongestRest = 20'000'000;
constexpr int64_t RestAfter(int64_t took) {
  return took < kLongestRest / kEventRest ? took * kEventRest : kLongestRest;
}

}  // namespace hami::vgpu
