// SPDX-License-Identifier: Apache-2.0
//
// Events of ours, kept to be used again: samples, windows and trails take them from here. Guarded by the samples'
// lock.
#pragma once

#include "abi/cuda_abi.h"

namespace hami::vgpu {

// An event of the context, which must be current; nullptr when there is none to be had.
CUevent TakeEvent(CUcontext context);
void GiveEvent(CUcontext context, CUdevice ordinal, CUevent event);  // null is ignored
void DropEvents(CUcontext context, CUdevice ordinal);
void ResetEvents();

}  // namespace hami::vgpu
