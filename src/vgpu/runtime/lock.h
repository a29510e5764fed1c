// SPDX-License-Identifier: Apache-2.0
//
// A lock between the threads of this process: one word, constant-initialised, no destructor, usable before and after
// everything else. Uncontended it costs one atomic exchange; a waiter sleeps in the kernel. Never held across a fork by
// the child: the state it guards is made anew there (process.h).
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/keep_errno.h"

namespace hami::vgpu {

class Lock {
 public:
  void Acquire() {
    uint32_t expected = 0;
    if (__atomic_compare_exchange_n(&word_, &expected, 1u, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    const region::KeepErrno keep;
    while (__atomic_exchange_n(&word_, 2u, __ATOMIC_ACQUIRE) != 0) {
      syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, 2, nullptr, nullptr, 0);
    }
  }
  bool TryAcquire() {
    uint32_t expected = 0;
    return __atomic_compare_exchange_n(&word_, &expected, 1u, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }
  void Release() {
    if (__atomic_exchange_n(&word_, 0u, __ATOMIC_RELEASE) == 2) {
      syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  void Reset() { __atomic_store_n(&word_, 0u, __ATOMIC_RELAXED); }

 private:
  uint32_t word_ = 0;
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
