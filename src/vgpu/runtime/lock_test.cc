// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/lock.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace hami::vgpu {
namespace {

// A program's call comes back with the errno that it had, whatever the library waited for on the way.
TEST(LockTest, GivenSignalsWhileALockIsWaitedFor_ThenErrnoStays) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR1, &action, nullptr);
  Lock lock(LockRank::kPools);
  const pthread_t waiter = pthread_self();
  std::atomic<bool> held{false};
  std::atomic<bool> waits{false};
  std::thread holder([&] {
    lock.Acquire();
    held = true;
    while (!waits) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pthread_kill(waiter, SIGUSR1);
    }
    lock.Release();
  });
  while (!held) std::this_thread::yield();
  errno = 77;
  waits = true;
  lock.Acquire();
  EXPECT_EQ(errno, 77);
  lock.Release();
  holder.join();
}

TEST(LockOrderTest, Ascending_Passes) {
  Lock pools(LockRank::kPools);
  Lock vmm(LockRank::kVmm);
  Lock table(LockRank::kTable);
  const Locked a(pools);
  {
    const Locked b(vmm);
    const Locked c(table);
  }
  const Locked d(table);
}

// In the order in which it was not taken, and again: what is let go of is no longer held.
TEST(LockOrderTest, ReleasedInAnyOrder_IsForgotten) {
  Lock pools(LockRank::kPools);
  Lock table(LockRank::kTable);
  for (int i = 0; i < 40; ++i) {
    pools.Acquire();
    table.Acquire();
    pools.Release();
    table.Release();
  }
}

TEST(LockOrderTest, OfAnotherThread_IsNotHeldHere) {
  Lock pools(LockRank::kPools);
  Lock table(LockRank::kTable);
  const Locked held(table);
  std::thread([&] { const Locked other(pools); }).join();
}

TEST(LockOrderTest, Tried_MayBeOfAnyRank) {
  Lock pools(LockRank::kPools);
  Lock table(LockRank::kTable);
  const Locked held(table);
  ASSERT_TRUE(pools.TryAcquire());
  EXPECT_FALSE(pools.TryAcquire());
  pools.Release();
}

using LockOrderDeathTest = testing::Test;

TEST(LockOrderDeathTest, Descending_EndsTheProcess) {
  Lock pools(LockRank::kPools);
  Lock table(LockRank::kTable);
  const Locked held(table);
  EXPECT_DEATH(pools.Acquire(), "lock order: kPools is waited for while kTable is held");
}

TEST(LockOrderDeathTest, OfOneRank_EndsTheProcess) {
  Lock one(LockRank::kTable);
  Lock other(LockRank::kTable);
  const Locked held(one);
  EXPECT_DEATH(other.Acquire(), "kTable is waited for while kTable is held");
}

// What is tried is held afterwards like anything else.
TEST(LockOrderDeathTest, BehindWhatWasTried_EndsTheProcess) {
  Lock pools(LockRank::kPools);
  Lock table(LockRank::kTable);
  ASSERT_TRUE(table.TryAcquire());
  EXPECT_DEATH(pools.Acquire(), "kPools is waited for while kTable is held");
  table.Release();
}

}  // namespace
}  // namespace hami::vgpu
