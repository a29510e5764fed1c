// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/free_events.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/memory.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/contexts.h"

namespace hami::vgpu {

namespace {

using Recorded = FreeEvents::Recorded;

// An event to record. Where there is no room for one more, the last of the stream, which then moves on.
CUevent EventFor(const StreamId& on) {
  {
    FreeEvents& events = g_memory.free_events;
    const Locked locked(events.lock);
    if (events.count == FreeEvents::kMost) {
      Recorded* const last = events.LastOf(on);
      const CUevent event = last == nullptr ? nullptr : last->event;
      events.RemoveIf([last](const Recorded& one) { return &one == last; });
      return event;
    }
  }
  CUevent event = nullptr;
  return real::cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

// False: many are left.
bool Add(const Recorded& one) {
  FreeEvents& events = g_memory.free_events;
  const Locked locked(events.lock);
  if (events.count == FreeEvents::kMost || !ContextLives(one.on.context)) return false;
  events.list[events.count++] = one;
  g_memory_flags.free_events.store(true, std::memory_order_relaxed);
  return events.count < FreeEvents::kMost / 2;
}

}  // namespace

bool RecordFreeEvent(CUstream stream, const StreamId& name) {
  if (name.number == 0 || !ContextLives(name.context) || BeingCaptured(stream)) return true;
  const RelaxedCapture relaxed;
  if (real::cuCtxPushCurrent_v2(name.context) != CUDA_SUCCESS) return true;
  bool few = true;
  if (const CUevent event = EventFor(name); event != nullptr) {
    const uint64_t number = g_memory.pools.frees.SoFar();  // before the event: all of them are on their streams already
    if (real::cuEventRecord(event, stream) == CUDA_SUCCESS) {
      few = Add({event, name, number});
    } else {
      real::cuEventDestroy_v2(event);
    }
  }
  CUcontext popped = nullptr;
  real::cuCtxPopCurrent_v2(&popped);
  return few;
}

bool TakePassedFreeEventSlow(Waited* proved) {
  const RelaxedCapture relaxed;
  FreeEvents& events = g_memory.free_events;
  const Locked locked(events.lock);
  *proved = {};
  uint64_t standing = 0;  // the stream asked last, if it has not got there
  for (size_t i = 0; i < events.count; ++i) {
    const Recorded& one = events.list[i];
    const bool wanted = proved->on.number == 0 ? one.on.number != standing : one.on.number == proved->on.number;
    if (!wanted || !ContextLives(one.on.context)) continue;
    if (real::cuEventQuery(one.event) == CUDA_SUCCESS) {
      proved->on.number = one.on.number;
      if (proved->frees < one.number) proved->frees = one.number;
    } else if (proved->on.number == 0) {
      standing = one.on.number;
    } else {
      break;
    }
  }
  if (proved->on.number == 0) return false;
  events.RemoveIf([proved](const Recorded& one) {
    const bool passed = one.on.number == proved->on.number && one.number <= proved->frees;
    if (passed) real::cuEventDestroy_v2(one.event);
    return passed;
  });
  return true;
}

void LeaveEndingFreeEvents() { const Locked locked(g_memory.free_events.lock); }

void ForgetFreeEvents(CUcontext context) {
  const Locked locked(g_memory.free_events.lock);
  g_memory.free_events.RemoveIf([context](const Recorded& one) { return one.on.context == context; });
}

FreeEvents::Recorded* FreeEvents::LastOf(const StreamId& on) {
  for (size_t i = count; i-- > 0;) {
    if (list[i].on.number == on.number) return &list[i];
  }
  return nullptr;
}

void FreeEvents::Reset() {
  lock.Reset();
  count = 0;
  g_memory_flags.free_events.store(false, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
