// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_window.h"

#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_events.h"
#include "vgpu/pacing/pacer_overlap.h"
#include "vgpu/pacing/pacer_phase.h"
#include "vgpu/pacing/pacer_quantum.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/pacing/pacer_trail.h"
#include "vgpu/runtime/capture.h"

namespace hami::vgpu {
namespace {

constexpr int kStreams = 256;
constexpr int64_t kFirstInterval = 2'000'000;  // between windows, while little is known
constexpr int64_t kInterval = 25'000'000;
constexpr int64_t kLongest = 2'000'000'000;
constexpr int kNeverWaits = 4;                // times as many launches without a wait
constexpr int kMostTogether = 16;             // times what is waited for
constexpr int kFewLaunches = 512;             // phases end after some launches if nobody waits
constexpr int kRounds = 8;                    // on each stream; fewer say more about where phases begin and end
constexpr int64_t kLeastSpacing = 200'000;    // ns of work between marks on a stream
constexpr int64_t kLeastSum = 100'000;        // ns of launches that make a window worth its errors
constexpr int64_t kStandsFor = 8;             // times itself, at most
constexpr int64_t kAloneAgain = 400'000'000;  // for each that shares the GPU, until others are asked to be quiet again
constexpr int64_t kOverdue = 100'000'000;     // without a window, as nobody had to wait
constexpr int64_t kSeeksFor = 600'000'000;    // a window waits so long for that
constexpr int64_t kTogether = 1'600'000;      // in flight at most, of what is to stop within 2 ms
constexpr int64_t kTogetherRest = 256;        // times what it took
constexpr int64_t kDriesFor = 100'000'000;    // what goes before waits for what goes behind it, if it takes longer

enum class Phase : uint8_t { kRest, kPrime, kCount, kDone };

struct Window {
  Phase phase;
  bool bad;
  bool started;
  bool cut;            // phase two ended while the streams went on
  bool seeks, sought;  // somebody is to see, and sees, that phase two has the GPU alone
  bool together;       // phase two is a launch of each stream, all at once, behind nothing
  bool waits;          // it began with a wait, and there will be another one unless much is not known yet
  int recording;
  CUcontext context;
  CUdevice ordinal;
  CUevent start;
  int marks[2];  // MarksOf
  int64_t sum;
  int launches;
  int64_t opened_at;
  int64_t counted_from;
  int64_t quiet_until;  // others hold their launches from then until then; 0: nobody was asked, or somebody did not
  int64_t ended_at;
  int64_t expected;  // of each stream in a phase, from the windows before; 0: not known
  int64_t rest;      // after what went together, until more does
};

constinit Window g_windows[region::kMaxDevices]{};
constinit Mark g_marks[region::kMaxDevices][2][kStreams]{};
constinit Overlap g_overlap[region::kMaxDevices]{};
constinit int64_t g_settled[region::kMaxDevices]{};  // of what was issued, by earlier windows
constinit int64_t g_alone_at[region::kMaxDevices]{};
constinit std::atomic<int> g_open{0};
constinit std::atomic<int> g_done{0};

Mark* MarksOf(const Window& w, int side) { return g_marks[&w - g_windows][side]; }
Marks AllMarks(const Window& w, int side) { return {MarksOf(w, side), w.marks[side]}; }

// Whether an event is due behind what the stream has by now: behind most of what a phase is expected to hold, the first
// launch where nothing is, and then so often that two thirds are before the last one.
bool EventDue(const Window& w, const Mark& mark) {
  const int64_t spacing = mark.marked > 2 * kLeastSpacing ? mark.marked / 2 : kLeastSpacing;
  return mark.cost >= w.expected / 8 * 5 && (mark.marked == 0 || mark.cost >= mark.marked + spacing);
}

int Streams(const Window& w) { return w.marks[0] > w.marks[1] ? w.marks[0] : w.marks[1]; }

// Never within what goes together after a wait: of the one part the ragged end would be left out, and the other would
// have more of it than the whole. What goes is more than what was waited for, as more is earned meanwhile: ten times as
// much at a limit of 95. Who is charged far too little at first never waits, and that must show soon.
int MostLaunches(const Window& w) {
  const int together = (w.waits ? kMostTogether : 2) * static_cast<int>(kSideBySide) * Streams(w);
  return together > kFewLaunches ? together : kFewLaunches;
}

void Close(Window* w, int64_t now, bool events_live) {
  if (w->phase == Phase::kRest) return;
  if (events_live) {
    GiveEvent(w->context, w->ordinal, w->start);
    for (int side = 0; side < 2; ++side) {
      for (int i = 0; i < w->marks[side]; ++i) GiveEvent(w->context, w->ordinal, MarksOf(*w, side)[i].event);
    }
  }
  if (w->phase == Phase::kDone) g_done.fetch_sub(1);
  if (w->phase != Phase::kDone && g_open.fetch_sub(1) == 1) SetWindowOpen(false);
  const int64_t expected = w->expected;
  const int64_t rest = w->rest;
  *w = Window{};
  w->ended_at = now;
  w->expected = expected;
  w->rest = rest;
}

bool Open(Window* w, int64_t now) {
  if (real::cuCtxGetCurrent(&w->context) != CUDA_SUCCESS || real::cuCtxGetDevice(&w->ordinal) != CUDA_SUCCESS)
    return false;
  w->phase = Phase::kPrime;
  w->opened_at = now;
  g_open.fetch_add(1);
  SetWindowOpen(true);
  return true;
}

void BeginCount(Window* w, int64_t quiet_until, int64_t now) {
  if (w->marks[0] != 0) w->phase = Phase::kCount;
  w->launches = 0;
  w->counted_from = now;
  w->quiet_until = quiet_until;
}

void EndCount(Window* w) {
  if (w->sum < kLeastSum) w->bad = true;
  w->phase = Phase::kDone;
  g_done.fetch_add(1);
  if (g_open.fetch_sub(1) == 1) SetWindowOpen(false);
}

Mark* FindMark(Window* w, int side, const LaunchQueueKey& name) {
  for (int i = 0; i < w->marks[side]; ++i) {
    if (MarksOf(*w, side)[i].on == name) return &MarksOf(*w, side)[i];
  }
  return nullptr;
}

// What streams have in a phase, learnt for the next windows. False when too little of it is before an event: it was
// less than expected.
bool Marked(Window* w) {
  const int64_t each = w->sum / w->marks[1];
  w->expected = each < w->expected ? each : w->expected + (each - w->expected) / 4;
  return MarkedWork(AllMarks(*w, 0)) > 0 && MarkedWork(AllMarks(*w, 1)) > w->sum / 2;
}

// What was measured stands for all that was charged since the window before, by the same factor, as most is in no
// window. One that is far off says nothing about the others, but for the first that tells how much all before were.
int64_t ForAll(int device, int64_t beyond, int64_t charged, bool first) {
  const int64_t issued = IssuedSoFar(device);
  const int64_t since = issued - g_settled[device];
  g_settled[device] = issued;
  if (first && beyond < 0 && charged > 0 && since > charged)
    return beyond / charged * since + beyond % charged * since / charged;
  const bool far_off = beyond > charged / 4 || beyond < -charged / 4;
  if (far_off || charged <= 0 || since <= charged) return beyond;
  const int64_t times = since / charged < kStandsFor ? since * 16 / charged : 16 * kStandsFor;
  return beyond * times / 16;
}

// On a GPU that nobody leaves alone no phase tells how long it would have taken: the others are asked, now and then.
[[gnu::cold]] bool AloneDue(int device, int64_t since, int64_t now) {
  if (!OthersKnown(device) || !ContendedSince(device, since, now)) return false;
  if (g_overlap[device].alone == 0) return true;
  const int64_t again = g_overlap[device].alone < kEnoughAlone ? kAloneAgain / 8 : kAloneAgain;
  return now - g_alone_at[device] > again * (1 + Others(device, now).present);
}

[[gnu::cold]] bool WorthQuiet(int device, const Window& w, int64_t now) {
  return w.marks[0] >= 2 && AloneDue(device, w.opened_at, now);
}

// Whether others had the GPU in between, too. Those who were quiet begin again after that, which may be before now.
bool Contended(int device, const Window& w, int64_t end, int64_t now) {
  const bool begins_alone = w.quiet_until != 0 || w.together;
  if (!ContendedSince(device, begins_alone ? w.counted_from + 1 : w.opened_at, now)) return false;
  return now <= w.quiet_until || w.counted_from + end > w.quiet_until;
}

void CollectWindow(int device, int64_t now) {
  Window* const w = &g_windows[device];
  if (w->phase != Phase::kDone && w->phase != Phase::kRest && now - w->opened_at > kLongest) w->bad = true;
  if (w->recording != 0 || w->phase == Phase::kRest) return;
  if (w->bad) return Close(w, now, true);
  if (w->phase != Phase::kDone) return;
  int64_t before[kStreams]{};
  int64_t after[kStreams]{};
  bool failed = false;
  if (!Ends(AllMarks(*w, 1), w->start, after, &failed) || !Ends(AllMarks(*w, 0), w->start, before, &failed)) return;
  // On one stream nothing overlaps, whatever the measurement says.
  const bool alone = w->marks[0] == 1 && w->marks[1] == 1 && MarksOf(*w, 0)[0].on == MarksOf(*w, 1)[0].on;
  const bool says_nothing = w->together && w->marks[0] > 1 && w->marks[1] < 2;
  if (!failed && !says_nothing && (Marked(w) || alone)) {
    const Span span = BusyOf(AllMarks(*w, 0), before, AllMarks(*w, 1), after, w->cut);
    // Side by side none takes longer than one after the other; who has just come may not have said so.
    const bool too_long = w->quiet_until != 0 && span.end - span.begin > w->sum + w->sum / 8;
    const bool contended = too_long || Contended(device, *w, span.end, now);
    const bool long_enough = w->together || w->launches >= kRounds * Streams(*w);
    const int64_t charged = ScaleFor(device, w->sum);
    // Before any had the GPU alone: what all took turns in is divided, but so few streams can not have taken less. Who
    // is charged too little never has to wait, and is not measured.
    const bool guess = contended && g_overlap[device].alone == 0;
    const int64_t took = span.end - span.begin;
    if (w->together) w->rest = alone ? 0 : took * kTogetherRest;
    const int64_t least = took < w->sum / Streams(*w) ? took : w->sum / Streams(*w);
    const int64_t part = took / (guess ? 1 + Others(device, now).active : 1);
    const OnPhase phase{.busy = alone                   ? w->sum
                                : guess && part < least ? least
                                                        : part,
                        .sum = w->sum,
                        .streams = Streams(*w),
                        .long_enough = long_enough,
                        .contended = contended,
                        .suspected = contended && !OthersKnown(device),
                        .quiet = w->quiet_until != 0};
    if (!contended) g_alone_at[device] = now;
    if (TellsSomething(g_overlap[device], phase)) {
      const uint32_t times = g_overlap[device].alone;
      const bool unknown = times == 0;
      const int64_t beyond = Learn(&g_overlap[device], phase);
      const bool first = unknown && g_overlap[device].alone != 0;
      SettleWindow(device, contended && unknown ? beyond : ForAll(device, beyond, charged, first),
                   first && phase.quiet ? kMostBack : 0, now);
      // Others had what was lost while little was known. Used later it would be taken from their shares.
      if (phase.quiet && times < kEnoughAlone && g_overlap[device].alone >= kEnoughAlone)
        ForgoUnused(device, kMostBack, now);
    }
  }
  if (w->quiet_until != 0) EndQuiet(device, now);
  Close(w, now, !failed);
}

}  // namespace

int64_t ScaleFor(int device, int64_t cost) {
  Overlap now;
  now.factor = __atomic_load_n(&g_overlap[device].factor, __ATOMIC_RELAXED);
  return Scale(cost, now);
}

void CostMovesLocked(int device, int64_t from, int64_t to, int64_t share) {
  Overlap* const o = &g_overlap[device];
  const int64_t before = o->factor;
  CostMoves(o, from, to, share);
  // What is counted was charged by the costs and the factor before.
  if (o->factor != before) g_windows[device].sum = g_windows[device].sum * before / o->factor;
}

int StreamsOf(int device) { return __atomic_load_n(&g_overlap[device].streams, __ATOMIC_RELAXED); }

void TurnWindowLocked(int device, bool runs_dry, int64_t now) {
  Window& w = g_windows[device];
  if (w.together) return;  // WindowWaitLocked
  // As long as the GPU has work, a phase can be as long as it takes to say something.
  if (!runs_dry && w.phase != Phase::kRest && w.launches < kRounds * Streams(w)) return;
  const bool young = g_overlap[device].samples < kConfident;
  switch (w.phase) {
    case Phase::kRest:
      if (now - w.ended_at >= (young ? kFirstInterval : kInterval) && Open(&w, now)) w.waits = runs_dry && !young;
      return;
    case Phase::kPrime:
      if (runs_dry && w.sought) return;
      // Somebody has to wait before phase two can be told to have the GPU alone; most do, and nobody waits for those
      // who do not.
      if (w.launches < kNeverWaits * MostLaunches(w) && WorthQuiet(device, w, now)) {
        w.seeks = runs_dry || g_overlap[device].alone < kEnoughAlone;
        return;
      }
      BeginCount(&w, 0, now);
      return;
    case Phase::kCount:
      if (ContendedSince(device, w.counted_from + 1, now)) w.quiet_until = 0;
      EndCount(&w);
      return;
    case Phase::kDone:
      return;
  }
}

void BeginWindowLocked(int device, int64_t now) {
  const Window& w = g_windows[device];
  if (w.phase != Phase::kRest || g_overlap[device].alone >= kEnoughAlone || now - w.ended_at < kOverdue ||
      !AloneDue(device, now, now))
    return;
  TurnWindowLocked(device, false, now);
}

bool WindowSeeksQuietLocked(int device, bool first, int64_t* since) {
  Window& w = g_windows[device];
  if (w.phase != Phase::kPrime || !w.seeks || (first && g_overlap[device].alone != 0)) return false;
  w.seeks = false;
  w.sought = true;
  *since = w.opened_at;
  return true;
}

bool WindowGoesOnLocked(int device, int64_t now) {
  const Window& w = g_windows[device];
  return w.phase == Phase::kCount && now < w.quiet_until && g_overlap[device].alone == 0 &&
         w.launches < 2 * kRounds * Streams(w) && w.sum < w.quiet_until - w.counted_from;
}

void CountWindowLocked(int device, int64_t quiet_until, int64_t now) {
  Window& w = g_windows[device];
  if (w.phase != Phase::kPrime) return;
  w.sought = false;
  w.seeks = quiet_until == 0 && now - w.opened_at < kSeeksFor && WorthQuiet(device, w, now);  // soon again
  if (!w.seeks) BeginCount(&w, quiet_until, now);
}

// Whether all streams had theirs, and it says something, or no more may go. Another thread may be about to launch on
// another stream, as long as the GPU has work.
static bool EndsTogether(const Window& w, int64_t ahead, int64_t charge, int64_t wait) {
  if (w.marks[1] >= w.marks[0]) return wait != 0 || w.sum >= kLeastSum;
  return wait != 0 ? ahead + charge > kTogether : ahead <= 0 && w.launches > 0;
}

int64_t WindowWaitLocked(int device, const LaunchQueueKey& on, int64_t ahead, int64_t charge, int64_t wait,
                         int64_t now) {
  Window& w = g_windows[device];
  switch (w.phase) {
    case Phase::kRest: {
      const int64_t rest = w.rest > kInterval ? w.rest : kInterval;
      if (wait != 0 && now - w.ended_at >= rest) w.together = Open(&w, now);
      return wait;
    }
    case Phase::kPrime:
      w.together = true;
      w.seeks = w.sought = false;
      if (w.bad || w.marks[0] == 0 || w.launches < kRounds * w.marks[0]) return wait;
      if (ahead <= 0) {
        BeginCount(&w, 0, now);
        return wait;
      }
      if (now - w.opened_at > kDriesFor) w.bad = true;
      return wait > kQuantumPoll ? wait : kQuantumPoll;
    case Phase::kCount:
      if (!w.together) w.bad = true;  // it did not give way before
      if (w.bad) return wait;
      if (wait != 0 && ahead + charge <= kTogether && FindMark(&w, 1, on) == nullptr) return 0;
      if (EndsTogether(w, ahead, charge, wait)) EndCount(&w);
      return wait;
    case Phase::kDone:
      return wait;
  }
  return wait;
}

CUevent WindowStartLocked(int device) {
  Window& w = g_windows[device];
  const int64_t quiet = w.quiet_until - w.counted_from;
  if (w.phase == Phase::kCount && quiet > 0 && ScaleFor(device, w.sum) > quiet - quiet / 8) {
    w.cut = true;
    TurnWindowLocked(device, true, MonotonicNanos());
  } else if (w.launches >= MostLaunches(w)) {
    TurnWindowLocked(device, false, MonotonicNanos());
  }
  if (w.phase != Phase::kCount || w.started || w.bad) return nullptr;
  CUcontext context = nullptr;
  if (real::cuCtxGetCurrent(&context) != CUDA_SUCCESS || context != w.context) {
    w.bad = true;
    return nullptr;
  }
  const RelaxedCapture relaxed;
  w.started = true;
  w.start = TakeEvent(w.context);
  if (w.start == nullptr) w.bad = true;
  if (w.start != nullptr) ++w.recording;
  return w.start;
}

CUevent WindowMarkLocked(int device, CUstream stream, bool per_thread, int64_t cost) {
  Window& w = g_windows[device];
  if ((w.phase != Phase::kPrime && w.phase != Phase::kCount) || w.bad) return nullptr;
  const int side = w.phase == Phase::kPrime ? 0 : 1;
  if (side == 1 && !w.started) return nullptr;  // the phase turned during this launch
  ++w.launches;
  CUcontext context = nullptr;
  // Launches of unknown cost, or of another context, can not be counted.
  if (cost == 0 || real::cuCtxGetCurrent(&context) != CUDA_SUCCESS || context != w.context) {
    w.bad = true;
    return nullptr;
  }
  const LaunchQueueKey name = NameOf(stream, per_thread);
  Mark* mark = FindMark(&w, side, name);
  if (mark == nullptr) {
    if (w.marks[side] == kStreams) {
      w.bad = true;
      return nullptr;
    }
    mark = &MarksOf(w, side)[w.marks[side]++];
    *mark = {.on = name, .event = nullptr, .cost = 0, .marked = 0};
  }
  if (side == 1) w.sum += cost;
  mark->cost += cost;
  if (!EventDue(w, *mark)) return nullptr;
  if (mark->event == nullptr) {
    const RelaxedCapture relaxed;
    mark->event = TakeEvent(w.context);
    w.bad = mark->event == nullptr;
    if (w.bad) return nullptr;
  }
  mark->marked = mark->cost;
  ++w.recording;
  return mark->event;
}

void WindowRecordedLocked(int device, bool recorded) {
  Window& w = g_windows[device];
  if (w.recording > 0) --w.recording;
  if (!recorded) w.bad = true;
}

void CollectWindows(int64_t now) {
  if (g_open.load(std::memory_order_relaxed) + g_done.load(std::memory_order_relaxed) == 0) return;
  for (uint32_t device = 0; device < region::kMaxDevices; ++device) {
    CollectWindow(static_cast<int>(device), now);
  }
}

int PendingWindows() { return g_done.load(std::memory_order_relaxed) + g_open.load(std::memory_order_relaxed); }

void AbortWindows() {
  for (Window& w : g_windows) {
    if (w.phase != Phase::kRest && w.recording == 0) Close(&w, w.opened_at, true);
    if (w.phase != Phase::kRest) w.bad = true;
  }
}

[[gnu::cold]] void SkipWindowLocked(int device, int64_t until) {
  Window& w = g_windows[device];
  if (w.phase != Phase::kRest) w.bad = true;
  w.ended_at = until;
}

void ResetWindows() {
  for (Window& w : g_windows) w = Window{};
  for (int64_t& settled : g_settled) settled = 0;
  g_open.store(0);
  g_done.store(0);
}

}  // namespace hami::vgpu
