// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_samples.h"

#include <atomic>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_events.h"
#include "vgpu/pacing/pacer_guess.h"
#include "vgpu/pacing/pacer_locked.h"
#include "vgpu/pacing/pacer_overlap.h"
#include "vgpu/pacing/pacer_timed.h"
#include "vgpu/pacing/pacer_trail.h"
#include "vgpu/pacing/pacer_window.h"
#include "vgpu/runtime/capture.h"

namespace hami::vgpu {

constinit TimedLaunch g_timed[kTimedPlaces]{};

namespace {

constexpr int64_t kShareOf = 4'000'000;  // ns of all launches, to say what part one kind has
constexpr int64_t kCovers = 2'000'000;   // a launch that lasts so long
constexpr int64_t kHold = 5'000'000;     // no launch waits for a measurement for longer

constinit std::atomic<int64_t> g_timings_from{0};
constinit std::atomic<int> g_pending{0};
constinit std::atomic<uint32_t> g_harvests{0};
constinit std::atomic<int64_t> g_hold_until[region::kMaxDevices]{};
constinit std::atomic<int64_t> g_patience_from[region::kMaxDevices]{};
constinit std::atomic<bool> g_no_place{false};  // for one that is to be timed, so that the next ones wait for a place

bool AnyLong(int device) {
  for (const TimedLaunch& t : g_timed) {
    if (t.stage.load(std::memory_order_acquire) == Stage::kPending && t.device == device && t.long_told) return true;
  }
  return false;
}

}  // namespace

void Free(TimedLaunch* t, bool events_live) {
  if (events_live) {
    GiveEvent(t->context, t->ordinal, t->start);
    GiveEvent(t->context, t->ordinal, t->end);
  }
  if (t->holds || g_no_place.exchange(false)) g_hold_until[t->device].store(0, std::memory_order_relaxed);
  if (t->stage.exchange(Stage::kFree, std::memory_order_acq_rel) == Stage::kPending) g_pending.fetch_sub(1);
  if (t->long_told && !AnyLong(t->device)) {
    const int64_t now = MonotonicNanos();
    TellNoLong(t->device, InFlightLocked(t->device, now), now);
  }
}

namespace {

// What part of all launches the kind has, after enough of them.
void CountShare(LaunchKind* kind, int device) {
  const int64_t issued = IssuedSoFar(device);
  const int64_t all = issued - kind->issued;
  if (all < kShareOf) return;
  const int64_t its = __atomic_exchange_n(&kind->charged, int64_t{0}, __ATOMIC_RELAXED);
  kind->share = its < all ? its * kAllThereIs / all : kAllThereIs;
  kind->issued = issued;
}

bool PendingIn(const TimedLaunch& t, CUcontext context, CUdevice ordinal) {
  const bool his = context != nullptr ? t.context == context : t.ordinal == ordinal;
  return his && t.stage.load(std::memory_order_acquire) == Stage::kPending;
}

[[gnu::cold]] bool AnyUnknownIn(CUcontext context, CUdevice ordinal) {
  const Locked locked(g_samples_lock);
  for (const TimedLaunch& t : g_timed) {
    if (t.unknown && PendingIn(t, context, ordinal) && RateOf(t.device) != 0) return true;
  }
  return false;
}

// Before it takes a context down the driver waits for the work in it, and afterwards nobody can tell how long that
// took. So what was never measured is waited for here, though not for ever.
[[gnu::cold]] void AwaitUnknown(CUcontext context, CUdevice ordinal) {
  const int64_t begin = MonotonicNanos();
  for (int64_t now = begin; now - begin < kPatience; now = MonotonicNanos()) {
    if (PendingSamples() != 0) Harvest(now);
    if (!AnyUnknownIn(context, ordinal)) return;
    region::SleepNanos(EndPoll(now - begin));
  }
}

}  // namespace

bool TimeToSpare(int64_t now) { return now >= g_timings_from.load(std::memory_order_relaxed); }

bool Capturing(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result =
      per_thread ? real::cuStreamIsCapturing_ptsz(stream, &status) : real::cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

TimedLaunch* StartTiming(LaunchKind* kind, const LaunchName& name, const Ticket& ticket, bool gapless, bool quiet) {
  const int device = ticket.device;
  if (SamplingStopped()) return nullptr;
  CUcontext context = nullptr;
  CUdevice ordinal = -1;
  if (real::cuCtxGetCurrent(&context) != CUDA_SUCCESS || real::cuCtxGetDevice(&ordinal) != CUDA_SUCCESS) return nullptr;
  TimedLaunch* t = nullptr;
  const RelaxedCapture relaxed;
  {
    const Locked locked(g_samples_lock);
    for (TimedLaunch& place : g_timed) {
      if (place.stage.load(std::memory_order_relaxed) == Stage::kFree) t = &place;
    }
    if (t == nullptr) {
      if (kind->estimate.rare == 0) return nullptr;
      g_no_place.store(true);
      g_hold_until[device].store(MonotonicNanos() + kHold, std::memory_order_relaxed);
      return nullptr;
    }
    LookAtSiblings(device, MonotonicNanos());
    if (kind->estimate.samples == 0 && ticket.cost == 0) MakeRoomForUnknown(device);
    t->start = TakeEvent(context);
    t->end = TakeEvent(context);
    if (t->start == nullptr || t->end == nullptr) {
      GiveEvent(context, ordinal, t->start);
      GiveEvent(context, ordinal, t->end);
      return nullptr;
    }
    t->stage.store(Stage::kRecording, std::memory_order_relaxed);
  }
  const int64_t now = MonotonicNanos();
  t->device = device;
  t->context = context;
  t->ordinal = ordinal;
  SetOrdinal(device, ordinal);
  t->kind = kind;
  t->kind_id = kind->id;
  t->charged = ScaleFor(device, ticket.cost);
  t->launched_at = now;
  t->charged_until = now;
  t->on = NameOf(ticket.stream, ticket.per_thread);
  t->begun_at = 0;
  t->gap = gapless ? Gap::kNone : Gap::kUnsure;
  t->name = name;
  t->unknown = kind->estimate.samples == 0 && ticket.cost == 0;
  t->guessed = kind->estimate.samples == 0 && ticket.cost != 0;
  t->running = RunningOf(ticket.cost);
  const bool may_be_long = ticket.cost == 0 || ticket.cost >= kToldAsLong;
  t->shared = may_be_long ? SharedFrom(UsedByOthers(device, now), now) : SharedTime{};
  t->told = may_be_long ? 0 : ScaleFor(device, ticket.cost);
  t->long_told = false;
  t->covers = false;
  t->held = false;
  t->patience = t->unknown && now >= g_patience_from[device].load(std::memory_order_relaxed);
  t->sampled_before = kind->estimate.each ? 0 : kind->sampled_at;
  t->stands_for = __atomic_load_n(&kind->unsampled, __ATOMIC_RELAXED);
  __atomic_store_n(&kind->unsampled, int64_t{0}, __ATOMIC_RELAXED);
  CountShare(kind, device);
  kind->sampled_at = now;
  t->holds = t->unknown || quiet;
  if (t->holds) g_hold_until[device].store(now + kHold, std::memory_order_relaxed);
  if (RecordEvent(t->start, ticket.stream, ticket.per_thread) != CUDA_SUCCESS) {
    const Locked locked(g_samples_lock);
    Free(t, true);
    return nullptr;
  }
  // Each call tells the GPU somewhere in between, so the gap is as long as one of them if both are alike. Of the two
  // the launch may take longer, but mostly for what it does when the GPU knows of it; and errors shall be for the
  // limit.
  t->recorded_at = MonotonicNanos();
  t->host_gap = (t->recorded_at - now) * 3 / 4;
  return t;
}

void StopTiming(TimedLaunch* t, CUstream stream, bool per_thread, bool launched) {
  const RelaxedCapture relaxed;
  if (launched && t->gap == Gap::kUnsure && real::cuEventQuery(t->start) == CUDA_SUCCESS) t->gap = Gap::kCertain;
  if (launched && RecordEvent(t->end, stream, per_thread) == CUDA_SUCCESS) {
    const int64_t now = MonotonicNanos();
    t->host_span = now - t->launched_at;
    // Nothing is ahead of it on its stream.
    if (t->gap == Gap::kCertain && t->running.expected >= kToldAsLong) {
      t->long_told = true;
      TellLong(t->device, now);
    }
    LookAhead(t, now);
    g_timings_from.store(now + RestAfter(TakeEventTime()), std::memory_order_relaxed);
    g_pending.fetch_add(1);
    t->stage.store(Stage::kPending, std::memory_order_release);
    return;
  }
  const Locked locked(g_samples_lock);
  Free(t, true);
}

int64_t GuessFor(const LaunchName& name) {
  if (name.handle == 0) return 0;
  const Locked locked(g_samples_lock);
  return GuessLocked(name);
}

[[gnu::cold]] void ForgetGuess(const LaunchName& name) {
  const Locked locked(g_samples_lock);
  ForgetGuessLocked(name);
  for (TimedLaunch& t : g_timed) {
    if (t.name.handle == name.handle) t.name = {};
  }
}

[[gnu::cold]] void ForgetGuesses() {
  const Locked locked(g_samples_lock);
  ResetGuesses();
  for (TimedLaunch& t : g_timed) t.name = {};
}

void Harvest(int64_t now) {
  if (SamplingStopped() || !g_samples_lock.TryAcquire()) return;
  {
    const RelaxedCapture relaxed;
    for (TimedLaunch& t : g_timed) {
      if (t.stage.load(std::memory_order_acquire) == Stage::kPending) Collect(&t, now);
    }
    CollectWindows(now);
  }
  g_harvests.fetch_add(1, std::memory_order_relaxed);
  g_samples_lock.Release();
}

uint32_t Harvests() { return g_harvests.load(std::memory_order_relaxed); }

int PendingSamples() { return g_pending.load(std::memory_order_relaxed) + PendingWindows(); }

int64_t HoldUntil(int device) { return g_hold_until[device].load(std::memory_order_relaxed); }

int64_t BehindUnknown(int device, CUstream stream, bool per_thread, int64_t now) {
  CUcontext context = nullptr;
  if (g_pending.load(std::memory_order_relaxed) == 0 || real::cuCtxGetCurrent(&context) != CUDA_SUCCESS) return 0;
  const LaunchQueueKey name = NameOf(stream, per_thread);
  const Locked locked(g_samples_lock);
  for (TimedLaunch& t : g_timed) {
    const bool ahead = t.stage.load(std::memory_order_acquire) == Stage::kPending && t.patience && t.begun_at != 0 &&
                       t.device == device && t.context == context && t.on == name;
    if (!ahead) continue;
    if (now - t.begun_at < kPatience) {
      t.held = true;
      return EndPoll(now - t.begun_at);
    }
    t.patience = false;
    if (!t.held) continue;
    HeldInVain(&t.running);
    g_patience_from[device].store(now + kImpatience, std::memory_order_relaxed);
  }
  return 0;
}

[[gnu::cold]] Cover TakeCover(int device, CUstream stream, bool per_thread, int64_t end, int64_t now) {
  if (g_pending.load(std::memory_order_relaxed) == 0) return Cover::kNone;
  const LaunchQueueKey name = NameOf(stream, per_thread);
  const RelaxedCapture relaxed;
  const Locked locked(g_samples_lock);
  for (TimedLaunch& t : g_timed) {
    if (t.stage.load(std::memory_order_acquire) != Stage::kPending || t.device != device || t.on == name) continue;
    const int64_t ends = t.launched_at + t.running.expected;
    const bool is_long = t.running.expected >= kCovers && !t.unknown && !t.guessed;
    if (!is_long || ends < end || !OwnIsKnown(t, now) || real::cuEventQuery(t.start) != CUDA_SUCCESS) continue;
    if (MarkedAheadLocked(device, name)) return Cover::kSoon;
    t.covers = true;
    SkipWindowLocked(device, ends);
    return Cover::kGoes;
  }
  return Cover::kNone;
}

[[gnu::cold]] void ForgetKind(LaunchKind* kind) {
  const Locked locked(g_samples_lock);
  for (TimedLaunch& t : g_timed) {
    if (t.kind == kind) t.kind_id = 0;
  }
  __atomic_store_n(&kind->price, int64_t{0}, __ATOMIC_RELAXED);
  __atomic_store_n(&kind->estimate.cost, int64_t{0}, __ATOMIC_RELAXED);
  kind->estimate.samples = 0;
  kind->estimate.rare = 0;
  kind->estimate.high_run = kind->estimate.near_run = 0;
}

[[gnu::cold]] void ForgetSamplesOf(CUcontext context, CUdevice ordinal) {
  AwaitUnknown(context, ordinal);
  const Locked locked(g_samples_lock);
  {
    const RelaxedCapture relaxed;
    const int64_t now = MonotonicNanos();
    for (TimedLaunch& t : g_timed) {
      if (PendingIn(t, context, ordinal)) CollectLast(&t, now);
      if (PendingIn(t, context, ordinal)) Free(&t, true);
    }
  }
  DropTrailsOf(context, ordinal);
  AbortWindows();
  DropEvents(context, ordinal);
}

[[gnu::cold]] void ResetSamples() {
  g_samples_lock.Reset();
  for (TimedLaunch& t : g_timed) t.stage.store(Stage::kFree, std::memory_order_relaxed);
  g_pending.store(0);
  g_no_place.store(false);
  for (auto& hold : g_hold_until) hold.store(0, std::memory_order_relaxed);
  for (auto& from : g_patience_from) from.store(0, std::memory_order_relaxed);
  g_timings_from.store(0);
  ResetSettled();
  ResetGuesses();
  ResetTrails();
  ResetMarkRest();
  ResetWindows();
  ResetEvents();
}

[[gnu::cold]] void HarvestLast() {
  if (SamplingStopped() || !g_samples_lock.TryAcquire()) return;
  const RelaxedCapture relaxed;
  const int64_t now = MonotonicNanos();
  for (TimedLaunch& t : g_timed) {
    if (t.stage.load(std::memory_order_acquire) == Stage::kPending) CollectLast(&t, now);
  }
  g_samples_lock.Release();
}

}  // namespace hami::vgpu
