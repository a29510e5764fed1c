// SPDX-License-Identifier: Apache-2.0
//
// Measuring with the GPU to itself: others in the common area (pacer_common.h) are asked to hold their launches, for a
// phase of streams side by side (pacer_window.h), or for kinds of long launches. Beside others such a launch mostly
// waits for its turn first, which nobody can tell from the launch; and of what varies a mean takes many measurements.
// So while the others are quiet they are made one after the other, and paid for afterwards.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/pacing/pacer_model.h"

namespace hami::vgpu {

// Has the GPU to itself for the phase that is counted next, where that is due. True when others are quiet.
bool BeginPhaseAlone(int device, bool first, int64_t* now);

// A long launch that was seldom seen but between the slices of others: they are asked to hold theirs, now and then
// until it is known. True when they do.
bool SeekQuiet(const Estimate& kind, int device, int64_t now);
// Whether a launch goes, whatever the balance, as the others are quiet for its kind (nullptr: not known). They stay so
// until it is known or no more launches come.
bool GoesOnAlone(const Estimate* kind, int device, int64_t balance, uint32_t rate, int64_t now);

void ResetAlone();

}  // namespace hami::vgpu
