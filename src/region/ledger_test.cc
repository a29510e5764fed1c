// SPDX-License-Identifier: Apache-2.0
#include "region/ledger.h"

#include <thread>

#include "region/lock.h"
#include "region/process.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

constexpr uint64_t kHuge = UINT64_MAX - 5;

class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Attach(&attachment_, path_.c_str(), TestConfig(1000)), Status::kOk); }
  // A child that reserves, says so, and stays until it is killed.
  pid_t Holder(uint64_t bytes, bool takes_lock = false) {
    const Signal ready;
    const pid_t pid = Spawn([&] {
      AttachmentAfterFork(&attachment_);
      if (Reserve(&attachment_, 0, bytes, Kind::kData) != Status::kOk) return 1;
      if (takes_lock && Lock(&attachment_, attachment_.lock_id) != Status::kOk) return 2;
      ready.Raise();
      for (;;) pause();
    });
    ready.Await();
    return pid;
  }
  static void Kill(pid_t pid) {
    kill(pid, SIGKILL);
    ASSERT_EQ(Join(pid), 1000 + SIGKILL);
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
  Attached attachment_;
};

TEST_F(LedgerTest, GivenLimit_WhenReservingUpToIt_ThenLastByteFitsNextDoesNot) {
  EXPECT_EQ(Reserve(&attachment_, 0, 999, Kind::kData), Status::kOk);
  EXPECT_EQ(FreeUnderLimit(attachment_, 0), 1U);
  EXPECT_EQ(Reserve(&attachment_, 0, 2, Kind::kData), Status::kOverLimit);
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kContext), Status::kOk);
  EXPECT_EQ(Reserve(&attachment_, 0, 0, Kind::kData), Status::kOk);
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOverLimit);
  EXPECT_EQ(Used(attachment_, 0), 1000U);
  EXPECT_EQ(FreeUnderLimit(attachment_, 0), 0U);
  EXPECT_EQ(Refusals(attachment_, 0), 0U) << "who asked decides whether that is one";
  NoteRefusal(&attachment_, 0);
  EXPECT_EQ(Refusals(attachment_, 0), 1U);
  EXPECT_EQ(Peak(attachment_, 0), 1000U);
  EXPECT_EQ(Refund(&attachment_, 0, 999, Kind::kData), Status::kOk);
  EXPECT_EQ(Used(attachment_, 0), 1U);
  EXPECT_EQ(Peak(attachment_, 0), 1000U);
  EXPECT_EQ(Used(attachment_, 1), 0U) << "devices are apart";
}

TEST_F(LedgerTest, GivenKinds_WhenCharged_ThenSlotShowsThemWhereHamiReadsThem) {
  ASSERT_EQ(Reserve(&attachment_, 1, 1, Kind::kContext), Status::kOk);
  ASSERT_EQ(Reserve(&attachment_, 1, 20, Kind::kModule), Status::kOk);
  ASSERT_EQ(Reserve(&attachment_, 1, 300, Kind::kData), Status::kOk);
  EXPECT_EQ(Transfer(&attachment_, 1, 100, Kind::kData, Kind::kModule), Status::kOk);
  EXPECT_EQ(Transfer(&attachment_, 1, 100, Kind::kContext, Kind::kModule), Status::kClamped);
  const RawFile file(path_);
  const int64_t used = SlotAt(0) + 8 + 64;
  EXPECT_EQ(file.Get<uint64_t>(used), 0U);
  EXPECT_EQ(file.Get<uint64_t>(used + 8), 121U);
  EXPECT_EQ(file.Get<uint64_t>(used + 16), 200U);
  EXPECT_EQ(file.Get<uint64_t>(used + 32), 321U);
  EXPECT_EQ(file.Get<uint64_t>(SlotAt(0) + 1936) % 2, 0U);
  EXPECT_EQ(Used(attachment_, 1), 321U);
}

TEST_F(LedgerTest, GivenNoLimit_WhenSumsComeNear2To64_ThenNothingWraps) {
  attachment_.region->limit[0] = 0;
  EXPECT_EQ(FreeUnderLimit(attachment_, 0), UINT64_MAX);
  EXPECT_EQ(Reserve(&attachment_, 0, kHuge, Kind::kData), Status::kOk);
  EXPECT_EQ(Reserve(&attachment_, 0, 6, Kind::kData), Status::kOverLimit);
  EXPECT_EQ(Charge(&attachment_, 0, 6, Kind::kModule), Status::kOverLimit);
  EXPECT_EQ(Used(attachment_, 0), kHuge);
  EXPECT_EQ(Refund(&attachment_, 0, UINT64_MAX, Kind::kData), Status::kClamped);
  EXPECT_EQ(Used(attachment_, 0), 0U);
  attachment_.region->limit[0] = 1000;
  EXPECT_EQ(Reserve(&attachment_, 0, UINT64_MAX, Kind::kData), Status::kOverLimit);
}

TEST_F(LedgerTest, GivenMoreThanHeld_WhenRefunded_ThenOnlyOwnShareIsGivenBack) {
  const pid_t other = Holder(500);
  ASSERT_EQ(Reserve(&attachment_, 0, 10, Kind::kData), Status::kOk);
  EXPECT_EQ(Refund(&attachment_, 0, 11, Kind::kData), Status::kClamped);
  EXPECT_EQ(Refund(&attachment_, 0, 1, Kind::kContext), Status::kClamped);
  EXPECT_EQ(Used(attachment_, 0), 500U);
  Kill(other);
}

TEST_F(LedgerTest, GivenExistingMemory_WhenCharged_ThenItCountsBeyondTheLimit) {
  EXPECT_EQ(Charge(&attachment_, 0, 1500, Kind::kModule), Status::kOk);
  EXPECT_EQ(Used(attachment_, 0), 1500U);
  EXPECT_EQ(FreeUnderLimit(attachment_, 0), 0U);
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOverLimit);
}

TEST_F(LedgerTest, GivenLimitChangedInFile_WhenReserving_ThenNewOneCounts) {
  ASSERT_EQ(Reserve(&attachment_, 0, 900, Kind::kData), Status::kOk);
  RawFile(path_).Set<uint64_t>(1600, 500);
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOverLimit);
  EXPECT_EQ(Refund(&attachment_, 0, 401, Kind::kData), Status::kOk);
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOk);
}

TEST_F(LedgerTest, GivenDeadHolder_WhenItsMemoryIsNeeded_ThenItIsGrantedAtOnce) {
  Kill(Holder(900));
  EXPECT_EQ(Used(attachment_, 0), 900U) << "nobody has looked yet";
  EXPECT_EQ(Reserve(&attachment_, 0, 1000, Kind::kData), Status::kOk);
  EXPECT_EQ(Used(attachment_, 0), 1000U);
}

TEST_F(LedgerTest, GivenDeadHolder_WhenQueriedOverTime_ThenGoneWithinASecond) {
  int64_t now = 10'000'000'000;
  SweepIfStale(&attachment_, now);
  Kill(Holder(900));
  EXPECT_EQ(SweepIfStale(&attachment_, now + 1'000'000), 0) << "looked a moment ago";
  EXPECT_EQ(SweepIfStale(&attachment_, now + 1'000'000'000), 1);
  EXPECT_EQ(Used(attachment_, 0), 0U);
  Kill(Holder(900));
  EXPECT_EQ(SweepIfStale(&attachment_, 5), 1) << "the clock started anew: the machine was restarted";
}

TEST_F(LedgerTest, GivenLiveHolder_WhenOthersAreRefused_ThenItKeepsItsMemory) {
  const pid_t other = Holder(900);
  EXPECT_EQ(Reserve(&attachment_, 0, 101, Kind::kData), Status::kOverLimit);
  EXPECT_EQ(Reserve(&attachment_, 0, 100, Kind::kData), Status::kOk);
  Kill(other);
}

TEST_F(LedgerTest, GivenLockOfDeadProcess_WhenNeeded_ThenTakenInMilliseconds) {
  Kill(Holder(300, true));
  attachment_.area->devices[0].charged = 4711;  // as if it had died in the middle of an update
  const int64_t begin = MonotonicNanos();
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOk);
  EXPECT_LT(MonotonicNanos() - begin, 1'000'000'000) << "some ms on an idle machine";
  EXPECT_EQ(attachment_.area->lock_steals, 1U);
  EXPECT_EQ(Used(attachment_, 0), 301U) << "recounted; the dead is still in the table";
  EXPECT_EQ(Sweep(&attachment_), 1);
  EXPECT_EQ(Used(attachment_, 0), 1U);
}

TEST_F(LedgerTest, GivenLiveProcessWithLock_WhenNeeded_ThenWhatFitsIsGranted) {
  ASSERT_EQ(Reserve(&attachment_, 0, 500, Kind::kData), Status::kOk);
  const pid_t other = Holder(300, true);
  const int64_t begin = MonotonicNanos();
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOk);
  EXPECT_LT(MonotonicNanos() - begin, 2'000'000'000);
  EXPECT_EQ(Refund(&attachment_, 0, 200, Kind::kData), Status::kOk);
  EXPECT_EQ(OwnUsed(attachment_, 0, Kind::kData), 301U);
  EXPECT_EQ(Used(attachment_, 0), 601U);
  EXPECT_EQ(Reserve(&attachment_, 0, 400, Kind::kData), Status::kOverLimit);
  Kill(other);
  EXPECT_EQ(Reserve(&attachment_, 0, 400, Kind::kData), Status::kOk);
}

// Another thread of this process cannot be told from this one: there the wait is bounded, and refunds are remembered.
TEST_F(LedgerTest, GivenThreadWithLock_ThenWaitIsBoundedAndRefundsRemembered) {
  ASSERT_EQ(Reserve(&attachment_, 0, 500, Kind::kData), Status::kOk);
  ASSERT_EQ(Lock(&attachment_, attachment_.lock_id), Status::kOk);
  const int64_t begin = MonotonicNanos();
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kBusy);
  const int64_t waited = MonotonicNanos() - begin;
  EXPECT_GE(waited, 1'900'000'000);
  EXPECT_LT(waited, 4'000'000'000);
  EXPECT_EQ(Refund(&attachment_, 0, 200, Kind::kData), Status::kOk);
  EXPECT_EQ(OwnUsed(attachment_, 0, Kind::kData), 500U);
  EXPECT_TRUE(Unlock(&attachment_, attachment_.lock_id));
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOk);
  EXPECT_EQ(OwnUsed(attachment_, 0, Kind::kData), 301U);
}

TEST_F(LedgerTest, GivenLockOfDeadAttacher_WhenSweeping_ThenDeadAreDropped) {
  Kill(Holder(300));
  attachment_.area->lock = MakeLockId(kAttacherIndex, 12345);
  EXPECT_EQ(Sweep(&attachment_), 1);
  EXPECT_EQ(Used(attachment_, 0), 0U);
}

TEST_F(LedgerTest, GivenGarbageInTheLockWord_WhenItIsNeeded_ThenItIsTaken) {
  for (const uint64_t garbage : {UINT64_MAX, uint64_t{0x7ff}, uint64_t{1}, MakeLockId(kAttacherIndex, 12345)}) {
    attachment_.area->lock = garbage;
    EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOk) << std::hex << garbage;
  }
}

TEST_F(LedgerTest, GivenThreads_WhenTheyChargeAndRefund_ThenTheBooksBalance) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        if (Reserve(&attachment_, 0, 130, Kind::kData) == Status::kOk) {
          if (Used(attachment_, 0) > 1000) std::abort();
          Refund(&attachment_, 0, 130, Kind::kData);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Used(attachment_, 0), 0U);
  EXPECT_EQ(Peak(attachment_, 0) % 130, 0U);
  EXPECT_LE(Peak(attachment_, 0), 910U);
}

TEST_F(LedgerTest, GivenProcesses_WhenListed_ThenEachShowsItsTotals) {
  const pid_t other = Holder(300);
  ASSERT_EQ(Reserve(&attachment_, 1, 5, Kind::kContext), Status::kOk);
  std::vector<ProcessUsage> processes;
  ForEachProcess(
      attachment_,
      [](const ProcessUsage& process, void* list) {
        static_cast<std::vector<ProcessUsage>*>(list)->push_back(process);
        return true;
      },
      &processes);
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].pid, getpid());
  EXPECT_EQ(processes[0].total[1], 5U);
  EXPECT_EQ(processes[1].pid, other);
  EXPECT_EQ(processes[1].total[0], 300U);
  Kill(other);
}

TEST(LedgerUnattached, GivenNoRegion_WhenAsked_ThenNothingCrashes) {
  Attachment none;
  EXPECT_EQ(Reserve(&none, 0, 1, Kind::kData), Status::kNotAttached);
  EXPECT_EQ(Charge(&none, 0, 1, Kind::kData), Status::kNotAttached);
  EXPECT_EQ(Refund(&none, 0, 1, Kind::kData), Status::kNotAttached);
  EXPECT_EQ(Transfer(&none, 0, 1, Kind::kData, Kind::kModule), Status::kNotAttached);
  EXPECT_EQ(Used(none, 0), 0U);
  EXPECT_EQ(Sweep(&none), 0);
  EXPECT_EQ(SweepIfStale(&none, 1), 0);
  Detach(&none);
}

}  // namespace
}  // namespace hami::region
