// SPDX-License-Identifier: Apache-2.0
//
// What is made of a launch that was timed: what its kind is believed to cost, and what is paid for it.
#include <atomic>

#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_guess.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/pacing/pacer_timed.h"
#include "vgpu/pacing/pacer_window.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kOneStream = 20'000'000;

constinit Siblings g_siblings[region::kMaxDevices]{};
constinit std::atomic<int64_t> g_unknown_until[region::kMaxDevices]{};  // until then what passed is paid for
constinit std::atomic<int64_t> g_known_until[region::kMaxDevices]{};

void Pay(int device, int64_t gpu, int64_t now) {
  const uint32_t rate = RateOf(device);
  if (rate != 0 && gpu != 0) Charge(device, gpu, now, rate);
}

// What was charged too much comes back up to a balance of `most`.
[[gnu::cold]] int64_t PaidBack(int device, int64_t gpu, int64_t most, int64_t now) {
  const uint32_t rate = RateOf(device);
  return rate == 0 ? gpu : region::GpuTimePaidBack(AccountOf(device), gpu, most, now, rate);
}

// Among so many the GPU's time is divided now.
int64_t Sharers(int device, int64_t now) { return 1 + Others(device, now).active; }

int64_t SpareAfter(int64_t cost, int device) {
  const uint32_t rate = RateOf(device);
  return rate == 0 ? INT64_MAX : region::WallToEarn(cost, rate) - cost;
}

bool OneStream(const TimedLaunch& t) { return OneStreamSince(t.device) + kOneStream < t.launched_at; }

// Whether nothing else can have been in its way: nobody, nor another stream of this process.
bool Alone(const TimedLaunch& t, bool contended) { return !contended && OthersKnown(t.device) && OneStream(t); }

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

// It took longer by what went beside it, and that is paid here. Of its kind it says nothing.
[[gnu::cold]] void SettleCover(TimedLaunch* t, int64_t taken, int64_t now) {
  Pay(t->device, taken - t->charged, now);
  if (!t->long_told) TellUsed(t->device, taken - t->told, now);
  Free(t, true);
}

// What is measured of a kind that is forgotten, or is another one by now, is paid, and tells what others like it take.
void Settle(TimedLaunch* t, int64_t now) {
  float milliseconds = 0;
  if (real::cuEventElapsedTime(&milliseconds, t->start, t->end) == CUDA_SUCCESS) {
    const bool learns = __atomic_load_n(&t->kind->id, __ATOMIC_RELAXED) == t->kind_id;
    Estimate next = learns ? t->kind->estimate : Estimate{};
    LookAtSiblings(t->device, now);
    const bool siblings = g_siblings[t->device].until >= t->launched_at;
    const bool beside = ContendedSince(t->device, t->launched_at, now);
    const auto taken = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
    const bool all_own = OneStream(*t) || t->covers;
    const bool of_many = (beside || siblings) && taken >= kLong && all_own;
    const int64_t own = of_many ? OwnOf(t->shared, taken, beside) : 0;
    const bool contended = beside && own == 0;
    if (t->covers && !contended) return SettleCover(t, own != 0 ? own : taken, now);
    int64_t accepted = Learn(&next, own != 0 ? own : taken,
                             {.gap = t->gap,
                              .host_gap = t->host_gap,
                              .host_span = t->host_span,
                              .contended = contended,
                              .suspected = contended && !OthersKnown(t->device),
                              .siblings = siblings && own == 0,
                              .alone = own == 0 && Alone(*t, beside),
                              .told = own != 0,
                              .spare = SpareAfter(next.cost, t->device),
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

// Of a launch that is known, what it takes longer beside others is theirs.
bool BesideOthers(const TimedLaunch& t, int64_t now) {
  LookAtSiblings(t.device, now);
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
  const int64_t sharers = Sharers(t->device, now) + t->shared.seen.siblings;
  const int64_t charge = PayFor(&t->running, (now - since) / sharers);
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

}  // namespace

void MakeRoomForUnknown(int device) {
  for (TimedLaunch& t : g_timed) {
    if (t.stage.load(std::memory_order_acquire) != Stage::kPending || t.device != device) continue;
    if (t.unknown) MakeRoom(&t.running);
  }
}

[[gnu::cold]] bool OwnIsKnown(const TimedLaunch& t, int64_t now) {
  if (!BesideOthers(t, now)) return true;
  return t.running.expected >= kLong && (t.shared.told || !ContendedSince(t.device, t.launched_at, now));
}

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

[[gnu::cold]] void CollectLast(TimedLaunch* t, int64_t now) {
  if (t->unknown) t->running.room = INT64_MAX;
  Collect(t, now);
}

void SettleWindow(int device, int64_t gpu, int64_t most, int64_t now) {
  if (most != 0) gpu = PaidBack(device, gpu, most, now);
  Pay(device, gpu, now);
  TellUsed(device, gpu, now);
}

[[gnu::cold]] void ForgoUnused(int device, int64_t most, int64_t now) {
  if (const uint32_t rate = RateOf(device); rate != 0) region::GpuTimeForgo(AccountOf(device), -most, now, rate);
}

void LookAtSiblings(int device, int64_t now) { LookAt(&g_siblings[device], ChargedToOthers(device), now); }

void ResetSettled() {
  for (Siblings& siblings : g_siblings) siblings = {};
}

}  // namespace hami::vgpu
