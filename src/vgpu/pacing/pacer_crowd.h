// SPDX-License-Identifier: Apache-2.0
//
// What a container with a limit has in flight while others are at work. Alone its balance bounds that. Others may keep
// it from ever reaching its limit, and then the balance is never used up: it would launch as far ahead as the driver
// lets it, and a lower limit or an order to stop would have to wait for all of that. So some turns on the GPU is all
// that its processes may have in flight together then (SharedQuantum), as far as others are known (pacer_common.h) or
// suspected, and the trail (pacer_trail.h) tells.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

// Among so many containers the GPU's time is divided; 1: nobody else is known to be at work.
int64_t Crowd(int device, int64_t now);

// How long a launch of `cost` has to wait; 0: it may go. `since`: when that began, 0 at first.
int64_t CrowdWait(int device, int64_t cost, int64_t* since, int64_t now);
// Whether one had to wait just now: there is more to launch than others leave time for.
bool CrowdHeld(int device, int64_t now);
// `charge` was let go behind `ahead`: the others are told until about when that takes.
void GoesInCrowd(int device, int64_t ahead, int64_t charge, int64_t crowd, int64_t now);
// How much work there is between two marks on a stream.
int64_t CrowdSpacing(int device, int64_t crowd, int64_t now);

// True for one caller when the limit was lowered while others were at work.
bool LoweredInCrowd(int device, int64_t now);

void ResetCrowds();

}  // namespace hami::vgpu
