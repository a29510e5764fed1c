// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/pacer.h"

#include <time.h>

#include <atomic>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/policy/contexts.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/pacer_alone.h"
#include "vgpu/policy/pacer_common.h"
#include "vgpu/policy/pacer_crowd.h"
#include "vgpu/policy/pacer_overlap.h"
#include "vgpu/policy/pacer_quantum.h"
#include "vgpu/policy/pacer_samples.h"
#include "vgpu/policy/pacer_trail.h"

namespace hami::vgpu {

constinit LaunchKind g_launch_kinds[kLaunchKinds]{};
constinit thread_local Lease t_lease{};

namespace {

constexpr int64_t kLease = 200'000;           // of expected cost, for one thread
constexpr int64_t kChunk = 500'000;           // what a launcher that had to wait waits for
constexpr int64_t kLongestSleep = 5'000'000;  // then limits and orders are looked at again
constexpr int64_t kUnknownPoll = 20'000;
constexpr int64_t kQuietPoll = 100'000;
constexpr int64_t kHeldSpacing = 1;
constexpr int64_t kNoteInterval = 100'000'000;
constexpr int64_t kResampleInterval = 5'000'000;  // of a kind that is known well
constexpr int64_t kVariesInterval = 1'000'000;    // of one that is known to vary
constexpr int64_t kSampleInterval = 500'000;      // of all of them together
constexpr int64_t kMissed = 100'000'000;
constexpr int64_t kWaitShows = kLease / 2;   // below, a host that has just waited shows in a measurement
constexpr int64_t kUnknownCost = 1'000'000;  // what others are told of a launch that was never measured
constexpr int64_t kSpacing = 225'000;        // of marks on one stream; less for a short quantum
constexpr int64_t kLargestChunk = 16'000'000;
constexpr int64_t kLeastRounds = 16;  // of all streams side by side together

constinit std::atomic<uint32_t> g_epoch{1};
constinit std::atomic<int32_t> g_captures{0};
constinit std::atomic<bool> g_window_open{false};
constinit std::atomic<int64_t> g_noted_at{0};
constinit std::atomic<int64_t> g_sampled_at{0};
constinit std::atomic<int> g_devices{0};  // of the driver; 0 = not asked yet

struct Destination {
  int device;
  CUstream stream;
  bool per_thread;
  const LaunchKind* kind;  // nullptr: not known
};

// Gives the GPU to those who are more important, and to the monitor's order to stop. True when there was something to
// wait for.
bool WaitWhileBlocked(int device) {
  bool waited = false;
  for (; Blocked(); waited = true) {
    WasBlocked();
    region::SleepNanos(kLongestSleep);
  }
  for (;; waited = true) {
    const int64_t now = MonotonicNanos();
    const int64_t ahead = Others(device, now).higher_until - now;
    if (ahead <= 0) return waited;
    TellOthers(device, LimitOf(device), 0, now);  // that there is somebody who waits
    region::SleepNanos(ahead < kChunk ? ahead : kChunk);
  }
}

// The monitor wants to know of launches, limited or not; twice a second would do.
void NoteLaunch(int64_t now) {
  if (now - g_noted_at.load(std::memory_order_relaxed) < kNoteInterval) return;
  g_noted_at.store(now, std::memory_order_relaxed);
  if (region::Attachment* const a = attachment(); a != nullptr) {
    timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    region::NoteLaunch(a, static_cast<uint64_t>(wall.tv_sec));
  }
}

// Lets launches pass without a look, until the helper closes the gate again. A limit that came in between closes it.
// The helper may have gone to sleep while this launch was held, and nothing else would wake it.
void OpenGate() {
  __atomic_store_n(&g_words.launches_open, 1u, __ATOMIC_SEQ_CST);
  KeepHelperAwake();
  if (AnyRate() || Blocked() || AnyWatched()) __atomic_store_n(&g_words.launches_open, 0u, __ATOMIC_RELEASE);
}

bool OnlyDevice() {
  int devices = g_devices.load(std::memory_order_relaxed);
  if (devices == 0) {
    if (real::cuDeviceGetCount(&devices) != CUDA_SUCCESS) return false;
    g_devices.store(devices, std::memory_order_relaxed);
  }
  return devices == 1;
}

// The fast path does not look whether a launch is captured, nor does it measure.
void PublishEpoch() {
  const bool fast = g_captures.load() == 0 && !g_window_open.load();
  __atomic_store_n(&g_words.lease_epoch, fast ? g_epoch.load() : 0, __ATOMIC_RELEASE);
}

LaunchKind* ClaimKind(uint64_t id) {
  LaunchKind* kind = FindKind(id);
  if (kind != nullptr) return kind;
  LaunchKind* const first = &g_launch_kinds[id % kLaunchKinds];
  LaunchKind* const second = &g_launch_kinds[(id ^ 1) % kLaunchKinds];
  kind = __atomic_load_n(&first->id, __ATOMIC_RELAXED) == 0 ? first : second;
  __atomic_store_n(&kind->price, int64_t{0}, __ATOMIC_RELAXED);
  __atomic_store_n(&kind->estimate.cost, int64_t{0}, __ATOMIC_RELAXED);
  kind->estimate = Estimate{};
  kind->sampled_at = kind->unsampled = kind->share = kind->issued = kind->charged = 0;
  __atomic_store_n(&kind->id, id, __ATOMIC_RELEASE);
  return kind;
}

// In ns; 0: nobody knows.
int64_t ExpectedCost(const LaunchKind* kind, const LaunchName& name) {
  const int64_t known = kind == nullptr ? 0 : __atomic_load_n(&kind->estimate.cost, __ATOMIC_RELAXED);
  return known != 0 ? known : GuessFor(name);
}

bool SideBySide(int device) { return ScaleFor(device, 100) < 80; }

// How much is let go at once after a wait: of streams side by side many rounds, as each release begins and ends ragged.
int64_t ChunkOf(int device, int64_t cost) {
  if (GivesWay(device)) return kChunk;
  const int64_t rounds = kLeastRounds * StreamsOf(device) * ScaleFor(device, cost);
  const int64_t many = rounds > kSideBySide * cost ? rounds : kSideBySide * cost;
  const int64_t wanted = SideBySide(device) ? many : kChunk;
  return wanted < kChunk ? kChunk : wanted < kLargestChunk ? wanted : kLargestChunk;
}

// Holds launches on the stream for somebody who measures, and tells when the ones before have ended.
void HoldForQuiet(const Destination& to, int64_t until, int64_t now) {
  bool idle = false;
  LayMark(to.device, to.stream, to.per_thread, kHeldSpacing, now);
  while (now < until && QuietUntil(to.device, now) != 0 && !Blocked()) {
    region::SleepNanos(kQuietPoll);
    now = MonotonicNanos();
    if (!idle) TellHeld(to.device, idle = !Backlogged(to.device, to.stream, to.per_thread, now), now);
  }
}

// A lower limit is in force at once: what could not be used by the old one, as others were at work, is gone, but for
// what a container at its limit has on average; and what is in flight is paid for by the new one.
[[gnu::cold]] int64_t BalanceAtLower(int device, region::GpuTimeDevice* account, uint32_t rate, int64_t cost,
                                     int64_t now) {
  region::GpuTimeBalance(account, now, rate);
  region::GpuTimeForgo(account, InFlight(device, now) - ChunkOf(device, cost) / 2, now, rate);
  return region::GpuTimeBalance(account, now, rate);
}

int64_t BalanceOf(int device, region::GpuTimeDevice* account, uint32_t rate, int64_t cost, int64_t now) {
  if (LoweredInCrowd(device, now)) return BalanceAtLower(device, account, rate, cost, now);
  const int64_t balance = region::GpuTimeBalance(account, now, rate);
  const int64_t most = ChunkOf(device, cost);
  if (balance <= most || LimitOf(device) != kSpare) return balance;
  // What others left is not saved up against them.
  region::GpuTimeForgo(account, -most, now, rate);
  return most;
}

// Waits until the account of the device lets a launch pass. Returns its rate, 0 when there is no limit (any more).
uint32_t Admit(const Destination& to, int64_t cost, bool gives_way, int64_t* now, bool* waited) {
  const int device = to.device;
  region::GpuTimeDevice* const account = AccountOf(device);
  int64_t crowded_since = 0;
  for (;;) {
    WaitWhileBlocked(device);
    const uint32_t rate = RateOf(device);
    *now = MonotonicNanos();
    if (PendingSamples() != 0) Harvest(*now);
    if (*now < HoldUntil(device)) {
      region::SleepNanos(kUnknownPoll);
      continue;
    }
    if (rate == 0) return 0;
    // What it takes is settled before the balance is looked at, so that nothing is lost by the balance's caps.
    if (const int64_t poll = BehindUnknown(device, to.stream, to.per_thread, *now); poll != 0) {
      region::SleepNanos(poll);
      continue;
    }
    if (const int64_t quiet = QuietUntil(device, *now); quiet != 0) {
      HoldForQuiet(to, quiet, *now);
      continue;
    }
    const int64_t balance = BalanceOf(device, account, rate, cost, *now);
    const int64_t chunk = *waited ? ChunkOf(device, cost) : 1;
    const bool measures = OthersKnown(device) && (*waited || g_window_open.load(std::memory_order_relaxed));
    const bool alone = GoesOnAlone(to.kind == nullptr ? nullptr : &to.kind->estimate, device, balance, rate, *now);
    if (balance >= chunk || alone || (measures && WindowGoesOn(device, *now))) {
      // Who gives way has less in flight (AdmitQuantum).
      const int64_t wait = gives_way ? 0 : CrowdWait(device, cost + kLease, &crowded_since, *now);
      if (wait != 0) {
        region::SleepNanos(wait);
        continue;
      }
      if (measures) BeginPhaseAlone(device, false, now);
      if (!*waited && SideBySide(device) && OthersKnown(device)) BeginWindow(device, *now);
      return rate;
    }
    // Before any phase had the GPU alone the balance says little: who waits for it would be measured last.
    if (*waited && measures && BeginPhaseAlone(device, true, now)) return rate;
    if (!*waited) TurnWindow(device, true, *now);
    *waited = true;
    region::GpuTimeWaits(account, *now);
    TellOthers(device, LimitOf(device), 0, *now);
    const int64_t missing = region::WallToEarn(ChunkOf(device, cost) - balance, rate);
    region::SleepNanos(missing < kLongestSleep ? missing : kLongestSleep);
    region::NoteThrottled(attachment(), static_cast<uint32_t>(device), static_cast<uint64_t>(MonotonicNanos() - *now));
  }
}

Quantum QuantumOf(int device, int64_t now) {
  return PartOf(Others(device, now).higher_present ? kShortQuantum : kQuantum, WorkersOf(device, now));
}

int64_t LeaseOf(const Quantum& quantum) { return quantum.most / 4 < kLease ? quantum.most / 4 : kLease; }

// Waits until what is in flight, and `cost` more, is a quantum at most. A peer or this very thread may have to do
// something before the GPU goes on, so there is an end to it. Who has no limit is charged nothing, so only that is
// measured which tells how much a quantum is.
void AdmitQuantum(const Destination& to, int64_t cost, bool limited, int64_t* now, bool* waited) {
  const int device = to.device;
  int64_t begin = *now;
  const Quantum quantum = QuantumOf(device, begin);
  const int64_t charge = ScaleFor(device, cost + LeaseOf(quantum));
  for (;;) {
    const int64_t ahead = InFlight(device, *now);
    int64_t wait = QuantumWait(ahead, charge, quantum);
    if (!limited) wait = WindowWait(device, to.stream, to.per_thread, ahead, charge, wait, *now);
    if (wait == 0) return;
    if (!*waited && limited) TurnWindow(device, false, *now);
    *waited = true;
    region::SleepNanos(wait);
    const bool blocked = WaitWhileBlocked(device);
    *now = MonotonicNanos();
    if (blocked) begin = *now;
    if (PendingSamples() != 0) Harvest(*now);
    if (*now - begin > 4 * (ahead + kLongestSleep)) return DropTrail(device);
  }
}

uint32_t AdmitLaunch(const Destination& to, int64_t cost, bool gives_way, int64_t* now, bool* waited) {
  uint32_t rate = RateOf(to.device);
  if (rate != 0 || gives_way) rate = Admit(to, cost, gives_way, now, waited);
  if (gives_way) AdmitQuantum(to, cost, rate != 0, now, waited);
  return rate;
}

// What is left of a lease for another device, or of another epoch, goes back where it came from.
void ReturnLease(Lease* lease, int64_t now) {
  if (lease->credit > 0 && lease->device >= 0) {
    if (const uint32_t rate = RateOf(lease->device); rate != 0) {
      const int64_t back = ScaleFor(lease->device, lease->credit);
      Charge(lease->device, -back, now, rate);
      TellUsed(lease->device, -back, now);
    }
  }
  lease->credit = 0;
}

// What the one thread of a fork's child has, before it did anything itself, is its parent's.
void ReturnLastLease(void* lease) {
  if (__atomic_load_n(&g_words.phase, __ATOMIC_ACQUIRE) != 0) ReturnLease(static_cast<Lease*>(lease), MonotonicNanos());
  *static_cast<Lease*>(lease) = {};
}

void RenewLease(Lease* lease, int device, uint32_t epoch, int64_t now) {
  if (lease->epoch == epoch && lease->device == device) return;
  if (lease->epoch == 0) WhenThreadEnds(&ReturnLastLease, lease);
  ReturnLease(lease, now);
  lease->device = device;
  lease->epoch = epoch;
  lease->only_device = OnlyDevice();
  lease->places.Clear();
  PublishEpoch();
}

// What decides which device a launch is for: its stream, or the current context, nullptr if there is none.
const void* PlaceOf(CUstream stream) {
  if (!OfCurrentContext(stream)) return stream;
  CUcontext current = nullptr;
  return real::cuCtxGetCurrent(&current) == CUDA_SUCCESS ? current : nullptr;
}

// The next launch there need not ask the driver, whose answer is of `handles` or later.
void KnowPlace(Lease* lease, CUstream stream, const OnContextOf& there, uint32_t handles) {
  if (lease->only_device || !there.there()) return;
  if (const void* const place = PlaceOf(stream); place != nullptr) lease->places.Add(place, handles);
}

enum class Due { kNo, kNow, kGapless };

// A short launch is timed only when the stream has others ahead of it (pacer_trail.h), unless that never happens.
Due TimingDue(const LaunchKind& kind, bool waited, int64_t now) {
  const Estimate& e = kind.estimate;
  if (e.samples == 0 || e.each) return Due::kNow;
  if (now - kind.sampled_at > kMissed) return Due::kNow;
  if (waited && (e.samples < kConfident || e.cost < kWaitShows)) return Due::kNo;
  if (e.samples < kConfident) return Due::kNow;
  const int64_t interval = e.spread > e.cost / 8 ? kVariesInterval : kResampleInterval;
  const bool early = now - kind.sampled_at < interval ||
                     now - g_sampled_at.load(std::memory_order_relaxed) < kSampleInterval || !TimeToSpare(now);
  if (early) return Due::kNo;
  return SeeksGapless(e, now, kind.sampled_at) ? Due::kGapless : Due::kNow;
}

TimedLaunch* TimeIfDue(LaunchKind* kind, const LaunchName& name, const Ticket& ticket, bool waited, int64_t now) {
  const Due due = TimingDue(*kind, waited, now);
  if (due == Due::kNo) return nullptr;
  const bool gapless = Backlogged(ticket.device, ticket.stream, ticket.per_thread, now);
  // Right behind another launch it may show later that the GPU is behind (Collect).
  if (!gapless && due == Due::kGapless && waited) return nullptr;
  const bool guessed = kind->estimate.samples == 0 && ticket.cost != 0;
  const bool quiet = !guessed && SeekQuiet(kind->estimate, ticket.device, now);
  g_sampled_at.store(now, std::memory_order_relaxed);
  return StartTiming(kind, name, ticket, gapless, quiet);
}

// While a window is open a launch takes no other way than it would else, but for being counted: what is slower would
// overlap less.
void CountInWindow(int device, int64_t cost, CUstream stream, bool per_thread, Ticket* ticket) {
  *ticket = {.stream = stream, .cost = cost, .device = device, .per_thread = per_thread, .in_window = true};
  EnterWindow(device, stream, per_thread);
}

// Takes `cost` from the thread's lease; a launch that costs more than a lease is charged at once, so that everybody
// sees the debt. Who only tells others what it does has no lease. Returns what was taken from the account.
int64_t PayLaunch(Lease* lease, int device, int64_t cost, uint32_t rate, bool gives_way, int64_t crowd, int64_t now) {
  if (cost <= lease->credit) {
    lease->credit -= cost;
    return 0;
  }
  const int64_t next = gives_way ? LeaseOf(QuantumOf(device, now)) : rate != 0 ? kLease : 0;
  const int64_t taken = cost + next - lease->credit;
  const int64_t charge = ScaleFor(device, taken);
  const bool tells_all = rate == 0 || gives_way;
  const int64_t ahead = tells_all || crowd > 1 ? InFlight(device, now) : 0;
  if (rate != 0) Charge(device, charge, now, rate);
  if (rate != 0) TellUsed(device, cost < kToldAsLong ? charge : charge - ScaleFor(device, cost), now);
  if (const int64_t begins = tells_all ? BehindOthers(device, now) : now; begins > now) BeginsAt(device, begins);
  Issued(device, charge);
  if (tells_all) {
    TellOthersAll(device, LimitOf(device), ahead + charge, now);
  } else if (crowd > 1) {
    GoesInCrowd(device, ahead, charge, crowd, now);
  } else {
    TellOthers(device, LimitOf(device), charge, now);
  }
  lease->credit = next;
  return taken;
}

}  // namespace

int64_t MonotonicNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

bool GoesToDeviceOf(const Lease& lease, CUstream stream) { return lease.places.Has(PlaceOf(stream), HandleEpoch()); }

void VoidLeases() {
  g_epoch.fetch_add(1);
  PublishEpoch();
}

void SetWindowOpen(bool open) {
  g_window_open.store(open);
  PublishEpoch();
}

void BeginLaunch(const LaunchName& name, CUstream stream, bool per_thread, Ticket* ticket) {
  if (!Active()) {
    __atomic_store_n(&g_words.launches_open, 1u, __ATOMIC_RELEASE);
    return;
  }
  if (g_captures.load(std::memory_order_relaxed) > 0 && Capturing(stream, per_thread)) return;
  const uint32_t handles = HandleEpoch();
  const OnContextOf there(stream);
  Place place;
  if (!CurrentPlace(&place)) return;
  Lease& lease = t_lease;
  const int device = place.device;
  const uint32_t epoch = g_epoch.load(std::memory_order_relaxed);
  LaunchKind* kind = FindKind(name.kind);
  const int64_t price = kind == nullptr ? 0 : __atomic_load_n(&kind->price, __ATOMIC_RELAXED);
  if (lease.epoch == epoch && lease.device == device && price > 0 && price <= lease.credit) {
    if (g_window_open.load(std::memory_order_relaxed)) CountInWindow(device, price, stream, per_thread, ticket);
    ticket->elsewhere = there.elsewhere();
    KnowPlace(&lease, stream, there, handles);
    lease.credit -= price;
    return;
  }
  KeepHelperAwake();
  WaitWhileBlocked(device);
  int64_t now = MonotonicNanos();
  NoteLaunch(now);
  const bool gives_way = GivesWay(device);
  const bool tells = LimitOf(device) == 0 && !gives_way && TellsOthers(device);
  if (device < 0 || (LimitOf(device) == 0 && !gives_way && !tells)) {
    TellOthersAlways(device, now);
    if (!AnyRate() && !AnyWatched()) OpenGate();
    return;
  }
  if (Capturing(stream, per_thread)) return;
  RenewLease(&lease, device, epoch, now);
  bool waited = false;
  int64_t cost = ExpectedCost(kind, name);
  const uint32_t rate = AdmitLaunch({device, stream, per_thread, kind}, cost, gives_way, &now, &waited);

  LaunchesOn(device, stream, per_thread, now);
  kind = ClaimKind(name.kind);
  cost = ExpectedCost(kind, name);  // may have been learnt while we waited
  const int64_t crowd = rate == 0 || gives_way ? 1 : Crowd(device, now);
  const int64_t taken = PayLaunch(&lease, device, cost, rate, gives_way, crowd, now);
  __atomic_fetch_add(&kind->unsampled, kind->estimate.each ? cost : taken, __ATOMIC_RELAXED);
  __atomic_fetch_add(&kind->charged, ScaleFor(device, taken), __ATOMIC_RELAXED);
  if (cost == 0) TellOthers(device, LimitOf(device), kUnknownCost, now);
  *ticket = {.stream = stream, .cost = cost, .device = device, .per_thread = per_thread};
  ticket->elsewhere = there.elsewhere();
  ticket->in_window = g_window_open.load(std::memory_order_relaxed);
  if (ticket->in_window) EnterWindow(device, stream, per_thread);
  ticket->sample = TimeIfDue(kind, name, *ticket, waited, now);
  const Due due = TimingDue(*kind, false, now);
  const bool seeks = kind->estimate.each || (kind->estimate.samples == 0 && cost != 0) ||
                     (ticket->sample == nullptr && due == Due::kGapless && MarkToSpare(now));
  // Who is not told of others suspects them late: by then he must know what he has in flight.
  const bool looks = rate != 0 && (crowd > 1 || !OthersKnown(device));
  ticket->marks = gives_way || tells || seeks || (looks && MarkToSpare(now));
  ticket->spacing = gives_way        ? QuantumOf(device, now).most / 4
                    : tells || seeks ? kSpacing
                                     : CrowdSpacing(device, crowd, now);
}

void AwaitLaunch(const LaunchName& name, CUstream stream) {
  const OnContextOf there(Active() ? stream : nullptr);
  Place place;
  if (!Active() || !CurrentPlace(&place) || place.device < 0 || RateOf(place.device) == 0) return;
  if (Capturing(stream, false)) return;
  const LaunchKind* const kind = FindKind(name.kind);
  int64_t now = 0;
  bool waited = false;
  Admit({place.device, stream, false, kind}, ExpectedCost(kind, name), GivesWay(place.device), &now, &waited);
}

void EndLaunch(Ticket* ticket, CUresult result) {
  const bool launched = result == CUDA_SUCCESS;
  const OnContextOf there(ticket->elsewhere ? ticket->stream : nullptr);
  if (ticket->sample != nullptr) StopTiming(ticket->sample, ticket->stream, ticket->per_thread, launched);
  if (ticket->in_window && launched) {
    LeaveWindow(ticket->device, ticket->stream, ticket->per_thread, ticket->cost);
  }
  if (ticket->marks && launched) {
    LayMark(ticket->device, ticket->stream, ticket->per_thread, ticket->spacing, MonotonicNanos());
  }
  // A launch that did not take place is not paid for.
  if (launched || ticket->cost <= 0 || t_lease.device != ticket->device) return;
  t_lease.credit += ticket->cost;
  if (ticket->cost >= kToldAsLong) TellUsed(ticket->device, ScaleFor(ticket->device, ticket->cost), MonotonicNanos());
}

void CaptureBegan() {
  g_captures.fetch_add(1);
  PublishEpoch();
}

void CaptureEnded() {
  if (g_captures.fetch_sub(1) <= 0) g_captures.fetch_add(1);
  PublishEpoch();
}

void GraphChanged(CUgraphExec exec) {
  if (LaunchKind* const kind = FindKind(ExecutableGraph{exec}.Kind()); kind != nullptr) ForgetKind(kind);
}

void ForgetGraph(CUgraphExec exec) {
  if (LaunchKind* const kind = FindKind(ExecutableGraph{exec}.Kind()); kind != nullptr) {
    __atomic_store_n(&kind->id, uint64_t{0}, __ATOMIC_RELAXED);
  }
  ForgetGuess(ExecutableGraph{exec}.Name());
}

void PacerEnterContext(int device) {
  const int64_t now = MonotonicNanos();
  if (device >= 0) TellOthers(device, LimitOf(device), 0, now);
}

void PacerLeaveContext(CUcontext context) { ForgetSamplesOf(context, -1); }
void PacerLeavePrimary(CUdevice ordinal) { ForgetSamplesOf(nullptr, ordinal); }

void ResetPacer() {
  g_epoch.fetch_add(1);
  g_captures.store(0);
  g_window_open.store(false);
  g_noted_at.store(0);
  g_sampled_at.store(0);
  t_lease = {};
  ResetLimits();
  ResetCrowds();
  ResetAlone();
  ResetSamples();
  ResetCommonAreas();
  ResetHelper();
}

}  // namespace hami::vgpu
