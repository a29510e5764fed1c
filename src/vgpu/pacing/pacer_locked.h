// SPDX-License-Identifier: Apache-2.0
//
// The lock of samples, trails and windows, and the latter two (pacer_trail.h, pacer_window.h) as pacer_samples.h offers
// them: each call takes the lock, and what has to be recorded is recorded after it.
#pragma once

#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

extern Lock g_samples_lock;

bool SamplingStopped();  // the process ends
void ResetMarkRest();

}  // namespace hami::vgpu
