// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_alone.h"

#include <atomic>

#include "region/process.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_samples.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kQuietPoll = 100'000;
constexpr int64_t kDrain = 10'000'000;         // at least, to begin at all
constexpr int64_t kLongestDrain = 30'000'000;  // what seven others have in flight takes up to 27
constexpr int64_t kLeastAlone = 10'000'000;    // of the time that others are quiet, for what is measured then
constexpr int64_t kLeastQuiet = 20'000'000;
constexpr int64_t kLate = 20'000'000;     // who neither told nor began anything for so long has nothing in flight
constexpr int64_t kGoesOn = 5'000'000;    // so soon the next launch comes, of those that are measured one after another
constexpr int64_t kCredit = 100'000'000;  // and they are paid for within that

// Until then others hold their launches for kinds that are measured, or until so many of one were.
constinit std::atomic<int64_t> g_alone_until[region::kMaxDevices]{};
constinit std::atomic<uint32_t> g_alone_enough[region::kMaxDevices]{};

// Waits until what the others have in flight has ended, but for `longest` at most. Who shares the GPU ends later than
// he expects: with `late`, only those who hold their launches, and see that they are done, are taken at their word.
[[gnu::cold]] bool Drained(int device, int64_t longest, int64_t late, int64_t now) {
  for (const int64_t end = now + longest; now < end; now = MonotonicNanos()) {
    const region::CommonView others = Others(device, now);
    if ((late == 0 ? others.active_until : others.under_way + late) <= now) return true;
    region::SleepNanos(kQuietPoll);
  }
  return false;
}

void EndAlone(int device, int64_t now) {
  if (g_alone_until[device].exchange(0, std::memory_order_relaxed) != 0) EndQuiet(device, now);
}

}  // namespace

[[gnu::cold]] bool BeginPhaseAlone(int device, bool first, int64_t* now) {
  int64_t since = 0;
  if (!WindowSeeksQuiet(device, first, &since)) return false;
  const int64_t asked_at = *now;
  const int64_t until = GivesWay(device) ? 0 : AskForQuiet(device, region::kCommonQuiet, kLeastQuiet, since, asked_at);
  const bool asked = until != 0;
  const bool quiet = asked && Drained(device, until - kLeastAlone - asked_at, kLate, asked_at);
  *now = MonotonicNanos();
  if (asked && !quiet) EndQuiet(device, *now);
  CountWindow(device, quiet ? until : 0, *now);
  return quiet;
}

[[gnu::cold]] bool SeekQuiet(const Estimate& kind, int device, int64_t now) {
  std::atomic<int64_t>& alone_until = g_alone_until[device];
  const bool alone = now < alone_until.load(std::memory_order_relaxed);
  if (alone || !WantsQuiet(kind)) return false;
  // Who has no limit only has to know what is in flight, and would ask for each: nothing goes on credit there.
  if (kind.alone >= kEnoughAlone && LimitOf(device) == 0) return false;
  // What has to be waited for first is not known, and given back as far as it was less. For a better mean there is
  // time.
  const bool better = kind.alone >= kEnoughAlone;
  const int64_t measuring = kind.samples == 0 ? kDrain : 2 * kind.cost;
  const int64_t drain = better ? kDrain : kLongestDrain;
  const int64_t until = AskForQuiet(device, drain + measuring, kDrain + (better ? measuring : 0), now, now);
  if (until == 0) return false;
  if (!Drained(device, until - now < drain ? until - now : drain, 0, now)) {
    EndQuiet(device, MonotonicNanos());
    return false;
  }
  // All who share the GPU are to have their first ones soon, out of the time that others grant.
  g_alone_enough[device].store(kind.alone < kConfident ? kConfident : kMean, std::memory_order_relaxed);
  alone_until.store(until, std::memory_order_relaxed);
  return true;
}

bool GoesOnAlone(const Estimate* kind, int device, int64_t balance, uint32_t rate, int64_t now) {
  std::atomic<int64_t>& alone_until = g_alone_until[device];
  const int64_t until = alone_until.load(std::memory_order_relaxed);
  if (until == 0 || kind == nullptr || kind->cost < kWorthQuiet) return false;
  const bool enough = kind->alone >= g_alone_enough[device].load(std::memory_order_relaxed);
  const bool goes = now < until && !enough && WantsQuiet(*kind) && balance > -region::GpuTimeEarned(kCredit, rate);
  if (goes) {
    alone_until.store(ProlongQuiet(device, kGoesOn + 2 * kind->cost, now), std::memory_order_relaxed);
  } else {
    EndAlone(device, now);
  }
  return goes;
}

void ResetAlone() {
  for (std::atomic<int64_t>& until : g_alone_until) until.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
