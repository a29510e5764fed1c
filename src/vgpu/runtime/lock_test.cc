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
  Lock lock;
  lock.Acquire();
  const pthread_t waiter = pthread_self();
  std::atomic<bool> waits{false};
  std::thread holder([&] {
    while (!waits) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pthread_kill(waiter, SIGUSR1);
    }
    lock.Release();
  });
  errno = 77;
  waits = true;
  lock.Acquire();
  EXPECT_EQ(errno, 77);
  lock.Release();
  holder.join();
}

}  // namespace
}  // namespace hami::vgpu
