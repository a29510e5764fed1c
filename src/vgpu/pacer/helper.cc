// SPDX-License-Identifier: Apache-2.0
//
// The helper thread. It looks for changed limits, orders and neighbours every 10 ms while the program launches,
// collects measurements nobody else came by for, and for one that is more important than others looks every 0.15 ms
// whether its work has ended. Once a second it asks NVML what a limited process had. It sleeps for good while nothing
// is launched. It is started by the first launch, with all signals blocked but those of faults, and is not there in the
// child of a fork until that launches something.
#include <stdlib.h>

#include "region/keep_errno.h"
#include "region/process.h"
#include "vgpu/pacer/pacer.h"
#include "vgpu/pacer/shell.h"
#include "vgpu/runtime/threads.h"

namespace hami::vgpu::pacer {
namespace {

constexpr int64_t kTick = 10'000'000;
constexpr int64_t kWatch = 150'000;
constexpr int64_t kReport = 500'000'000;  // one launch in that reports itself to the monitor
constexpr int64_t kIdle = 1'000'000'000;
constexpr int64_t kAsk = 1'000'000'000;  // NVML's figures are of the last 1/6 to 1 s
constexpr int64_t kForGood = 1'000'000'000'000;

Helper& State() { return g_shell.helper; }

struct Asking {
  Asking() { State().asks.store(true); }
  ~Asking() { State().asks.store(false); }
};

// Of all devices: what leases depend on, in one number; whether launches are held by anything, whether the end of
// something is watched for, and whether a mark is not reached.
struct Round {
  uint64_t orders = 0;
  bool binds = false, watch = false, pending = false;
};

// Without the device's lock, as NVML may take its time.
void AskNvml(int index, DeviceTime* device, int64_t now) {
  if (now - device->asked_at < kAsk) return;
  device->asked_at = now;
  const Asking asking;
  if (g_shell.left.load()) return;
  const NvmlUse nvml;
  Utilization had;
  if (!nvml || !AskUtilization(static_cast<unsigned>(index), &device->utilization, &had)) return;
  const Locked locked(device->lock);
  device->gate.Correct({had.own, had.others, had.processes});
}

Round Look(int64_t now) {
  const bool blocked = Blocked();
  Round round{.orders = blocked ? uint64_t{1} : 0, .binds = blocked};
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    const time::Terms terms = TermsOf(i, device);
    bool alone = true;
    if (device != nullptr) {
      const Locked locked(device->lock);
      CheckMeeting(&device->meeting, i, now);
      Meet(device, i, now);  // there may be more lines than before
      alone = !device->gate.Look(terms, now);
      const time::Gate::Polled polled = device->gate.Poll(terms, now);
      round.watch |= polled.watch;
      round.pending |= device->gate.Pending();
      if (polled.ended && device->gate.Watched()) CloseGate();  // the next launch is to take the turn again
      if (polled.ended && !alone) WakeOthers(device->gate.turns());
    }
    if (device != nullptr && terms.Limited()) AskNvml(i, device, now);
    round.binds |= device == nullptr ? terms.Limited() : Binds(terms, !alone);
    round.orders = round.orders * 10'007 + (terms.limit + terms.own) * 4 + (terms.gives_way ? 2 : 0) + (alone ? 0 : 1);
  }
  return round;
}

void SleepUntilLaunch() {
  __atomic_store_n(&State().state, Helper::kAsleep, __ATOMIC_SEQ_CST);
  CloseGate();
  while (__atomic_load_n(&State().state, __ATOMIC_ACQUIRE) == Helper::kAsleep) {
    region::FutexWait(&State().state, Helper::kAsleep, kForGood);
  }
}

void* Help(void*) {
  Round before = Look(region::MonotonicNanos());
  uint32_t activity = 0;
  int64_t active_at = region::MonotonicNanos();
  int64_t reported_at = active_at;
  for (;;) {
    const uint32_t calls = __atomic_load_n(&State().calls, __ATOMIC_ACQUIRE);
    const int64_t now = region::MonotonicNanos();
    const Round round = Look(now);
    // A launch may have found less, and opened the gate, between two looks that are the same.
    const bool past = round.binds && LaunchesOpen();
    if (round.orders != before.orders || past || now - reported_at > kReport) {
      CloseGate();
      reported_at = now;
    }
    before = round;
    if (const uint32_t seen = State().activity.load(std::memory_order_relaxed); seen != activity) {
      activity = seen;
      active_at = now;
    } else if (!round.pending && now - active_at > kIdle) {
      SleepUntilLaunch();
      active_at = reported_at = region::MonotonicNanos();
      continue;
    }
    State().watches.store(round.watch, std::memory_order_seq_cst);
    if (round.watch) {
      region::SleepNanos(kWatch);
    } else {
      region::FutexWait(&State().calls, calls, kTick);
    }
  }
  return nullptr;
}

}  // namespace

void KeepHelperAwake(bool watch) {
  Helper& helper = State();
  helper.activity.fetch_add(1, std::memory_order_relaxed);
  uint32_t state = __atomic_load_n(&helper.state, __ATOMIC_SEQ_CST);
  if (state == Helper::kRunning && !(watch && !helper.watches.load(std::memory_order_relaxed))) return;
  const region::KeepErrno keep;
  if (state == Helper::kRunning) {
    helper.watches.store(true, std::memory_order_relaxed);
    __atomic_fetch_add(&helper.calls, 1u, __ATOMIC_RELEASE);
    region::FutexWake(&helper.calls, 1);
    return;
  }
  const bool first = state == Helper::kNone;
  if (!__atomic_compare_exchange_n(&helper.state, &state, Helper::kRunning, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    return;
  }
  if (first) {
    // What is registered after the driver was loaded runs before the driver goes.
    if (!helper.settles_at_exit.exchange(true)) atexit(&SettleAtExit);
    StartThread(&Help);  // without it limits hold all the same; changes are seen at the next lease
  } else {
    region::FutexWake(&helper.state, 1);
  }
}

}  // namespace hami::vgpu::pacer
