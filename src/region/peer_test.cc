// SPDX-License-Identifier: Apache-2.0
//
// Sharing one file with HAMi-core, as in a rolling upgrade. HAMi-core is played by direct writes to the wire words: it
// opens (a NUL behind the struct), appends slots without token, adds usage without our lock, moves slots when it drops
// dead ones, and dies in the places where it leaves its semaphores taken.

#include <sys/resource.h>

#include <cstring>

#include "region/ledger.h"
#include "region/process.h"
#include "region/table.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

class PeerTest : public ::testing::Test {
 protected:
  void Begin() { ASSERT_EQ(Attach(&attachment_, path_.c_str(), TestConfig(1000)), Status::kOk); }
  // A live process that is not us.
  static int32_t PeerPid() { return getppid(); }
  void PeerOpens() { RawFile(path_).Set<char>(2'008'952, 0); }
  Slot& PeerAppends(uint64_t total) {
    const int32_t index = attachment_.region->slot_count++;
    Slot& slot = attachment_.region->slots[index];
    slot.pid = PeerPid();
    slot.status = 1;
    slot.used[0].data = slot.used[0].total = total;
    return slot;
  }
  // HAMi-core's way to drop slot `index`: the last one is copied over it.
  void PeerDrops(int32_t index) {
    const int32_t last = --attachment_.region->slot_count;
    std::memcpy(&attachment_.region->slots[index], &attachment_.region->slots[last], sizeof(Slot));
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
  Attached attachment_;
};

TEST_F(PeerTest, GivenAPeer_WhenItUsesMemory_ThenItCountsWithoutTakingOurLock) {
  Begin();
  PeerOpens();
  Slot& peer = PeerAppends(600);
  EXPECT_EQ(Used(attachment_, 0), 600U);
  EXPECT_EQ(Reserve(&attachment_, 0, 401, Kind::kData), Status::kOverLimit);
  EXPECT_EQ(Reserve(&attachment_, 0, 400, Kind::kData), Status::kOk);
  peer.used[0].total = 0;
  EXPECT_EQ(Reserve(&attachment_, 0, 600, Kind::kData), Status::kOk);
  EXPECT_EQ(Used(attachment_, 0), 1000U);
}

TEST_F(PeerTest, GivenDeadPeer_WhenMemoryIsNeeded_ThenItsSlotIsFreedInPlace) {
  Begin();
  PeerOpens();
  PeerAppends(1000).pid = Spawn([] { return 0; });
  ASSERT_EQ(Join(attachment_.region->slots[1].pid), 0);
  EXPECT_EQ(Reserve(&attachment_, 0, 1000, Kind::kData), Status::kOk);
  EXPECT_EQ(attachment_.region->slots[1].pid, 0);
  EXPECT_EQ(attachment_.region->slots[1].used[0].total, 0U);
  EXPECT_EQ(attachment_.region->slot_count, 2);
}

TEST_F(PeerTest, GivenLivingPeer_WhenNothingCanBeOpened_ThenItCountsAsAlive) {
  Begin();
  PeerOpens();
  PeerAppends(1000);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = Reserve(&attachment_, 0, 1, Kind::kData);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(status, Status::kOverLimit);
  EXPECT_EQ(attachment_.region->slots[1].pid, PeerPid());
  EXPECT_EQ(Used(attachment_, 0), 1000U);
}

TEST_F(PeerTest, GivenCompaction_WhenOurSlotMoves_ThenItIsFoundWithoutLoss) {
  MakeHamiFile(path_);
  {
    const RawFile file(path_);
    file.Set<int32_t>(SlotAt(0), PeerPid());
    file.Set<int32_t>(2'008'896, 1);
  }
  Begin();
  ASSERT_EQ(attachment_.slot, 1);
  ASSERT_EQ(Reserve(&attachment_, 0, 300, Kind::kData), Status::kOk);
  PeerDrops(0);
  ASSERT_EQ(Reserve(&attachment_, 0, 300, Kind::kData), Status::kOk);
  EXPECT_EQ(attachment_.slot, 0);
  EXPECT_EQ(attachment_.region->slots[0].used[0].total, 600U);
  EXPECT_EQ(Used(attachment_, 0), 600U) << "the copy left behind the mark does not count";
  EXPECT_EQ(Reserve(&attachment_, 0, 401, Kind::kData), Status::kOverLimit);
  // The record lock followed the slot.
  const pid_t child = Spawn([&] {
    AttachmentAfterFork(&attachment_);
    int32_t holder = 0;
    return AskRecordLock(attachment_.fd, kSlotLockByte, 1, &holder) == LockHeld::kYes ? 0 : 1;
  });
  EXPECT_EQ(Join(child), 0);
}

TEST_F(PeerTest, GivenSlotOverwrittenByPeer_ThenWeClaimAnotherWithOurUsage) {
  Begin();
  PeerOpens();
  ASSERT_EQ(Reserve(&attachment_, 0, 300, Kind::kContext), Status::kOk);
  PeerAppends(100);
  PeerDrops(0);  // the peer now sits in slot 0; ours is gone
  EXPECT_EQ(Reserve(&attachment_, 0, 601, Kind::kData), Status::kOverLimit);
  EXPECT_EQ(Reserve(&attachment_, 0, 600, Kind::kData), Status::kOk);
  EXPECT_EQ(attachment_.slot, 1);
  EXPECT_EQ(attachment_.region->slots[1].used[0].context, 300U);
  EXPECT_EQ(attachment_.region->slots[1].used[0].total, 900U);
  EXPECT_EQ(Used(attachment_, 0), 1000U);
}

TEST_F(PeerTest, GivenLeftoverTokenInPeersSlot_WhenSummed_ThenPeerIsForeign) {
  Begin();
  PeerOpens();
  Slot& peer = PeerAppends(600);
  peer.token = attachment_.token;  // appended over a slot of ours that had been moved away
  peer.start_time = attachment_.start_time;
  EXPECT_EQ(Used(attachment_, 0), 600U);
  EXPECT_EQ(Sweep(&attachment_), 0);
}

TEST_F(PeerTest, GivenOldFile_WhenAttached_ThenPostInitSemaphoreIsRepaired) {
  MakeHamiFile(path_, 1);
  Begin();
  const RawFile file(path_);
  EXPECT_EQ(file.Get<uint32_t>(2'008'920), 1U);
  EXPECT_EQ(file.Get<uint32_t>(8), 1U) << "the version words stay";
  EXPECT_EQ(Limit(attachment_, 0), 1000U);
  EXPECT_EQ(Limit(attachment_, 1), 0U) << "limits of the file, not ours";
  EXPECT_EQ(attachment_.area->foreign_seen, 1U);
}

TEST_F(PeerTest, GivenFileHamiSizedButNotFilled_WhenAttached_ThenItIsFilled) {
  RawFile(path_).Resize(2'008'953);
  Begin();
  EXPECT_EQ(Limit(attachment_, 0), 1000U);
  EXPECT_EQ(RawFile(path_).Get<int32_t>(0), 19920718);
}

TEST_F(PeerTest, GivenDeadWritersOddSeqlock_WhenUsed_ThenNothingWaitsForIt) {
  Begin();
  PeerOpens();
  Slot& peer = PeerAppends(100);
  peer.seqlock = 7;
  attachment_.region->slots[attachment_.slot].seqlock = 7;
  EXPECT_EQ(Used(attachment_, 0), 100U);
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOk);
  EXPECT_EQ(attachment_.region->slots[attachment_.slot].seqlock % 2, 0U);
}

struct OrphanCase {
  const char* name;
  int32_t (*owner)();
};
class OrphanTest : public PeerTest, public ::testing::WithParamInterface<OrphanCase> {};
TEST_P(OrphanTest, GivenOrphanedSemaphore_WhenAttached_ThenShortWaitFreesIt) {
  ASSERT_EQ(Create(path_.c_str(), TestConfig()), Status::kOk);
  {
    const RawFile file(path_);
    file.Set<uint32_t>(24, 0);
    file.Set<uint64_t>(16, static_cast<uint64_t>(GetParam().owner()));
    file.Set<uint32_t>(2'008'920, 0);
  }
  const int64_t begin = MonotonicNanos();
  Begin();
  EXPECT_LT(MonotonicNanos() - begin, 2'000'000'000);
  const RawFile file(path_);
  EXPECT_EQ(file.Get<uint32_t>(24), 1U);
  EXPECT_EQ(file.Get<uint64_t>(16), 0U);
  EXPECT_EQ(file.Get<uint32_t>(2'008'920), 1U);
}
INSTANTIATE_TEST_SUITE_P(All, OrphanTest,
                         ::testing::Values(OrphanCase{"nobody", [] { return 0; }},
                                           OrphanCase{"dead",
                                                      [] {
                                                        const pid_t pid = Spawn([] { return 0; });
                                                        Join(pid);
                                                        return pid;
                                                      }},
                                           OrphanCase{"namesake", [] { return getpid(); }},
                                           OrphanCase{"alive", [] { return getppid(); }}),
                         [](const auto& test) { return test.param.name; });

TEST_F(PeerTest, GivenSemaphoreFreedTwice_WhenWeChangeTable_ThenItAdmitsOne) {
  Begin();
  WireSemaphore& sem = attachment_.region->sem;
  EXPECT_EQ(sem.value, 1U);
  sem.value = 2;  // given back twice: by us, and by an owner that was only slow
  Attached second;
  ASSERT_EQ(Attach(&second, path_.c_str(), TestConfig()), Status::kOk);
  EXPECT_EQ(sem.value, 1U);
}

}  // namespace
}  // namespace hami::region
