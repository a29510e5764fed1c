// SPDX-License-Identifier: Apache-2.0
// The lock around first contexts: how long it is waited for; and what waiting leaves alone.
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "region/process.h"
#include "region/region.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

class RegionPostInit : public testing::Test {
 protected:
  static constexpr int64_t kMilli = 1'000'000;
  RegionPostInit() { EXPECT_EQ(Attach(&attachment_, (folder_ / "a.cache").c_str(), TestConfig()), Status::kOk); }
  // A process that has the lock, for so long.
  pid_t Hold(int64_t nanos = INT64_MAX) {
    const Signal ready;
    const pid_t child = Spawn([&] {
      AttachmentAfterFork(&attachment_);
      if (!PostInitLock(&attachment_, never_)) return 1;
      ready.Raise();
      SleepNanos(nanos);
      PostInitUnlock(&attachment_);
      for (;;) pause();
    });
    ready.Await();
    return child;
  }
  static void Kill(pid_t pid) {
    kill(pid, SIGKILL);
    Join(pid);
  }

  const TempFolder folder_;
  Attached attachment_;
  const uint64_t never_ = 0;
};

TEST_F(RegionPostInit, GivenAHolder_WhenItDies_ThenTheLockIsFree) {
  const pid_t holder = Hold();
  EXPECT_FALSE(PostInitLock(&attachment_, never_, {.in_all_ns = 10 * kMilli}));
  Kill(holder);
  EXPECT_TRUE(PostInitLock(&attachment_, never_));
  PostInitUnlock(&attachment_);
}

TEST_F(RegionPostInit, GivenASlowHolder_ThenItIsWaitedFor) {
  const pid_t holder = Hold(100 * kMilli);
  EXPECT_TRUE(PostInitLock(&attachment_, never_, {.with_stopped_ns = kMilli}));
  PostInitUnlock(&attachment_);
  Kill(holder);
}

TEST_F(RegionPostInit, GivenAStoppedHolder_ThenItIsNot) {
  const pid_t holder = Hold();
  kill(holder, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(holder, &status, WUNTRACED), holder);
  const int64_t begin = MonotonicNanos();
  EXPECT_FALSE(PostInitLock(&attachment_, never_, {.with_stopped_ns = kMilli}));
  EXPECT_LT(MonotonicNanos() - begin, 30'000 * kMilli);
  Kill(holder);
}

// As daemons do that close all that they inherited, after the library has attached.
TEST_F(RegionPostInit, GivenAClosedDescriptor_ThenItIsHadAllTheSame) {
  close(attachment_.fd);
  EXPECT_TRUE(PostInitLock(&attachment_, never_, {.in_all_ns = 1000 * kMilli}));
  EXPECT_EQ(Join(Spawn([&] {
              AttachmentAfterFork(&attachment_);
              return PostInitLock(&attachment_, never_, {.in_all_ns = 10 * kMilli}) ? 1 : 0;
            })),
            0)
      << "it keeps others out";
  PostInitUnlock(&attachment_);
}

TEST_F(RegionPostInit, GivenADescriptorThatIsTheProgramsNow_ThenItsFileIsNotLocked) {
  const int own = open((folder_ / "own").c_str(), O_CREAT | O_RDWR, 0600);
  const int taken = attachment_.fd;
  ASSERT_EQ(dup2(own, taken), taken);
  close(own);
  EXPECT_TRUE(PostInitLock(&attachment_, never_, {.in_all_ns = 1000 * kMilli}));
  EXPECT_NE(attachment_.fd, taken);
  EXPECT_EQ(Join(Spawn([&] {
              int32_t holder = 0;
              return AskRecordLock(taken, kPostInitLockByte, 1, &holder) == LockHeld::kNo ? 0 : 1;
            })),
            0);
  PostInitUnlock(&attachment_);
  close(taken);
}

TEST_F(RegionPostInit, GivenAFileThatIsGone_WhenTheDescriptorIsToo_ThenNobodyWaits) {
  close(attachment_.fd);
  ASSERT_EQ(unlink((folder_ / "a.cache").c_str()), 0);
  const int64_t begin = MonotonicNanos();
  EXPECT_FALSE(PostInitLock(&attachment_, never_));
  EXPECT_LT(MonotonicNanos() - begin, 10'000 * kMilli);
}

TEST_F(RegionPostInit, GivenHolder_WhenItDidWhatIsAwaited_ThenLockIsNotTaken) {
  const pid_t holder = Hold();
  EXPECT_FALSE(PostInitLock(&attachment_, uint64_t{1}));
  Kill(holder);
  EXPECT_FALSE(PostInitLock(&attachment_, uint64_t{1}));
}

// What a program calls comes back with the errno that it had, whatever was waited for on the way.
TEST(FutexTest, GivenASignalWhileOneIsWaitedFor_ThenErrnoStays) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR1, &action, nullptr);
  const pthread_t waiter = pthread_self();
  std::thread nag([waiter] {
    SleepNanos(50'000'000);
    pthread_kill(waiter, SIGUSR1);
  });
  const uint32_t word = 1;
  errno = 77;
  FutexWait(&word, 1, 5'000'000'000);
  EXPECT_EQ(errno, 77);
  nag.join();
}

}  // namespace
}  // namespace hami::region
