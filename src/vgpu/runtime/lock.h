// SPDX-License-Identifier: Apache-2.0
//
// A lock between the threads of this process: one word, constant-initialised, no destructor, usable before and after
// everything else. Its rank says when it may be taken (lock_order.h). Uncontended it costs one atomic exchange; a
// waiter sleeps in the kernel. Never held across a fork by the child: the state it guards is made anew there
// (process.h).
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/keep_errno.h"
#include "vgpu/runtime/lock_order.h"

namespace hami::vgpu {

class Lock {
 public:
#ifdef HAMI_CHECK_LOCKS
  explicit constexpr Lock(LockRank rank) : rank_(rank) {}
#else
  explicit constexpr Lock(LockRank) {}
#endif

  void Acquire() {
    WaitsForLock(rank());
    AcquireUnchecked();
    TookLock(rank());
  }
  // Waits for nothing, so any order is right.
  bool TryAcquire() {
    uint32_t expected = 0;
    if (!__atomic_compare_exchange_n(&word_, &expected, 1u, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return false;
    TookLock(rank());
    return true;
  }
  void Release() {
    ReleasedLock(rank());
    if (__atomic_exchange_n(&word_, 0u, __ATOMIC_RELEASE) == 2) {
      syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  void Reset() { __atomic_store_n(&word_, 0u, __ATOMIC_RELAXED); }

 private:
  void AcquireUnchecked() {
    uint32_t expected = 0;
    if (__atomic_compare_exchange_n(&word_, &expected, 1u, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    const region::KeepErrno keep;
    while (__atomic_exchange_n(&word_, 2u, __ATOMIC_ACQUIRE) != 0) {
      syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, 2, nullptr, nullptr, 0);
    }
  }

  uint32_t word_ = 0;
#ifdef HAMI_CHECK_LOCKS
  LockRank rank() const { return rank_; }
  LockRank rank_;
#else
  static constexpr LockRank rank() { return {}; }
#endif
};

class Locked {
 public:
  explicit Locked(Lock& lock) : lock_(lock) { lock_.Acquire(); }
  ~Locked() { lock_.Release(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lock& lock_;
};

}  // namespace hami::vgpu
