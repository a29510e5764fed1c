// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_admit.h"

#include <atomic>

#include "region/process.h"
#include "vgpu/pacing/pacer_alone.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_crowd.h"
#include "vgpu/pacing/pacer_overlap.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/pacing/pacer_trail.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kChunk = 500'000;           // what a launcher that had to wait waits for
constexpr int64_t kLongestSleep = 5'000'000;  // then limits and orders are looked at again
constexpr int64_t kUnknownPoll = 20'000;
constexpr int64_t kQuietPoll = 100'000;
constexpr int64_t kCoverPoll = 50'000;
constexpr int64_t kHeldSpacing = 1;
constexpr int64_t kLargestChunk = 16'000'000;
constexpr int64_t kLeastRounds = 16;  // of all streams side by side together

constinit std::atomic<int64_t> g_cover_used[region::kMaxDevices]{};

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

// Whether it goes beside a long launch on another stream though nothing is left for it: then it costs nothing. One
// after the other they must be done by the end of that.
[[gnu::cold]] Cover GoesCovered(const Destination& to, int64_t cost, int64_t now) {
  if (cost == 0) return Cover::kNone;
  std::atomic<int64_t>& used_until = g_cover_used[to.device];
  const int64_t used = used_until.load(std::memory_order_relaxed);
  const int64_t left = t_lease.device == to.device ? t_lease.credit : 0;
  const bool paid = left >= cost;  // with what went before
  const int64_t end = (used > now ? used : now) + (paid ? 0 : cost + kLease - left);
  const Cover cover = TakeCover(to.device, to.stream, to.per_thread, end, now);
  if (cover == Cover::kGoes) used_until.store(end, std::memory_order_relaxed);
  return paid && cover == Cover::kSoon ? Cover::kGoes : cover;
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

}  // namespace

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

Admission Admit(const Destination& to, int64_t cost, bool gives_way, int64_t* now, bool* waited) {
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
    if (rate == 0) return {0};
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
    const bool measures = OthersKnown(device) && (*waited || WindowOpen());
    const bool alone = GoesOnAlone(to.kind == nullptr ? nullptr : &to.kind->estimate, device, balance, rate, *now);
    if (balance >= chunk || alone || (measures && WindowGoesOn(device, *now))) {
      // Who gives way has less in flight (AdmitQuantum).
      const int64_t wait = gives_way ? 0 : CrowdWait(device, cost + kLease, &crowded_since, *now);
      // What is let go at once after a wait is no lag.
      TellLag(device, CrowdHeld(device, *now) ? balance - ChunkOf(device, cost) : 0, *now);
      if (wait != 0) {
        region::SleepNanos(wait);
        continue;
      }
      if (measures) BeginPhaseAlone(device, false, now);
      if (!*waited && SideBySide(device) && OthersKnown(device)) BeginWindow(device, *now);
      return {rate};
    }
    if (const Cover cover = GoesCovered(to, cost, *now); cover != Cover::kNone) {
      if (cover == Cover::kGoes) return {rate, true};
      region::SleepNanos(kCoverPoll);
      continue;
    }
    // Before any phase had the GPU alone the balance says little: who waits for it would be measured last.
    if (*waited && measures && BeginPhaseAlone(device, true, now)) return {rate};
    if (!*waited) TurnWindow(device, true, *now);
    *waited = true;
    region::GpuTimeWaits(account, *now);
    TellOthers(device, LimitOf(device), 0, *now);
    TellLag(device, 0, *now);
    const int64_t missing = region::WallToEarn(ChunkOf(device, cost) - balance, rate);
    region::SleepNanos(missing < kLongestSleep ? missing : kLongestSleep);
    region::NoteThrottled(attachment(), static_cast<uint32_t>(device), static_cast<uint64_t>(MonotonicNanos() - *now));
  }
}

Quantum QuantumOf(int device, int64_t now) {
  return PartOf(Others(device, now).higher_present ? kShortQuantum : kQuantum, WorkersOf(device, now));
}

int64_t LeaseOf(const Quantum& quantum) { return quantum.most / 4 < kLease ? quantum.most / 4 : kLease; }

namespace {

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

}  // namespace

Admission AdmitLaunch(const Destination& to, int64_t cost, bool gives_way, int64_t* now, bool* waited) {
  Admission admitted{RateOf(to.device)};
  if (admitted.rate != 0 || gives_way) admitted = Admit(to, cost, gives_way, now, waited);
  if (gives_way) AdmitQuantum(to, cost, admitted.rate != 0, now, waited);
  return admitted;
}

}  // namespace hami::vgpu
