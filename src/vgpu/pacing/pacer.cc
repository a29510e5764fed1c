// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer.h"

#include <time.h>

#include <atomic>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer_admit.h"
#include "vgpu/pacing/pacer_alone.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_crowd.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/pacing/pacer_trail.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/device_map.h"

namespace hami::vgpu {

constinit LaunchKind g_launch_kinds[kLaunchKinds]{};
constinit thread_local Lease t_lease{};

namespace {

constexpr int64_t kNoteInterval = 100'000'000;
constexpr int64_t kResampleInterval = 5'000'000;  // of a kind that is known well
constexpr int64_t kVariesInterval = 1'000'000;    // of one that is known to vary
constexpr int64_t kSampleInterval = 500'000;      // of all of them together
constexpr int64_t kMissed = 100'000'000;
constexpr int64_t kWaitShows = kLease / 2;   // below, a host that has just waited shows in a measurement
constexpr int64_t kUnknownCost = 1'000'000;  // what others are told of a launch that was never measured
constexpr int64_t kSpacing = 225'000;        // of marks on one stream; less for a short quantum

constinit std::atomic<uint32_t> g_epoch{1};
constinit std::atomic<int32_t> g_captures{0};
constinit std::atomic<bool> g_window_open{false};
constinit std::atomic<int64_t> g_noted_at{0};
constinit std::atomic<int64_t> g_sampled_at{0};
constinit std::atomic<int> g_devices{0};  // of the driver; 0 = not asked yet

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
int64_t PayLaunch(Lease* lease, int device, int64_t cost, const Admission& admitted, bool gives_way, int64_t crowd,
                  int64_t now) {
  if (cost <= lease->credit) {
    lease->credit -= cost;
    return 0;
  }
  const uint32_t rate = admitted.rate;
  const int64_t next = gives_way ? LeaseOf(QuantumOf(device, now)) : rate != 0 ? kLease : 0;
  const int64_t taken = cost + next - lease->credit;
  const int64_t charge = ScaleFor(device, taken);
  const bool tells_all = rate == 0 || gives_way;
  const int64_t ahead = tells_all || crowd > 1 ? InFlight(device, now) : 0;
  const bool charged = rate != 0 && !admitted.covered;
  if (charged) Charge(device, charge, now, rate);
  if (charged && crowd > 1) region::GpuTimeForfeit(AccountOf(device), Concession(device, charge, rate, now), rate);
  if (charged) TellUsed(device, cost < kToldAsLong ? charge : charge - ScaleFor(device, cost), now);
  if (const int64_t begins = tells_all ? BehindOthers(device, now) : now; begins > now) BeginsAt(device, begins);
  Issued(device, charge);
  if (tells_all) {
    TellOthersAll(device, LimitOf(device), ahead + charge, now);
  } else if (crowd > 1) {
    GoesInCrowd(device, ahead, charge, crowd, now);
  } else {
    TellOthers(device, LimitOf(device), admitted.covered ? 0 : charge, now);
  }
  lease->credit = next;
  return admitted.covered ? 0 : taken;
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

bool WindowOpen() { return g_window_open.load(std::memory_order_relaxed); }

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
  const Admission admitted = AdmitLaunch({device, stream, per_thread, kind}, cost, gives_way, &now, &waited);
  const uint32_t rate = admitted.rate;

  KeepHelperAwake();  // it goes to sleep while a launch is held for seconds, and is to look at this one
  LaunchesOn(device, stream, per_thread, now);
  kind = ClaimKind(name.kind);
  cost = ExpectedCost(kind, name);  // may have been learnt while we waited
  const int64_t crowd = rate == 0 || gives_way ? 1 : Crowd(device, now);
  const int64_t taken = PayLaunch(&lease, device, cost, admitted, gives_way, crowd, now);
  __atomic_fetch_add(&kind->unsampled, kind->estimate.each ? cost : taken, __ATOMIC_RELAXED);
  __atomic_fetch_add(&kind->charged, ScaleFor(device, taken), __ATOMIC_RELAXED);
  if (cost == 0) TellOthers(device, LimitOf(device), kUnknownCost, now);
  *ticket = {.stream = stream, .cost = cost, .device = device, .per_thread = per_thread};
  ticket->elsewhere = there.elsewhere();
  ticket->in_window = WindowOpen() && !admitted.covered;
  if (ticket->in_window) EnterWindow(device, stream, per_thread);
  ticket->sample = TimeIfDue(kind, name, *ticket, waited, now);
  const Due due = TimingDue(*kind, false, now);
  const bool seeks = kind->estimate.each || (kind->estimate.samples == 0 && cost != 0) ||
                     (ticket->sample == nullptr && due == Due::kGapless && MarkToSpare(now));
  // Who is not told of others suspects them late: by then he must know what he has in flight.
  const bool looks = rate != 0 && (crowd > 1 || !OthersKnown(device));
  ticket->marks = gives_way || tells || seeks || admitted.covered || (looks && MarkToSpare(now));
  ticket->spacing = gives_way          ? QuantumOf(device, now).most / 4
                    : admitted.covered ? 1
                    : tells || seeks   ? kSpacing
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
