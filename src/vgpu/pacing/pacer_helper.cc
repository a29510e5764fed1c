// SPDX-License-Identifier: Apache-2.0
//
// The helper thread of the pacer. It looks for changed limits and orders every 10 ms while the program launches,
// collects measurements nobody else came by for, and closes the gate now and then so that one launch in half a second
// reports itself to the monitor. It sleeps for good while nothing is launched. It is started by the first launch, with
// all signals blocked but those of faults, and is not there in the child of a fork until that launches something.
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "region/keep_errno.h"
#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/runtime/device_map.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kTick = 10'000'000;
constexpr int64_t kBusyTick = 5'000'000;  // while measurements are awaited and no launcher comes by for them
constexpr int64_t kReport = 500'000'000;
constexpr int64_t kIdle = 1'000'000'000;
constexpr int64_t kOverdue = 5'000'000;  // work that is known takes a little longer now and then

enum : uint32_t { kNone = 0, kRunning = 1, kAsleep = 2 };
constinit uint32_t g_state = kNone;
constinit std::atomic<uint32_t> g_activity{0};

// What leases depend on, in one number.
uint64_t Orders() {
  uint64_t orders = Blocked() ? 1 : 0;
  for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) {
    orders = orders * 10'007 + LimitOf(device) * 4 + (GivesWay(device) ? 2 : 0) + (TellsOthers(device) ? 1 : 0);
  }
  return orders;
}

// Who else uses a device, where no common area tells. NVML is slow and late, so it is asked once a second, and only for
// this yes or no. A limit never depends on the answer; it only decides whether a long measurement is believed.
struct Watch {
  std::atomic<int> ordinal{-1};
  std::atomic<bool> contended{false};
  Suspicion suspicion;
  uint64_t charged = 0;
  int64_t looked_at = 0;
};
constinit Watch g_watches[region::kMaxDevices]{};
constexpr int64_t kWatch = 1'000'000'000;

void WatchOthers(int device, int64_t now) {
  Watch& watch = g_watches[device];
  const int ordinal = watch.ordinal.load(std::memory_order_relaxed);
  if (ordinal < 0 || now - watch.looked_at < kWatch || RateOf(device) == 0) return;
  const uint64_t charged = region::Load(AccountOf(device)->charged);
  const auto own = static_cast<int64_t>(charged - watch.charged) * 100 / (now - watch.looked_at);
  const bool first = watch.looked_at == 0;
  watch.charged = charged;
  watch.looked_at = now;
  nvmlDevice_t handle = nullptr;
  nvmlUtilization_t seen{};
  if (first || !HandleOfOrdinal(ordinal, &handle)) return;
  if (real::nvmlDeviceGetUtilizationRates(handle, &seen) != NVML_SUCCESS) return;
  watch.contended.store(Suspect(&watch.suspicion, own, seen.gpu), std::memory_order_relaxed);
}

// More important work than is known of, for others to wait for. True while there is some.
bool TellOfMore(int64_t now) {
  bool more = false;
  for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) {
    if (!TellsOthers(device) || !Overdue(device, kOverdue, now)) continue;
    TellMore(device, now);
    more = true;
  }
  return more;
}

void CloseGate() { __atomic_store_n(&g_words.launches_open, 0u, __ATOMIC_SEQ_CST); }

// Either it closes a gate that is being opened, or who opens it sees that it is asleep.
void SleepUntilLaunch() {
  __atomic_store_n(&g_state, kAsleep, __ATOMIC_SEQ_CST);
  CloseGate();
  VoidLeases();
  while (__atomic_load_n(&g_state, __ATOMIC_ACQUIRE) == kAsleep) {
    syscall(SYS_futex, &g_state, FUTEX_WAIT_PRIVATE, kAsleep, nullptr, nullptr, 0);
  }
}

void* Help(void*) {
  uint64_t orders = Orders();
  uint32_t activity = 0;
  uint32_t harvests = 0;
  int64_t active_at = MonotonicNanos();
  int64_t reported_at = active_at;
  for (;;) {
    const int64_t now = MonotonicNanos();
    CheckCommonAreas(now);
    const bool pending = PendingSamples() != 0;
    const bool left = pending && Harvests() == harvests;
    if (left) Harvest(now);
    harvests = Harvests();
    if (const uint64_t seen = Orders(); seen != orders) {
      orders = seen;
      CloseGate();
      VoidLeases();
      for (Watch& watch : g_watches) SkipLooks(&watch.suspicion);
    }
    if (now - reported_at > kReport) {
      reported_at = now;
      CloseGate();
    }
    for (int device = 0; device < static_cast<int>(region::kMaxDevices); ++device) WatchOthers(device, now);
    const bool more = TellOfMore(now);
    if (const uint32_t seen = g_activity.load(std::memory_order_relaxed); seen != activity) {
      activity = seen;
      active_at = now;
    } else if (more) {
      active_at = now;
    } else if (!pending && now - active_at > kIdle) {
      SleepUntilLaunch();
      active_at = reported_at = MonotonicNanos();
      orders = Orders();
    }
    region::SleepNanos(left ? kBusyTick : kTick);
  }
  return nullptr;
}

// The thread functions moved from libpthread to libc in glibc 2.34; a look-up at run time finds them in both.
bool StartThread() {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  using Detach = int(pthread_t);
  const DlsymFn look_up = RealDlsym();
  if (look_up == nullptr) return false;
  auto* const create = reinterpret_cast<Create*>(look_up(nullptr, "pthread_create"));  // RTLD_DEFAULT
  auto* const detach = reinterpret_cast<Detach*>(look_up(nullptr, "pthread_detach"));
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

constinit uint32_t g_key_and_one = 0;  // of what each thread leaves; 0 = not made yet

// Late in the process's life the driver may be gone before its threads are.
__attribute__((destructor)) void StopAtExit() { StopSampling(); }

// What is registered after the driver was loaded runs before the driver goes. The child of a fork that did nothing
// itself has nothing to settle: what it sees is its parent's.
void SettleAtExit() {
  if (__atomic_load_n(&g_words.phase, __ATOMIC_ACQUIRE) != 0) HarvestLast();
}
constinit std::atomic<bool> g_settles_at_exit{false};

}  // namespace

bool ContendedSince(int device, int64_t since, int64_t now) {
  if (OthersKnown(device)) return region::CommonAtWorkSince(Others(device, now), since);
  return g_watches[device].contended.load(std::memory_order_relaxed);
}
void SetOrdinal(int device, CUdevice ordinal) { g_watches[device].ordinal.store(ordinal, std::memory_order_relaxed); }

void KeepHelperAwake() {
  g_activity.fetch_add(1, std::memory_order_relaxed);
  uint32_t state = __atomic_load_n(&g_state, __ATOMIC_SEQ_CST);
  if (state == kRunning) return;
  const region::KeepErrno keep;
  if (state == kNone &&
      __atomic_compare_exchange_n(&g_state, &state, kRunning, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    if (!g_settles_at_exit.exchange(true)) atexit(&SettleAtExit);
    StartThread();  // without it limits hold all the same; changes are seen at the next lease
  } else if (state == kAsleep &&
             __atomic_compare_exchange_n(&g_state, &state, kRunning, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    syscall(SYS_futex, &g_state, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
}

void WhenThreadEnds(void (*give_back)(void* lease), Lease* lease) {
  using Create = int(uint32_t*, void (*)(void*));
  using Delete = int(uint32_t);
  using Set = int(uint32_t, const void*);
  const DlsymFn look_up = RealDlsym();
  if (look_up == nullptr) return;
  auto* const create = reinterpret_cast<Create*>(look_up(nullptr, "pthread_key_create"));
  auto* const discard = reinterpret_cast<Delete*>(look_up(nullptr, "pthread_key_delete"));
  auto* const set = reinterpret_cast<Set*>(look_up(nullptr, "pthread_setspecific"));
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
  for (Watch& watch : g_watches) {
    watch.ordinal.store(-1);
    watch.contended.store(false);
    watch.suspicion = {};
    watch.looked_at = 0;
  }
}

}  // namespace hami::vgpu
