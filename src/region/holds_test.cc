// SPDX-License-Identifier: Apache-2.0
#include "region/holds.h"

#include <cstring>
#include <memory>
#include <random>

#include "region/lock.h"
#include "region/process.h"
#include "region/reader.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

constexpr int64_t kEntries = 2'011'136 + 68'928 + 64;

class HoldsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (Attached& one : peers_) ASSERT_EQ(Attach(&one, path_.c_str(), TestConfig(1000)), Status::kOk);
  }
  uint64_t Made(Attachment* maker, uint64_t bytes) {
    EXPECT_EQ(Reserve(maker, 1, bytes, Kind::kData), Status::kOk);
    const uint64_t object = Share(maker, 1, bytes);
    EXPECT_NE(object, 0U);
    return object;
  }
  bool Joined(Attachment* user, uint64_t object) {
    uint32_t device = 77;
    const bool joined = Join(user, object, &device);
    EXPECT_EQ(device, joined ? 1U : 77U);
    return joined;
  }
  void ExpectHeld(uint64_t first, uint64_t second, uint64_t sum) {
    for (Attached& one : peers_) ClaimHeritage(&one);
    EXPECT_EQ(OwnUsed(first_, 1, Kind::kData), first);
    EXPECT_EQ(OwnUsed(second_, 1, Kind::kData), second);
    EXPECT_EQ(Used(first_, 1), sum);
  }
  // All that the limit leaves can be had, and no more.
  void ExpectRoom(Attachment* who, uint64_t room) {
    EXPECT_EQ(Reserve(who, 1, room, Kind::kData), Status::kOk);
    EXPECT_EQ(Reserve(who, 1, 1, Kind::kData), Status::kOverLimit);
    EXPECT_EQ(Refund(who, 1, room, Kind::kData), Status::kOk);
  }
  uint64_t SeenFromOutside() {
    const auto snapshot = std::make_unique<Snapshot>();
    EXPECT_EQ(ReadSnapshotFile(path_.c_str(), true, snapshot.get()), Status::kOk);
    return snapshot->devices[1].used;
  }
  // A child that makes an object of `bytes`, or joins one, and stays until it is killed.
  pid_t Child(uint64_t bytes, uint64_t* object) {
    auto* const shared =
        static_cast<uint64_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    *shared = *object;
    const Signal ready;
    const pid_t pid = Spawn([&] {
      AttachmentAfterFork(&first_);
      if (*shared != 0) {
        if (!Joined(&first_, *shared)) return 1;
      } else {
        *shared = Made(&first_, bytes);
      }
      ready.Raise();
      for (;;) pause();
    });
    ready.Await();
    *object = *shared;
    munmap(shared, 4096);
    return pid;
  }
  static void Kill(pid_t pid) {
    kill(pid, SIGKILL);
    ASSERT_EQ(region::Join(pid), 1000 + SIGKILL);
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
  Attached peers_[3];
  Attached& first_ = peers_[0];
  Attached& second_ = peers_[1];
  Attached& third_ = peers_[2];
};

TEST_F(HoldsTest, GivenSharedObject_WhenOthersJoinAndLeave_ThenMakerPaysOnce) {
  const uint64_t object = Made(&first_, 400);
  EXPECT_TRUE(Joined(&second_, object));
  EXPECT_TRUE(Joined(&third_, object));
  ExpectHeld(400, 0, 400);
  EXPECT_EQ(GuestBytes(first_, 1), 0U);
  EXPECT_EQ(GuestBytes(second_, 1), 400U);
  EXPECT_EQ(GuestBytes(second_, 0), 0U);
  ExpectRoom(&second_, 600);
  EXPECT_TRUE(Leave(&second_, object));
  EXPECT_TRUE(Leave(&third_, object));
  ExpectHeld(400, 0, 400);
  EXPECT_TRUE(Leave(&first_, object));
  ExpectHeld(0, 0, 0);
  EXPECT_FALSE(Joined(&second_, object)) << "a number is never given twice";
  EXPECT_NE(Made(&first_, 1), object);
}

TEST_F(HoldsTest, GivenGuest_WhenPayerLeaves_ThenBytesAreNeverOutOfTheSum) {
  const uint64_t object = Made(&first_, 400);
  ASSERT_TRUE(Joined(&second_, object));
  EXPECT_TRUE(Leave(&first_, object));
  EXPECT_EQ(Used(first_, 1), 400U);
  EXPECT_EQ(OwnUsed(first_, 1, Kind::kData), 0U);
  EXPECT_EQ(OwnUsed(second_, 1, Kind::kData), 0U) << "not before it looks";
  EXPECT_EQ(GuestBytes(second_, 1), 400U) << "held, and not in its usage yet";
  EXPECT_EQ(SeenFromOutside(), 400U);
  ExpectRoom(&third_, 600);
  EXPECT_EQ(Reserve(&second_, 1, 5, Kind::kData), Status::kOk);
  EXPECT_EQ(OwnUsed(second_, 1, Kind::kData), 405U);
  EXPECT_EQ(GuestBytes(second_, 1), 0U);
  ExpectHeld(0, 405, 405);
  EXPECT_EQ(SeenFromOutside(), 405U);
  EXPECT_TRUE(Leave(&second_, object));
  ExpectHeld(0, 5, 5);
}

TEST_F(HoldsTest, GivenSeveralUses_WhenTheyEnd_ThenTheLastOneCounts) {
  const uint64_t object = Made(&first_, 400);
  EXPECT_TRUE(Joined(&first_, object));
  EXPECT_TRUE(Joined(&second_, object));
  EXPECT_TRUE(Joined(&second_, object));
  EXPECT_TRUE(Leave(&first_, object));
  ExpectHeld(400, 0, 400);
  EXPECT_TRUE(Leave(&first_, object));
  ExpectHeld(0, 400, 400);
  EXPECT_FALSE(Leave(&first_, object));
  EXPECT_TRUE(Leave(&second_, object));
  ExpectHeld(0, 400, 400);
  EXPECT_TRUE(Leave(&second_, object));
  ExpectHeld(0, 0, 0);
}

TEST_F(HoldsTest, GivenHeirBeforeItLooks_WhenItLeavesOrGoes_ThenNextInherits) {
  const uint64_t object = Made(&first_, 400);
  ASSERT_TRUE(Joined(&second_, object));
  ASSERT_TRUE(Joined(&third_, object));
  EXPECT_TRUE(Leave(&first_, object));
  Detach(&second_);
  EXPECT_EQ(Used(first_, 1), 400U);
  EXPECT_EQ(OwnUsed(third_, 1, Kind::kData), 0U);
  ClaimHeritage(&third_);
  EXPECT_EQ(OwnUsed(third_, 1, Kind::kData), 400U);
  Detach(&third_);
  EXPECT_EQ(Used(first_, 1), 0U);
  EXPECT_EQ(first_.area->holds.heirs, 0U);
  EXPECT_EQ(first_.area->holds.top, 0U);
}

TEST_F(HoldsTest, GivenAPayerThatDies_WhenSomebodyNeedsTheRoom_ThenTheHeirPays) {
  uint64_t object = 0;
  const pid_t maker = Child(400, &object);
  ASSERT_TRUE(Joined(&second_, object));
  Kill(maker);
  EXPECT_EQ(SeenFromOutside(), 400U) << "also before anybody swept";
  ExpectRoom(&third_, 600);
  EXPECT_EQ(SeenFromOutside(), 400U);
  ExpectHeld(0, 400, 400);
  EXPECT_TRUE(Leave(&second_, object));
  ExpectRoom(&third_, 1000);
}

TEST_F(HoldsTest, GivenDeadMaker_WhenOneJoinsBeforeSweep_ThenJoinerInherits) {
  uint64_t object = 0;
  Kill(Child(400, &object));
  ASSERT_TRUE(Joined(&second_, object));
  Sweep(&third_);
  ExpectHeld(0, 400, 400);
  Detach(&second_);
  EXPECT_EQ(Used(first_, 1), 0U);
  EXPECT_FALSE(Joined(&first_, object));
}

TEST_F(HoldsTest, GivenUnheldObject_WhenBroughtBack_ThenItHasItsNumberAgain) {
  const uint64_t object = Made(&first_, 400);
  ASSERT_EQ(Reserve(&second_, 1, 400, Kind::kData), Status::kOk);
  EXPECT_EQ(Share(&second_, 1, 400, object), 0U) << "it is held";
  EXPECT_TRUE(Leave(&first_, object));
  EXPECT_FALSE(Joined(&first_, object));
  EXPECT_EQ(Share(&second_, 1, 400, object), object);
  EXPECT_TRUE(Joined(&first_, object));
  EXPECT_TRUE(Leave(&second_, object));
  ExpectHeld(400, 0, 400);
  EXPECT_GT(Made(&second_, 1), object);
}

TEST_F(HoldsTest, GivenGuestsThatDie_ThenThePayerPaysOn) {
  uint64_t object = Made(&first_, 400);
  const pid_t one = Child(0, &object);
  const pid_t two = Child(0, &object);
  Kill(one);
  Kill(two);
  ExpectRoom(&second_, 600);
  EXPECT_EQ(first_.area->holds.top, 1U);
  EXPECT_TRUE(Leave(&first_, object));
  ExpectHeld(0, 0, 0);
}

// HAMi-core drops the slots of the dead by itself.
TEST_F(HoldsTest, GivenADeadHolderWhoseSlotIsGone_WhenSwept_ThenItsHoldEnds) {
  uint64_t object = 0;
  const pid_t maker = Child(400, &object);
  ASSERT_TRUE(Joined(&second_, object));
  const RawFile file(path_);
  ASSERT_EQ(file.Get<int32_t>(SlotAt(3)), maker);
  file.Set<int32_t>(SlotAt(3), 0);
  Sweep(&third_);
  EXPECT_EQ(file.Get<uint8_t>(kEntries + 31), 2) << "it lives, and will want its slot back";
  Kill(maker);
  Sweep(&third_);
  ExpectHeld(0, 400, 400);
}

TEST_F(HoldsTest, GivenAFork_ThenTheChildHoldsNothing) {
  const uint64_t object = Made(&first_, 400);
  EXPECT_EQ(region::Join(Spawn([&] {
              AttachmentAfterFork(&first_);
              return Leave(&first_, object) ? 1 : 0;
            })),
            0);
  ExpectHeld(400, 0, 400);
}

TEST_F(HoldsTest, GivenUnavailableLock_WhenHoldEnds_ThenItEndsWithNextTurn) {
  const uint64_t object = Made(&first_, 400);
  // Another thread of the same process has it, from which it is never taken.
  ASSERT_EQ(Lock(&first_, first_.lock_id), Status::kOk);
  EXPECT_TRUE(Leave(&first_, object));  // waits for two seconds
  EXPECT_EQ(Used(first_, 1), 400U);
  EXPECT_TRUE(Unlock(&first_, first_.lock_id));
  ExpectRoom(&second_, 600);
  EXPECT_EQ(Refund(&first_, 1, 0, Kind::kData), Status::kOk);
  ExpectHeld(0, 0, 0);
  ExpectRoom(&second_, 1000);
}

TEST_F(HoldsTest, GivenAFullTable_ThenWhatDoesNotFitStaysWhatItWas) {
  std::vector<uint64_t> objects;
  ASSERT_EQ(Reserve(&first_, 1, 1000, Kind::kData), Status::kOk);
  for (uint64_t object = Share(&first_, 1, 0); object != 0; object = Share(&first_, 1, 0)) objects.push_back(object);
  EXPECT_EQ(objects.size(), kMaxHolds);
  EXPECT_FALSE(Joined(&second_, objects.front()));
  EXPECT_TRUE(Leave(&first_, objects[7]));
  EXPECT_TRUE(Joined(&second_, objects.back()));
  for (const uint64_t object : objects) Leave(&first_, object);
  EXPECT_TRUE(Leave(&second_, objects.back()));
  EXPECT_EQ(first_.area->holds.top, 0U);
  ExpectHeld(1000, 0, 1000);
}

TEST_F(HoldsTest, GivenNonsense_ThenNothingIsHeld) {
  EXPECT_EQ(Share(&first_, kMaxDevices, 1), 0U);
  EXPECT_FALSE(Joined(&first_, 0));
  EXPECT_FALSE(Joined(&first_, 99));
  EXPECT_FALSE(Leave(&first_, 99));
  Attachment nowhere;
  EXPECT_EQ(Share(&nowhere, 0, 1), 0U);
  EXPECT_FALSE(Joined(&nowhere, 1));
  EXPECT_FALSE(Leave(&nowhere, 1));
  ClaimHeritage(&nowhere);
}

// The table is the container's to write: whatever stands there, what is true comes back with the next sweep.
TEST_F(HoldsTest, GivenGarbageInTheTable_WhenSwept_ThenTheSumsAreRightAgain) {
  std::mt19937_64 random(20261122);
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(Reserve(&first_, 1, 10, Kind::kData), Status::kOk);
    PrivateHolds& holds = first_.area->holds;
    auto* const words = reinterpret_cast<uint64_t*>(&holds);
    for (size_t i = 0; i < sizeof holds / sizeof *words; ++i) words[i] = random() >> random() % 64;
    for (PrivateHold& hold : holds.entries) {
      hold.state = static_cast<uint8_t>(hold.state % 6);
      hold.device = static_cast<uint8_t>(hold.device % 20);
      if (round % 2 == 0) hold.object %= 5;
    }
    if (round % 3 == 0) holds.top = kMaxHolds;
    SeenFromOutside();
    uint32_t device = 0;
    region::Join(&second_, 3, &device);
    Leave(&second_, 3);
    EXPECT_LE(RegionMark(&first_), (uint64_t{1} << 59) - 1);
    Sweep(&third_);
    EXPECT_LE(holds.top, kMaxHolds);
    for (uint32_t i = 0; i < kMaxDevices; ++i) {
      for (Attached& one : peers_) Refund(&one, i, UINT64_MAX, Kind::kData);
      EXPECT_EQ(Used(first_, i), 0U) << round;
    }
    holds.last_object = 1000;
    const uint64_t object = Made(&first_, 400);
    EXPECT_TRUE(Joined(&second_, object));
    EXPECT_TRUE(Leave(&first_, object));
    EXPECT_TRUE(Leave(&second_, object));
    ExpectHeld(0, 0, 0);
  }
}

TEST_F(HoldsTest, GivenAHold_ThenItStandsWhereOtherVersionsLookForIt) {
  Made(&first_, 400);
  const uint64_t object = Made(&first_, 300);
  ASSERT_TRUE(Joined(&second_, object));
  const RawFile file(path_);
  EXPECT_EQ(file.Get<uint64_t>(kEntries + 64), object);
  EXPECT_EQ(file.Get<uint64_t>(kEntries + 64 + 8), second_.token);
  EXPECT_EQ(file.Get<uint64_t>(kEntries + 64 + 16), 300U);
  EXPECT_EQ(file.Get<uint32_t>(kEntries + 64 + 24), 1U);
  EXPECT_EQ(file.Get<uint16_t>(kEntries + 64 + 28), 1U);
  EXPECT_EQ(file.Get<uint8_t>(kEntries + 64 + 30), 1U);
  EXPECT_EQ(file.Get<uint8_t>(kEntries + 64 + 31), 1U);
  EXPECT_EQ(file.Get<uint8_t>(kEntries + 31), 2U);
  EXPECT_EQ(file.Get<uint32_t>(kEntries - 64 + 16), 3U) << "top";
  const uint64_t mark = RegionMark(&first_);
  EXPECT_EQ(RegionMark(&second_), mark);
  EXPECT_EQ(file.Get<uint64_t>(kEntries - 64), mark);
}

}  // namespace
}  // namespace hami::region
