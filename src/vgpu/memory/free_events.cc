// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/free_events.h"

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

constinit std::atomic<bool> g_free_events_left{false};

namespace {

// When there are as many, the last of a stream moves on: what came before it is known later then.
constexpr size_t kMarks = 64;

struct Mark {
  CUevent event;
  StreamId on;
  uint64_t number;  // of the youngest free that it is behind
};
constinit Lock g_lock{LockRank::kFreeEvents};
constinit Mark g_marks[kMarks]{};  // of one stream: in its order
constinit size_t g_count = 0;

Mark* LastOf(const StreamId& on) {
  for (size_t i = g_count; i-- > 0;) {
    if (g_marks[i].on.number == on.number) return &g_marks[i];
  }
  return nullptr;
}

template <typename Which>
void RemoveLocked(Which which) {
  size_t kept = 0;
  for (size_t i = 0; i < g_count; ++i) {
    if (!which(g_marks[i])) g_marks[kept++] = g_marks[i];
  }
  g_count = kept;
  g_free_events_left.store(kept != 0, std::memory_order_relaxed);
}

// An event to record. Where there is no room for one more, the last of the stream, which then moves on.
CUevent EventFor(const StreamId& on) {
  {
    const Locked locked(g_lock);
    if (g_count == kMarks) {
      Mark* const last = LastOf(on);
      const CUevent event = last == nullptr ? nullptr : last->event;
      RemoveLocked([last](const Mark& mark) { return &mark == last; });
      return event;
    }
  }
  CUevent event = nullptr;
  return real::cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

// False: many are left.
bool AddMark(const Mark& mark) {
  const Locked locked(g_lock);
  if (g_count == kMarks || !ContextLives(mark.on.context)) return false;
  g_marks[g_count++] = mark;
  g_free_events_left.store(true, std::memory_order_relaxed);
  return g_count < kMarks / 2;
}

}  // namespace

bool RecordFreeEvent(CUstream stream, const StreamId& name) {
  if (name.number == 0 || !ContextLives(name.context) || BeingCaptured(stream)) return true;
  const RelaxedCapture relaxed;
  if (real::cuCtxPushCurrent_v2(name.context) != CUDA_SUCCESS) return true;
  bool few = true;
  if (const CUevent event = EventFor(name); event != nullptr) {
    const uint64_t number = FreesSoFar();  // before the event: all of them are on their streams already
    if (real::cuEventRecord(event, stream) == CUDA_SUCCESS) {
      few = AddMark({event, name, number});
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
  const Locked locked(g_lock);
  *proved = {};
  uint64_t standing = 0;  // the stream asked last, if it has not got there
  for (size_t i = 0; i < g_count; ++i) {
    const Mark& mark = g_marks[i];
    const bool wanted = proved->on.number == 0 ? mark.on.number != standing : mark.on.number == proved->on.number;
    if (!wanted || !ContextLives(mark.on.context)) continue;
    if (real::cuEventQuery(mark.event) == CUDA_SUCCESS) {
      proved->on.number = mark.on.number;
      if (proved->frees < mark.number) proved->frees = mark.number;
    } else if (proved->on.number == 0) {
      standing = mark.on.number;
    } else {
      break;
    }
  }
  if (proved->on.number == 0) return false;
  RemoveLocked([proved](const Mark& mark) {
    const bool passed = mark.on.number == proved->on.number && mark.number <= proved->frees;
    if (passed) real::cuEventDestroy_v2(mark.event);
    return passed;
  });
  return true;
}

void LeaveEndingFreeEvents() { const Locked locked(g_lock); }

void ForgetFreeEvents(CUcontext context) {
  const Locked locked(g_lock);
  RemoveLocked([context](const Mark& mark) { return mark.on.context == context; });
}

void ResetFreeEvents() {
  g_lock.Reset();
  g_count = 0;
  g_free_events_left.store(false, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
