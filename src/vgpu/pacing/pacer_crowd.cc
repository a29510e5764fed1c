// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_crowd.h"

#include <atomic>

#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_quantum.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/pacing/pacer_trail.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kAtOnce = 500'000;   // who had to wait goes on with some launches, not with each
constexpr int64_t kSlack = 5'000'000;  // for a host that is slow
constexpr int64_t kVain = 4'000'000'000;
constexpr int64_t kJustNow = 20'000'000;

struct Held {
  std::atomic<uint32_t> limit;      // as the last launch saw it
  std::atomic<int64_t> vain_since;  // no mark was reached, however long launches were held; 0: not so
  std::atomic<int64_t> from;        // until then nothing is held
  std::atomic<int64_t> at;          // when one was, the last time
  std::atomic<int64_t> long_end;    // of the last launch that is longer than a quantum: of what was issued, up to here
  std::atomic<int64_t> long_cost;   // so much
};
constinit Held g_held[region::kMaxDevices]{};

// It may be for this very thread, or another one that is held, that the GPU waits. So what is in flight counts as done
// after a while, and after more of that in vain nothing is held for long.
[[gnu::cold]] void GiveUp(int device, int64_t since, int64_t now) {
  Held& held = g_held[device];
  int64_t vain_since = held.vain_since.load(std::memory_order_relaxed);
  if (vain_since <= ProgressOf(device).reached_at) vain_since = since;
  const bool vain = now - vain_since > kVain;
  held.vain_since.store(vain ? 0 : vain_since, std::memory_order_relaxed);
  if (vain) held.from.store(now + kImpatience, std::memory_order_relaxed);
  DropTrail(device);
}

Quantum QuantumOf(int device, int64_t crowd, int64_t now) {
  return PartOf(SharedQuantum(crowd), WorkersOf(device, now));
}

void Tell(int device, int64_t ahead, int64_t crowd, int64_t now) {
  TellOthersAll(device, LimitOf(device), ahead * crowd, now);
}

// What a launch that is longer than a quantum has of `ahead`. Nothing shorter need wait for it: it may be on another
// stream, and nobody waits longer for both.
int64_t LongAhead(int device, int64_t ahead) {
  const int64_t done = IssuedSoFar(device) - ahead;
  const int64_t left = g_held[device].long_end.load(std::memory_order_relaxed) - done;
  const int64_t cost = g_held[device].long_cost.load(std::memory_order_relaxed);
  return left <= 0 ? 0 : left < cost ? left : cost;
}

}  // namespace

int64_t Crowd(int device, int64_t now) {
  if (OthersKnown(device)) {
    const region::CommonView others = Others(device, now);
    const int64_t known = others.active + others.held;
    // Who has a limit is to have his turn soon when he comes.
    return known == 0 && LimitOf(device) == kSpare ? 2 : 1 + known;
  }
  return ContendedSince(device, now, now) ? 2 : 1;
}

int64_t CrowdWait(int device, int64_t cost, int64_t* since, int64_t now) {
  if (now < g_held[device].from.load(std::memory_order_relaxed)) return 0;
  const int64_t crowd = Crowd(device, now);
  if (crowd == 1) return 0;
  const Quantum quantum = QuantumOf(device, crowd, now);
  const int64_t ahead = InFlight(device, now);
  const int64_t charge = ScaleFor(device, cost);
  const int64_t excused = charge > quantum.most ? 0 : LongAhead(device, ahead);
  const int64_t wait = QuantumWait(ahead - excused, *since == 0 ? charge : charge + kAtOnce, quantum);
  if (wait == 0) return 0;
  g_held[device].at.store(now, std::memory_order_relaxed);
  if (*since == 0) *since = now;
  Tell(device, ahead, crowd, now);
  const Progress progress = ProgressOf(device);
  const int64_t in_vain = now - (progress.reached_at > *since ? progress.reached_at : *since);
  if (in_vain > kSlack) SkipLagging(device, now);
  if (in_vain <= crowd * (progress.to_next + quantum.most) + kSlack) return wait;
  GiveUp(device, *since, now);
  return 0;
}

bool CrowdHeld(int device, int64_t now) { return now - g_held[device].at.load(std::memory_order_relaxed) < kJustNow; }

void GoesInCrowd(int device, int64_t ahead, int64_t charge, int64_t crowd, int64_t now) {
  Tell(device, ahead + charge, crowd, now);
  if (UsedByOthers(device, now).longs != 0) region::GpuTimeBesideLong(AccountOf(device), now);
  if (charge <= QuantumOf(device, crowd, now).most) return;
  g_held[device].long_cost.store(charge, std::memory_order_relaxed);
  g_held[device].long_end.store(IssuedSoFar(device), std::memory_order_relaxed);
}

int64_t CrowdSpacing(int device, int64_t crowd, int64_t now) { return QuantumOf(device, crowd, now).most / 4; }

bool LoweredInCrowd(int device, int64_t now) {
  std::atomic<uint32_t>& last = g_held[device].limit;
  const uint32_t limit = LimitOf(device);
  if (last.load(std::memory_order_relaxed) == limit) return false;
  return limit < last.exchange(limit, std::memory_order_relaxed) && Crowd(device, now) > 1;
}

void ResetCrowds() {
  for (Held& held : g_held) {
    held.limit.store(0);
    held.vain_since.store(0);
    held.from.store(0);
    held.at.store(0);
    held.long_end.store(0);
    held.long_cost.store(0);
  }
}

}  // namespace hami::vgpu
