// SPDX-License-Identifier: Apache-2.0
//
// The host's own clock, and waiting for it: what a driver's call takes the thread that makes it.
#pragma once

#include "simgpu/machine/spec.h"

namespace simgpu {

// CLOCK_MONOTONIC in ns.
Nanos RealNow();
// Keeps the thread until the clock is at `end`: asleep while that is far, then by looking.
void WaitOut(Nanos end);

}  // namespace simgpu
