// SPDX-License-Identifier: Apache-2.0
//
// Which calls write memory that others share, found without performance counters: all that libvgpu.so may write (its
// data, what it mapped, the regions; not the calling thread's own storage) is read-only when the call begins, so that
// the first write to each page of it is a fault, which is counted and let through. Faults of other threads are let
// through alone. Calls are to be looked at one at a time; what another thread has just made writable is not seen.
#pragma once

#include <cstddef>

namespace writes {

// What there is now is watched. False: libvgpu.so is not loaded, or its memory can not be made read-only.
bool Watch();
std::size_t WatchedBytes();

// Around a call of this thread.
void Begin();
// How many pages it wrote.
int End();

}  // namespace writes
