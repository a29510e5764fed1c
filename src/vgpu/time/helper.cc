// SPDX-License-Identifier: Apache-2.0
//
// The helper thread. It looks for changed limits, orders and neighbours every 10 ms while the program launches,
// collects measurements nobody else came by for, and for one that is more important than others looks every 0.15 ms
// whether its work has ended. It sleeps for good while nothing is launched. It is started by the first launch, with all
// signals blocked but those of faults, and is not there in the child of a fork until that launches something.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>

#include "region/keep_errno.h"
#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/time/pacer.h"
#include "vgpu/time/runtime.h"

namespace hami::vgpu::time {
namespace {

constexpr int64_t kTick = 10'000'000;
constexpr int64_t kWatch = 150'000;
constexpr int64_t kReport = 500'000'000;  // one launch in that reports itself to the monitor
constexpr int64_t kIdle = 1'000'000'000;
constexpr int64_t kForGood = 1'000'000'000'000;

enum : uint32_t { kNone = 0, kRunning = 1, kAsleep = 2 };
constinit uint32_t g_state = kNone;
constinit uint32_t g_calls = 0;  // the helper sleeps on it
constinit std::atomic<uint32_t> g_activity{0};
constinit std::atomic<bool> g_watches{false}, g_ends{false};
constinit uint32_t g_key_and_one = 0;  // of what each thread leaves; 0 = not made yet

// Of all devices: what leases depend on, in one number, and whether the end of something is watched for.
struct Round {
  uint64_t orders = 0;
  bool watch = false, pending = false;
};

Round Look(int64_t now) {
  Round round{Blocked() ? uint64_t{1} : 0, false, false};
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    const Terms terms = TermsOf(i, device != nullptr && device->file.area != nullptr);
    bool alone = true;
    if (device != nullptr) {
      const Locked locked(device->lock);
      CheckArea(device, i, now);
      Meet(device, i, now);  // there may be more lines than before
      const Gate::Polled polled = device->gate.Poll(terms, now);
      alone = device->gate.Alone(terms, now);
      round.watch |= polled.watch;
      round.pending |= device->gate.Pending();
      uint64_t* const word = device->gate.turns().table().word;
      if (polled.ended && word != nullptr && !alone) {
        const region::KeepErrno keep;
        region::FutexWake(reinterpret_cast<const uint32_t*>(word), INT32_MAX);
      }
    }
    round.orders = round.orders * 10'007 + (terms.limit + terms.own) * 4 + (terms.gives_way ? 2 : 0) + (alone ? 0 : 1);
  }
  return round;
}

void SleepUntilLaunch() {
  __atomic_store_n(&g_state, kAsleep, __ATOMIC_SEQ_CST);
  CloseGate();
  VoidLeases();
  while (__atomic_load_n(&g_state, __ATOMIC_ACQUIRE) == kAsleep) region::FutexWait(&g_state, kAsleep, kForGood);
}

void* Help(void*) {
  Round before = Look(region::MonotonicNanos());
  uint32_t activity = 0;
  int64_t active_at = region::MonotonicNanos();
  int64_t reported_at = active_at;
  for (;;) {
    const uint32_t calls = __atomic_load_n(&g_calls, __ATOMIC_ACQUIRE);
    const int64_t now = region::MonotonicNanos();
    const Round round = Look(now);
    if (round.orders != before.orders) {
      CloseGate();
      VoidLeases();
    }
    before = round;
    if (now - reported_at > kReport) {
      reported_at = now;
      CloseGate();
    }
    if (const uint32_t seen = g_activity.load(std::memory_order_relaxed); seen != activity) {
      activity = seen;
      active_at = now;
    } else if (!round.pending && now - active_at > kIdle) {
      SleepUntilLaunch();
      active_at = reported_at = region::MonotonicNanos();
      continue;
    }
    g_watches.store(round.watch, std::memory_order_seq_cst);
    if (round.watch) {
      region::SleepNanos(kWatch);
    } else {
      region::FutexWait(&g_calls, calls, kTick);
    }
  }
  return nullptr;
}

// The thread functions moved from libpthread to libc in glibc 2.34; a look-up at run time finds them in both.
template <typename F>
F* Find(const char* name) {
  const DlsymFn look_up = RealDlsym();
  return look_up == nullptr ? nullptr : reinterpret_cast<F*>(look_up(nullptr, name));  // RTLD_DEFAULT
}

bool StartThread() {
  auto* const create = Find<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  auto* const detach = Find<int(pthread_t)>("pthread_detach");
  if (create == nullptr || detach == nullptr) return false;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // These come from what a thread does itself; blocked, they would end the process past whoever reports or mends that.
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, number);
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = create(&thread, nullptr, &Help, nullptr) == 0;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (started) detach(thread);
  return started;
}

// Late in the process's life the driver may be gone before its threads are.
__attribute__((destructor)) void StopAtExit() { g_ends.store(true); }

}  // namespace

bool ProcessEnds() { return g_ends.load(std::memory_order_relaxed); }

void KeepHelperAwake(bool watch) {
  g_activity.fetch_add(1, std::memory_order_relaxed);
  uint32_t state = __atomic_load_n(&g_state, __ATOMIC_SEQ_CST);
  if (state == kRunning && !(watch && !g_watches.load(std::memory_order_relaxed))) return;
  const region::KeepErrno keep;
  if (state == kRunning) {
    g_watches.store(true, std::memory_order_relaxed);
    __atomic_fetch_add(&g_calls, 1u, __ATOMIC_RELEASE);
    region::FutexWake(&g_calls, 1);
  } else if (state == kNone &&
             __atomic_compare_exchange_n(&g_state, &state, kRunning, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    StartThread();  // without it limits hold all the same; changes are seen at the next lease
  } else if (state == kAsleep &&
             __atomic_compare_exchange_n(&g_state, &state, kRunning, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    region::FutexWake(&g_state, 1);
  }
}

void WhenThreadEnds(void (*give_back)(void* lease), Lease* lease) {
  auto* const create = Find<int(uint32_t*, void (*)(void*))>("pthread_key_create");
  auto* const discard = Find<int(uint32_t)>("pthread_key_delete");
  auto* const set = Find<int(uint32_t, const void*)>("pthread_setspecific");
  if (create == nullptr || discard == nullptr || set == nullptr) return;
  uint32_t known = __atomic_load_n(&g_key_and_one, __ATOMIC_ACQUIRE);
  uint32_t key = known - 1;
  if (known == 0) {
    if (create(&key, give_back) != 0) return;
    if (!__atomic_compare_exchange_n(&g_key_and_one, &known, key + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      discard(key);
      key = known - 1;
    }
  }
  set(key, lease);
}

void ResetHelper() {
  __atomic_store_n(&g_state, kNone, __ATOMIC_RELAXED);
  g_watches.store(false);
}

}  // namespace hami::vgpu::time
