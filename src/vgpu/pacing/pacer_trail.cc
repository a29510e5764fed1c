// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_trail.h"

#include <atomic>

#include "region/layout.h"
#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer_events.h"
#include "vgpu/runtime/capture.h"

namespace hami::vgpu {
namespace {

constexpr uint32_t kMarks = 64;

struct Mark {
  CUevent event;
  CUcontext context;
  CUdevice ordinal;
  LaunchQueueKey on;
  int64_t issued;  // up to here
  int64_t at;      // 0 = not recorded yet
};

struct Trail {
  Mark marks[kMarks];
  uint32_t first;
  uint32_t count;
  int64_t done;
  int64_t idle;         // done when nothing was in flight, lately
  int64_t front_since;  // when what comes next was begun, as far as that is known
  int64_t looked_at;    // the first of the marks was not reached then
  int64_t reached_at;   // one was
  std::atomic<int64_t> issued;

  Mark& at(uint32_t i) { return marks[(first + i) % kMarks]; }
};

constinit Trail g_trails[region::kMaxDevices]{};

// Which stream was launched on last, and since when.
struct LastStream {
  std::atomic<const void*> stream;
  std::atomic<const void*> thread;
  std::atomic<int64_t> since;
  std::atomic<bool> known;
};
constinit LastStream g_last_stream[region::kMaxDevices]{};
constinit thread_local char t_self = 0;

void PopFirst(Trail* t, bool events_live, int64_t now) {
  Mark& mark = t->at(0);
  if (events_live) GiveEvent(mark.context, mark.ordinal, mark.event);
  const int64_t due = t->front_since + mark.issued - t->done;
  t->front_since = due < t->looked_at ? t->looked_at : due < now ? due : now;
  t->done = mark.issued;
  t->first = (t->first + 1) % kMarks;
  --t->count;
}

}  // namespace

LaunchQueueKey NameOf(CUstream stream, bool per_thread) {
  const bool own = stream == CU_STREAM_PER_THREAD || (per_thread && stream == nullptr);
  if (own) return {CU_STREAM_PER_THREAD, &t_self};
  return {stream == CU_STREAM_LEGACY ? nullptr : stream, nullptr};
}

void LaunchesOn(int device, CUstream stream, bool per_thread, int64_t now) {
  const LaunchQueueKey name = NameOf(stream, per_thread);
  LastStream& last = g_last_stream[device];
  const bool same = last.stream.load(std::memory_order_relaxed) == name.stream && last.thread == name.thread;
  if (same && last.known.load(std::memory_order_relaxed)) return;
  last.stream.store(name.stream, std::memory_order_relaxed);
  last.thread.store(name.thread, std::memory_order_relaxed);
  // Before the first launch of all there is nothing on any other.
  last.since.store(last.known.exchange(true) ? now : 0, std::memory_order_relaxed);
}

int64_t OneStreamSince(int device) { return g_last_stream[device].since; }

void Issued(int device, int64_t cost) { g_trails[device].issued.fetch_add(cost, std::memory_order_relaxed); }

int64_t IssuedSoFar(int device) { return g_trails[device].issued.load(std::memory_order_relaxed); }

int64_t InFlightLocked(int device, int64_t now) {
  Trail& t = g_trails[device];
  if (t.count > 0) {
    const RelaxedCapture relaxed;
    while (t.count > 0 && t.at(0).at > 0) {
      const CUresult result = real::cuEventQuery(t.at(0).event);
      if (result == CUDA_ERROR_NOT_READY) break;
      t.reached_at = now;
      PopFirst(&t, result == CUDA_SUCCESS, now);
    }
  }
  t.looked_at = now;
  // Of what lies before the first mark, or behind the last one that was reached, the time that passed is taken for
  // done.
  const int64_t issued = t.issued.load(std::memory_order_relaxed);
  const int64_t front = (t.count > 0 ? t.at(0).issued : issued) - t.done;
  const int64_t passed = now > t.front_since ? now - t.front_since : 0;
  if (t.count == 0 && passed >= front) {
    t.done = t.idle = issued;
    t.front_since = now;
    return 0;
  }
  return issued - t.done - (passed < front ? passed : front);
}

[[gnu::cold]] bool OverdueLocked(int device, int64_t by, int64_t now) {
  Trail& t = g_trails[device];
  if (t.count == 0) return false;
  InFlightLocked(device, now);
  return t.count > 0 && t.at(0).at > 0 && now - t.front_since > t.at(0).issued - t.done + by;
}

void BeginsAtLocked(int device, int64_t at) {
  Trail& t = g_trails[device];
  if (t.done == t.idle && at > t.front_since) t.front_since = at;
}

[[gnu::cold]] void SkipLaggingLocked(int device, int64_t now) {
  Trail& t = g_trails[device];
  const RelaxedCapture relaxed;
  uint32_t reached = 0;
  for (uint32_t i = 0; i < t.count && t.at(i).at > 0; ++i) {
    if (real::cuEventQuery(t.at(i).event) == CUDA_SUCCESS) reached = i + 1;
  }
  if (reached != 0) t.reached_at = now;
  for (; reached > 0; --reached) PopFirst(&t, true, now);
}

Progress ProgressLocked(int device) {
  Trail& t = g_trails[device];
  return {t.reached_at, t.count == 0 ? 0 : t.at(0).issued - t.done};
}

CUevent LayMarkLocked(int device, CUstream stream, bool per_thread, int64_t spacing, int64_t now) {
  Trail& t = g_trails[device];
  InFlightLocked(device, now);  // makes room
  const LaunchQueueKey name = NameOf(stream, per_thread);
  const int64_t issued = t.issued.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < t.count; ++i) {
    if (t.at(i).on == name && issued - t.at(i).issued < spacing) return nullptr;
  }
  CUcontext context = nullptr;
  CUdevice ordinal = -1;
  if (t.count == kMarks || real::cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
      real::cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) {
    return nullptr;
  }
  const RelaxedCapture relaxed;
  const CUevent event = TakeEvent(context);
  if (event == nullptr) return nullptr;
  t.at(t.count++) = {event, context, ordinal, name, issued, -now};
  return event;
}

void MarkLaidLocked(int device, CUevent event, bool recorded) {
  Trail& t = g_trails[device];
  for (uint32_t i = 0; i < t.count; ++i) {
    Mark& mark = t.at(i);
    if (mark.event != event) continue;
    mark.at = -mark.at;
    if (!recorded) return DropTrailLocked(device, false);
  }
}

namespace {

// Whether one that was laid before then is not.
[[gnu::cold]] bool AnyAhead(int device, const LaunchQueueKey& name, int64_t before) {
  Trail& t = g_trails[device];
  const RelaxedCapture relaxed;
  for (uint32_t i = 0; i < t.count; ++i) {
    const Mark& mark = t.at(i);
    if (mark.at <= 0 || mark.at > before || !(mark.on == name)) continue;
    if (real::cuEventQuery(mark.event) == CUDA_ERROR_NOT_READY) return true;
  }
  return false;
}

// Makes room for another mark where all are behind one that is not reached: of those on other streams than its own
// some are. What was issued up to there counts with the next one.
[[gnu::cold]] bool MakeRoom(Trail* t) {
  if (t->count < kMarks) return true;
  const RelaxedCapture relaxed;
  for (uint32_t i = 1; i + 1 < t->count; ++i) {
    if (t->at(i).at <= 0 || real::cuEventQuery(t->at(i).event) != CUDA_SUCCESS) continue;
    GiveEvent(t->at(i).context, t->at(i).ordinal, t->at(i).event);
    for (--t->count; i < t->count; ++i) t->at(i) = t->at(i + 1);
    return true;
  }
  return false;
}

}  // namespace

bool BackloggedLocked(int device, CUstream stream, bool per_thread, int64_t now) {
  return AnyAhead(device, NameOf(stream, per_thread), now - kBehind);
}

[[gnu::cold]] bool MarkedAheadLocked(int device, const LaunchQueueKey& name) {
  return AnyAhead(device, name, INT64_MAX) || !MakeRoom(&g_trails[device]);
}

[[gnu::cold]] void DropTrailLocked(int device, bool events_live) {
  Trail& t = g_trails[device];
  while (t.count > 0) PopFirst(&t, events_live && t.at(0).at > 0, 0);
  t.done = t.idle = t.issued.load(std::memory_order_relaxed);
}

[[gnu::cold]] void DropTrailsOf(CUcontext context, CUdevice ordinal) {
  for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) {
    Trail& t = g_trails[device];
    bool his = false;
    for (uint32_t i = 0; i < t.count; ++i) {
      his |= context != nullptr ? t.at(i).context == context : t.at(i).ordinal == ordinal;
    }
    if (his) DropTrailLocked(device, true);
  }
}

void ResetTrails() {
  for (Trail& t : g_trails) {
    t.count = 0;
    t.done = t.idle = t.front_since = t.looked_at = t.reached_at = 0;
    t.issued.store(0, std::memory_order_relaxed);
  }
  for (LastStream& last : g_last_stream) {
    last.stream.store(nullptr);
    last.thread.store(nullptr);
    last.since.store(0);
    last.known.store(false);
  }
}

}  // namespace hami::vgpu
