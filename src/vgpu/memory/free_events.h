// SPDX-License-Identifier: Apache-2.0
//
// Marks behind frees in stream order: events of ours. A program may wait for its streams by ways that tell this library
// nothing (events, other streams, memory that a kernel writes); a mark that the driver says is passed proves what such
// a wait would have. Invariant: a mark stands for all that its stream was asked to let go of before it was recorded;
// nobody ever waits for one, and none is asked about while its context may be ending, because it ends with it.
//
// Not for pools: a free there is too frequent, and what a pool is charged is the driver's own figure.
#pragma once

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/memory/pending_frees.h"

namespace hami::vgpu {

// Behind what the stream has just been asked to let go of. `name` is the stream's. False: there are many by now, and it
// is time to ask.
bool RecordFreeEvent(CUstream stream, const StreamId& name);

extern std::atomic<bool> g_free_events_left;
bool TakePassedFreeEventSlow(Waited* proved);
// What the driver says now, one stream after the other; false when nothing more is proved.
inline bool TakePassedFreeEvent(Waited* proved) {
  return g_free_events_left.load(std::memory_order_relaxed) && TakePassedFreeEventSlow(proved);
}

// From now on no mark of a context that is ending is asked about; for contexts.cc, once that can be seen.
void LeaveEndingFreeEvents();
// The context has ended, and its marks with it.
void ForgetFreeEvents(CUcontext context);

void ResetFreeEvents();

}  // namespace hami::vgpu
