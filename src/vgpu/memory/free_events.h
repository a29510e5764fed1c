// SPDX-License-Identifier: Apache-2.0
//
// Events of ours behind frees in stream order. A program may wait for its streams by ways that tell this library
// nothing (its own events, other streams, memory that a kernel writes). An event of ours that the driver says is passed
// proves what such a wait would have. Invariant: an event stands for all that its stream was asked to let go of before
// it was recorded. Nothing ever waits for one, and none is asked about while its context may be ending, because it ends
// with it.
//
// Not for pools: a free there is too frequent, and what a pool is charged is the driver's own figure.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/memory/flags.h"
#include "vgpu/memory/pending_frees.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

struct FreeEvents {
  // When there are as many, the last of a stream moves on: what came before it is known later then.
  static constexpr size_t kMost = 64;
  struct Recorded {
    CUevent event;
    StreamId on;
    uint64_t number;  // of the youngest free that it is behind
  };

  Lock lock{LockRank::kFreeEvents};
  Recorded list[kMost] = {};  // of one stream: in its order
  size_t count = 0;

  void Reset();  // in the child of a fork

  // With the lock held. The last of the stream's, or nullptr.
  Recorded* LastOf(const StreamId& on);
  template <typename Which>
  void RemoveIf(Which which) {
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!which(static_cast<const Recorded&>(list[i]))) list[kept++] = list[i];
    }
    count = kept;
    g_memory_flags.free_events.store(kept != 0, std::memory_order_relaxed);
  }
};

// Behind what the stream has just been asked to let go of. `name` is the stream's. False: there are many by now, and it
// is time to ask.
bool RecordFreeEvent(CUstream stream, const StreamId& name);

bool TakePassedFreeEventSlow(Waited* proved);
// What the driver says now, one stream after the other; false when nothing more is proved.
inline bool TakePassedFreeEvent(Waited* proved) {
  return g_memory_flags.free_events.load(std::memory_order_relaxed) && TakePassedFreeEventSlow(proved);
}

// From now on no event of a context that is ending is asked about; for contexts.cc, once that can be seen.
void LeaveEndingFreeEvents();
// The context has ended, and its events with it.
void ForgetFreeEvents(CUcontext context);

}  // namespace hami::vgpu
