// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/pacer_samples.h"

#include <atomic>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/policy/capture.h"
#include "vgpu/policy/pacer_common.h"
#include "vgpu/policy/pacer_events.h"
#include "vgpu/policy/pacer_guess.h"
#include "vgpu/policy/pacer_locked.h"
#include "vgpu/policy/pacer_overlap.h"
#include "vgpu/policy/pacer_shared.h"
#include "vgpu/policy/pacer_trail.h"
#include "vgpu/policy/pacer_window.h"

namespace hami::vgpu {

enum class Stage : uint8_t { kFree, kRecording, kPending };

struct TimedLaunch {
  std::atomic<Stage> stage{Stage::kFree};
  LaunchName name;
  bool unknown = false;  // of a kind that was never measured, nor guessed
  bool guessed = false;  // never measured
  bool holds = false;    // the next launches wait for it
  Gap gap = Gap::kUnsure;
  int64_t host_gap = 0;
  int64_t host_span = 0;
  int device = 0;  // zeros: nothing of a free place counts, and none of it is in the file
  CUcontext context = nullptr;
  CUdevice ordinal = 0;
  CUevent start = nullptr;
  CUevent end = nullptr;
  LaunchKind* kind = nullptr;
  uint64_t kind_id = 0;
  int64_t charged = 0;
  int64_t launched_at = 0;
  int64_t recorded_at = 0;  // the first event
  StreamName on{};
  int64_t begun_at = 0;   // of kinds that are not known; 0 = not yet, as far as is known
  bool patience = false;  // what comes behind it on its stream waits for its end,
  bool held = false;      // and something did
  int64_t charged_until = 0;
  int64_t sampled_before = 0;  // when one of its kind was; 0: all are to be
  int64_t stands_for = 0;      // what the kind was charged on the slow path since then, this one included
  Running running;             // since it was launched
  SharedTime shared;           // the same, of what may be long; zeros of all else
  int64_t told = 0;            // others know so many ns of it, as of something short
  bool long_told = false;      // or that it is under way, and long
};

namespace {

constexpr int kPlaces = 64;
constexpr int64_t kOneStream = 20'000'000;
constexpr int64_t kShareOf = 4'000'000;  // ns of all launches, to say what part one kind has
constexpr int64_t kHold = 5'000'000;     // no launch waits for a measurement for longer

constinit std::atomic<int64_t> g_timings_from{0};
constinit TimedLaunch g_timed[kPlaces]{};
constinit Siblings g_siblings[region::kMaxDevices]{};
constinit std::atomic<int> g_pending{0};
constinit std::atomic<uint32_t> g_harvests{0};
constinit std::atomic<int64_t> g_hold_until[region::kMaxDevices]{};
constinit std::atomic<int64_t> g_unknown_until[region::kMaxDevices]{};  // until then what passed is paid for
constinit std::atomic<int64_t> g_known_until[region::kMaxDevices]{};
constinit std::atomic<int64_t> g_patience_from[region::kMaxDevices]{};
constinit std::atomic<bool> g_no_place{false};  // for one that is to be timed, so that the next ones wait for a place

void Pay(int device, int64_t gpu, int64_t now) {
  const uint32_t rate = RateOf(device);
  if (rate != 0 && gpu != 0) Charge(device, gpu, now, rate);
}

// What was charged too much comes back up to a balance of `most`.
[[gnu::cold]] int64_t PaidBack(int device, int64_t gpu, int64_t most, int64_t now) {
  const uint32_t rate = RateOf(device);
  return rate == 0 ? gpu : region::GpuTimePaidBack(AccountOf(device), gpu, most, now, rate);
}

bool AnyLong(int device) {
  for (const TimedLaunch& t : g_timed) {
    if (t.stage.load(std::memory_order_acquire) == Stage::kPending && t.device == device && t.long_told) return true;
  }
  return false;
}

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

// Among so many the GPU's time is divided now.
int64_t Sharers(int device, int64_t now) { return 1 + Others(device, now).active; }

bool OneStream(const TimedLaunch& t) { return OneStreamSince(t.device) + kOneStream < t.launched_at; }

// Whether nothing else can have been in its way: nobody, nor another stream of this process.
bool Alone(const TimedLaunch& t, bool contended) { return !contended && OthersKnown(t.device) && OneStream(t); }

// What part of all launches the kind has, after enough of them.
void CountShare(LaunchKind* kind, int device) {
  const int64_t issued = IssuedSoFar(device);
  const int64_t all = issued - kind->issued;
  if (all < kShareOf) return;
  const int64_t its = __atomic_exchange_n(&kind->charged, int64_t{0}, __ATOMIC_RELAXED);
  kind->share = its < all ? its * kAllThereIs / all : kAllThereIs;
  kind->issued = issued;
}

void Remember(const Estimate& next, LaunchKind* kind) {
  Estimate* const estimate = &kind->estimate;
  __atomic_store_n(&kind->price, next.each ? 0 : next.cost, __ATOMIC_RELAXED);
  __atomic_store_n(&estimate->cost, next.cost, __ATOMIC_RELAXED);
  estimate->samples = next.samples;
  estimate->high_run = next.high_run;
  estimate->high_min = next.high_min;
  estimate->high_beside = next.high_beside;
  estimate->gapless = next.gapless;
  estimate->each = next.each;
  estimate->near_run = next.near_run;
  estimate->alone = next.alone;
  estimate->spread = next.spread;
  estimate->varies = next.varies;
  estimate->drawn_out = next.drawn_out;
  estimate->doubtful = next.doubtful;
  estimate->doubted = next.doubted;
  estimate->rare = next.rare;
  estimate->last = next.last;
  estimate->lately = next.lately;
}

// Of a kind of which one came out of all proportion: those that were not timed since the one before may have been like
// this one, so it stands for all of them.
int64_t ForUntimed(const TimedLaunch& t, int64_t accepted, int64_t now) {
  const int64_t expected = t.running.expected;
  if (expected <= 0 || t.stands_for <= expected) return 0;
  const int64_t others = (t.stands_for - expected) / expected * (accepted - expected);
  const int64_t passed = now - t.sampled_before;
  return others < passed ? others : passed;
}

// What is measured of a kind that is forgotten, or is another one by now, is paid, and tells what others like it take.
void Settle(TimedLaunch* t, int64_t now) {
  float milliseconds = 0;
  if (real::cuEventElapsedTime(&milliseconds, t->start, t->end) == CUDA_SUCCESS) {
    const bool learns = __atomic_load_n(&t->kind->id, __ATOMIC_RELAXED) == t->kind_id;
    Estimate next = learns ? t->kind->estimate : Estimate{};
    LookAt(&g_siblings[t->device], ChargedToOthers(t->device), now);
    const bool siblings = g_siblings[t->device].until >= t->launched_at;
    const bool beside = ContendedSince(t->device, t->launched_at, now);
    const auto taken = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
    const int64_t own = beside && !siblings && taken >= kLong && OneStream(*t) ? OwnOf(t->shared, taken) : 0;
    const bool contended = beside && own == 0;
    int64_t accepted = Learn(&next, own != 0 ? own : taken,
                             {.gap = t->gap,
                              .host_gap = t->host_gap,
                              .host_span = t->host_span,
                              .contended = contended,
                              .suspected = contended && !OthersKnown(t->device),
                              .siblings = siblings,
                              .alone = Alone(*t, beside),
                              .told = own != 0,
                              .sharers = t->unknown && contended ? Sharers(t->device, now) : 1,
                              .own = ScaleFor(t->device, 100)});
    const bool undoubted = learns && t->kind->estimate.doubted != 0 && next.doubted == 0;
    if (t->unknown || t->guessed) LearnKernelLocked(t->name, accepted, contended);
    if (t->guessed) accepted = AcceptGuessed(t->running.expected, accepted, contended);
    if (learns && next.rare != 0) accepted += ForUntimed(*t, accepted, now);
    if (learns) {
      if (!OneStream(*t)) CostMovesLocked(t->device, t->kind->estimate.cost, next.cost, t->kind->share);
      Remember(next, t->kind);
    }
    const int64_t due = ScaleFor(t->device, accepted) - t->charged;
    Pay(t->device, undoubted ? PaidBack(t->device, due, kMostBack, now) : due, now);
    if (!t->long_told) TellUsed(t->device, ScaleFor(t->device, accepted) - t->told, now);
  }
  Free(t, true);
}

void MakeRoom(int device) {
  for (TimedLaunch& t : g_timed) {
    if (t.stage.load(std::memory_order_acquire) != Stage::kPending || t.device != device) continue;
    if (t.unknown) MakeRoom(&t.running);
  }
}

// Of a launch that is known, what it takes longer beside others is theirs.
bool BesideOthers(const TimedLaunch& t, int64_t now) {
  LookAt(&g_siblings[t.device], ChargedToOthers(t.device), now);
  return g_siblings[t.device].until >= t.launched_at || ContendedSince(t.device, t.launched_at, now);
}

void PayForPassed(TimedLaunch* t, int64_t now) {
  // Of several, one after the other, only one is at work.
  std::atomic<int64_t>& until = (t->unknown ? g_unknown_until : g_known_until)[t->device];
  const int64_t since = t->charged_until > until ? t->charged_until : until.load();
  t->charged_until = now;
  if (real::cuEventQuery(t->start) == CUDA_ERROR_NOT_READY) return;  // it has not begun
  if (t->begun_at == 0) t->begun_at = since;
  until = now;
  if (!t->unknown && BesideOthers(*t, now)) return;
  const int64_t charge = PayFor(&t->running, (now - since) / Sharers(t->device, now));
  if (charge <= 0) return;
  t->charged += charge;
  Pay(t->device, charge, now);
}

// One that is long, or was expected to be: others are told that it is under way, and what they have meanwhile is looked
// at. One that waits for something else has no turns.
void LookAround(TimedLaunch* t, int64_t now) {
  if (t->shared.looked_at == 0 || (now - t->launched_at < kLong / 4 && !t->long_told)) return;
  const bool begun = real::cuEventQuery(t->start) == CUDA_SUCCESS;
  LookAround(&t->shared, UsedByOthers(t->device, now), begun, now);
  if (!begun || (t->running.expected < kToldAsLong && t->shared.passed < kToldAsLong)) return;
  t->long_told = true;
  TellLong(t->device, now);
  if (t->shared.seen.longs != 0) region::GpuTimeBesideLong(AccountOf(t->device), now);
  region::GpuTimeWaits(AccountOf(t->device), now);  // beside others it earns more than it gets, and is not at rest
}

// Whether all of it was there before the GPU was: its beginning is still to come. An idle GPU says so for a moment,
// too.
bool Ahead(const TimedLaunch& t, int64_t now) {
  if (t.gap == Gap::kUnsure && now - t.recorded_at < kBehind) return false;
  return real::cuEventQuery(t.start) == CUDA_ERROR_NOT_READY;
}

// A fast host has launched all it may before that shows, so it is looked at again.
void LookAhead(TimedLaunch* t, int64_t now) {
  if (t->gap == Gap::kCertain) return;
  t->gap = Ahead(*t, now) ? Gap::kNone : Gap::kUnsure;
  if (t->gap == Gap::kNone) t->host_span = 0;
}

void Collect(TimedLaunch* t, int64_t now) {
  const CUresult result = real::cuEventQuery(t->end);
  if (result == CUDA_SUCCESS) {
    Settle(t, now);
  } else if (result != CUDA_ERROR_NOT_READY) {
    Free(t, false);
  } else {
    if (t->gap == Gap::kUnsure) LookAhead(t, now);
    LookAround(t, now);
    if (t->running.room != 0 && now > t->charged_until) PayForPassed(t, now);
  }
}

// Nobody will come by again. What has not ended is paid for by the time that it had.
[[gnu::cold]] void CollectLast(TimedLaunch* t, int64_t now) {
  if (t->unknown) t->running.room = INT64_MAX;
  Collect(t, now);
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

void SettleWindow(int device, int64_t gpu, int64_t most, int64_t now) {
  if (most != 0) gpu = PaidBack(device, gpu, most, now);
  Pay(device, gpu, now);
  TellUsed(device, gpu, now);
}

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
    LookAt(&g_siblings[device], ChargedToOthers(device), MonotonicNanos());
    if (kind->estimate.samples == 0 && ticket.cost == 0) MakeRoom(device);
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
  const StreamName name = NameOf(stream, per_thread);
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
  for (Siblings& siblings : g_siblings) siblings = {};
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
