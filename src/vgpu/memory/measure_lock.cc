// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/measure_lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "region/keep_errno.h"
#include "vgpu/memory/memory.h"
#include "vgpu/runtime/lock_order.h"

namespace hami::vgpu {
namespace {

constexpr uint32_t kClosed = uint32_t{1} << 31;  // held exclusively, or awaited so; below it, how many share
constexpr int64_t kMilli = 1'000'000;
constexpr int64_t kPatienceToExclude = 100 * kMilli;
constexpr int64_t kPatienceToShare = 2000 * kMilli;
// After a wait in vain the next ones are not tried for a while: each holds up all other threads.
constexpr int64_t kPause = 1000 * kMilli;

constinit thread_local uint32_t t_inside = 0;  // how often this thread holds it

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

uint32_t Word() { return __atomic_load_n(&g_memory.measure_word.word, __ATOMIC_ACQUIRE); }

// False when the deadline has passed.
bool WaitWhile(uint32_t word, int64_t deadline) {
  const int64_t left = deadline - Now();
  if (left <= 0) return false;
  const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
  const region::KeepErrno keep;
  syscall(SYS_futex, &g_memory.measure_word.word, FUTEX_WAIT_PRIVATE, word, &timeout, nullptr, 0);
  return true;
}

void WakeAll() { syscall(SYS_futex, &g_memory.measure_word.word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

void LeaveShared() {
  if ((__atomic_fetch_sub(&g_memory.measure_word.word, 1u, __ATOMIC_ACQ_REL) & kClosed) != 0) WakeAll();
}

void WaitToShare() {
  LeaveShared();
  const int64_t deadline = Now() + kPatienceToShare;
  for (;;) {
    uint32_t word = Word();
    if ((word & kClosed) != 0 && WaitWhile(word, deadline)) continue;
    if (__atomic_compare_exchange_n(&g_memory.measure_word.word, &word, word + 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
      return;
  }
}

void Share() {
  if ((__atomic_fetch_add(&g_memory.measure_word.word, 1u, __ATOMIC_ACQUIRE) & kClosed) != 0) WaitToShare();
}

void Open() {
  __atomic_fetch_and(&g_memory.measure_word.word, ~kClosed, __ATOMIC_RELEASE);
  WakeAll();
}

bool TryExclusive() {
  uint32_t nobody = 0;
  return __atomic_compare_exchange_n(&g_memory.measure_word.word, &nobody, kClosed, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED);
}

bool WaitExclusive() {
  const int64_t start = Now();
  if (start < g_memory.measure_word.no_wait_before.load(std::memory_order_relaxed)) return false;
  const int64_t deadline = start + kPatienceToExclude;
  for (uint32_t word = Word();; word = Word()) {
    if ((word & kClosed) != 0) {
      if (!WaitWhile(word, deadline)) return false;  // another one's measurement: it will be done soon
    } else if (__atomic_compare_exchange_n(&g_memory.measure_word.word, &word, word | kClosed, false, __ATOMIC_ACQUIRE,
                                           __ATOMIC_RELAXED)) {
      break;
    }
  }
  for (uint32_t word = Word(); word != kClosed; word = Word()) {
    if (WaitWhile(word, deadline)) continue;
    Open();
    g_memory.measure_word.no_wait_before.store(Now() + kPause, std::memory_order_relaxed);
    return false;
  }
  return true;
}

}  // namespace

void MeasureLock::Enter(LockMode mode) {
  if (t_inside == 0 && mode != LockMode::kTryExclusive) WaitsForLock(LockRank::kMeasure);
  if (t_inside != 0) {
    state_ = State::kNested;
  } else if (mode != LockMode::kShared && (TryExclusive() || (mode == LockMode::kExclusive && WaitExclusive()))) {
    state_ = State::kExclusive;
  } else if (mode == LockMode::kShared || mode == LockMode::kExclusive) {
    Share();
    state_ = State::kShared;
  } else {
    return;
  }
  if (t_inside++ == 0) TookLock(LockRank::kMeasure);
}

void MeasureLock::Leave() {
  if (state_ == State::kOutside) return;
  if (--t_inside == 0) ReleasedLock(LockRank::kMeasure);
  if (state_ == State::kShared) LeaveShared();
  if (state_ == State::kExclusive) Open();
  state_ = State::kOutside;
}

void MeasureWord::Reset() {
  __atomic_store_n(&word, 0u, __ATOMIC_RELAXED);
  no_wait_before.store(0, std::memory_order_relaxed);
  t_inside = 0;
}

}  // namespace hami::vgpu
