// SPDX-License-Identifier: Apache-2.0
#include "region/common_area.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace hami::region {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kNow = 1'000'000 * kMs;
constexpr uint64_t kGpu = 77;

class CommonAreaTest : public testing::Test {
 protected:
  int Join(uint64_t container, int32_t priority = 1, uint16_t rate = 3000, uint64_t gpu = kGpu) {
    const int line = CommonJoin(area_.get(), container, gpu, kNow);
    if (line < 0) {
      ADD_FAILURE() << "the area is full";
      return 0;
    }
    area_->members[line].priority = priority;
    area_->members[line].rate = rate;
    return line;
  }
  CommonView Look(int line, int64_t now = kNow, int32_t priority = 1) const {
    return CommonLook(*area_, line, kGpu, priority, now);
  }
  std::unique_ptr<CommonArea> area_ = std::make_unique<CommonArea>();
};

TEST_F(CommonAreaTest, GivenNobodyElse_ThenNobodyIsSeen) {
  const CommonView view = Look(Join(1));
  EXPECT_EQ(view.active_until, 0);
  EXPECT_EQ(view.wanted, 0);
  EXPECT_FALSE(view.higher_present || view.lower_present);
}

TEST_F(CommonAreaTest, GivenOthers_ThenTheirWorkAndTheirWishesAreSeen) {
  const int mine = Join(1);
  area_->members[Join(2, 1, 2000)].active_until = kNow + 3 * kMs;
  area_->members[Join(3, 1, 0)].active_until = kNow - 3 * kMs;
  area_->members[Join(4, 1, 9000, kGpu + 1)].active_until = kNow + 100 * kMs;  // elsewhere
  const CommonView view = Look(mine);
  EXPECT_EQ(view.active_until, kNow + 3 * kMs);
  EXPECT_EQ(view.active, 1);
  EXPECT_EQ(view.wanted, 12'000);  // who has no limit wants all
  EXPECT_EQ(Look(mine, kNow + 30 * kMs).wanted, 0);
}

TEST_F(CommonAreaTest, GivenSomeWithALimit_ThenWhatTheyLeaveIsDividedAmongThoseWithoutOne) {
  const int mine = Join(1, 1, 0);
  EXPECT_FALSE(Look(mine).limited_present);
  CommonMember& first = area_->members[Join(2, 1, 2000)];
  CommonMember& second = area_->members[Join(3, 1, 3000)];
  area_->members[Join(4, 1, kCommonAll)].active_until = kNow + 100 * kMs;
  first.active_until = kNow + 3 * kMs;
  EXPECT_TRUE(Look(mine).limited_present);
  EXPECT_EQ(Look(mine).limited_until, kNow + 3 * kMs);
  EXPECT_EQ(CommonSpareRate(Look(mine), 100), 2500u);
  // Nobody has use for the second one's part.
  second.seen_at = kNow - 30 * kMs;
  EXPECT_EQ(CommonSpareRate(Look(mine), 100), 4000u);
  first.rate = 9900;
  EXPECT_EQ(CommonSpareRate(Look(mine), 100), 100u);
}

TEST_F(CommonAreaTest, GivenOneThatLags_ThenWhoLagsLessLeavesHimSome_WhereThereIsEnoughForAll) {
  const int mine = Join(1, 1, 7000);
  CommonMember& other = area_->members[Join(2, 1, 3000)];
  CommonSetLag(&other, 20 * kMs);
  EXPECT_EQ(Look(mine).lag, 0) << "he is not at work";
  other.active_until = kNow + 3 * kMs;
  EXPECT_NEAR(static_cast<double>(Look(mine).lag), 20.0 * kMs, static_cast<double>(kCommonLagUnit));
  EXPECT_NEAR(static_cast<double>(CommonConcession(Look(mine), 7000, 0, 400)), 200, 1);
  EXPECT_NEAR(static_cast<double>(CommonConcession(Look(mine), 7000, 15 * kMs, 400)), 50, 1);
  EXPECT_EQ(CommonConcession(Look(mine), 7000, 30 * kMs, 400), 0);
  EXPECT_EQ(CommonConcession(Look(mine), 7100, 0, 400), 0) << "more was promised than there is";
  EXPECT_EQ(Look(mine, kNow, 0).lag, 0) << "he is less important";
  for (const int64_t far : {1'000 * kMs, INT64_MAX}) {
    CommonSetLag(&other, far);
    EXPECT_EQ(CommonConcession(Look(mine), 7000, 0, 400), 400);
  }
  for (const int64_t none : {int64_t{0}, -kMs, INT64_MIN}) {
    CommonSetLag(&other, none);
    EXPECT_EQ(Look(mine).lag, 0);
  }
}

// It goes on as soon as that is measured, and must not find its part given away.
TEST_F(CommonAreaTest, GivenOneThatHoldsItsLaunchesForWhoMeasures_ThenItHasUseForItsPart) {
  const int mine = Join(1, 1, 0);
  CommonMember& other = area_->members[Join(2, 1, 7000)];
  other.seen_at = kNow - 30 * kMs;
  other.active_until = other.idle_since = kNow - 20 * kMs;
  EXPECT_EQ(Look(mine).limited_until, kNow + 30 * kMs);
  EXPECT_EQ(Look(mine).limited_wanted, 7000);
  const int64_t later = kNow + 30 * kMs;
  EXPECT_LE(Look(mine, later).limited_until, later);
  EXPECT_EQ(Look(mine, later).limited_wanted, 0);
}

TEST_F(CommonAreaTest, GivenOneWhoSaysWhenHeIsThrough_ThenHeIsAtWorkForLonger_UnlessHeSaysThatHeIsDone) {
  const int mine = Join(1);
  CommonMember& other = area_->members[Join(2)];
  other.active_until = kNow;
  EXPECT_TRUE(CommonAtWorkSince(Look(mine), kNow + kCommonOverrun));
  EXPECT_FALSE(CommonAtWorkSince(Look(mine), kNow + kCommonOverrun + 1));
  other.idle_since = kNow;
  EXPECT_TRUE(CommonAtWorkSince(Look(mine), kNow));
  EXPECT_FALSE(CommonAtWorkSince(Look(mine), kNow + 1));
}

TEST_F(CommonAreaTest, GivenWhatOthersUse_ThenItIsSummedUp_AndLongOnesAreCountedWhileTheySaySo) {
  const int mine = Join(1);
  CommonMember& first = area_->members[Join(2)];
  CommonMember& second = area_->members[Join(3)];
  CommonUse(&area_->members[mine], 9000);
  CommonUse(&area_->members[Join(4, 1, 3000, kGpu + 1)], 9000);  // elsewhere
  CommonUse(&first, 3000);
  CommonSetLongs(&second, 1, kNow);
  CommonUse(&second, 2000);
  CommonUse(&second, -1000);  // a correction does not touch the mark
  CommonUsed used = CommonLookAtUse(*area_, mine, kGpu, kNow);
  EXPECT_EQ(used.gpu, 4000u);
  EXPECT_EQ(used.longs, 1);
  EXPECT_EQ(used.shorts, 1);
  EXPECT_FALSE(used.silent);
  CommonSetLongs(&second, 3, kNow);
  EXPECT_EQ(CommonLookAtUse(*area_, mine, kGpu, kNow).longs, 3);
  CommonSetLongs(&second, 1, kNow);
  // Who was killed does not say it again, whoever else renews the line.
  second.seen_at = kNow + 60 * kMs;
  EXPECT_EQ(CommonLookAtUse(*area_, mine, kGpu, kNow + 40 * kMs).longs, 1);
  EXPECT_EQ(CommonLookAtUse(*area_, mine, kGpu, kNow + 60 * kMs).longs, 0);
  CommonSetLongs(&second, 0, kNow);
  used = CommonLookAtUse(*area_, mine, kGpu, kNow);
  EXPECT_EQ(used.longs, 0);
  EXPECT_EQ(used.gpu, 4000u);
}

TEST_F(CommonAreaTest, GivenOneWithoutALimitAtWork_ThenNobodyCanSayWhatIsUsed) {
  const int mine = Join(1);
  CommonMember& other = area_->members[Join(2, 1, 0)];
  EXPECT_FALSE(CommonLookAtUse(*area_, mine, kGpu, kNow).silent);
  other.active_until = kNow + kMs;
  EXPECT_TRUE(CommonLookAtUse(*area_, mine, kGpu, kNow).silent);
}

TEST_F(CommonAreaTest, WhenAContainerJoins_ThenNothingIsLeftOfTheOneBefore) {
  const int mine = Join(1);
  CommonMember& other = area_->members[Join(2)];
  CommonUse(&other, 1000);
  CommonSetLongs(&other, 1, kNow);
  const int64_t later = kNow + 2 * kCommonPresent;
  area_->members[mine].seen_at = later;
  ASSERT_EQ(CommonJoin(area_.get(), 3, kGpu, later), static_cast<int>(&other - area_->members));
  EXPECT_EQ(other.used, 0u);
}

TEST_F(CommonAreaTest, GivenMoreAndLessImportant_ThenEachSeesTheOther) {
  const int low = Join(1, 1);
  const int high = Join(2, 0);
  area_->members[high].active_until = kNow + kMs;
  EXPECT_TRUE(Look(low).higher_present);
  EXPECT_EQ(Look(low).higher_until, kNow + kMs);
  EXPECT_TRUE(Look(high, kNow, 0).lower_present);
  EXPECT_EQ(Look(high, kNow, 0).higher_until, 0);
  EXPECT_FALSE(Look(low, kNow + kCommonPresent).higher_present);
}

TEST_F(CommonAreaTest, GivenAPriorityThatDoesNotExist_ThenNobodyGivesWayToIt) {
  const int high = Join(1, 0);
  area_->members[Join(2, -5)].active_until = kNow + kMs;
  EXPECT_FALSE(Look(high, kNow, 0).higher_present);
  EXPECT_EQ(Look(high, kNow, 0).higher_until, 0);
  EXPECT_EQ(Look(high, kNow, 0).active_until, kNow + kMs);
}

TEST_F(CommonAreaTest, WhenAContainerJoinsAgain_ThenItHasItsLine_AndTheDeadLoseTheirs) {
  const int first = Join(1);
  EXPECT_EQ(Join(1), first);
  for (uint64_t i = 2; i <= kCommonMembers; ++i) ASSERT_GE(Join(i), 0);
  EXPECT_EQ(CommonJoin(area_.get(), 1000, kGpu, kNow), -1);
  const int late = CommonJoin(area_.get(), 1000, kGpu, kNow + kCommonPresent);
  ASSERT_GE(late, 0);
  EXPECT_TRUE(CommonIsMine(*area_, late, 1000, kGpu));
  EXPECT_FALSE(CommonIsMine(*area_, late, 1, kGpu));
}

TEST_F(CommonAreaTest, GivenOneThatMeasures_ThenTheOthersKnow_ForAsLongAsIsAllowed) {
  const int mine = Join(1);
  CommonMember& other = area_->members[Join(2)];
  other.quiet_until = kNow + 5 * kMs;
  EXPECT_EQ(Look(mine).quiet_until, kNow + 5 * kMs);
  other.quiet_until = kNow + 2 * kCommonQuiet;
  EXPECT_EQ(Look(mine).quiet_until, 0);
}

TEST_F(CommonAreaTest, GivenLessImportantOneThatMeasures_ThenNobodyAboveItHolds) {
  const int mine = Join(1);
  CommonMember& other = area_->members[Join(2, 2)];
  other.quiet_until = kNow + 5 * kMs;
  EXPECT_EQ(Look(mine).quiet_until, 0);
  EXPECT_EQ(Look(mine, kNow, 2).quiet_until, kNow + 5 * kMs);
}

// A request that the others do not hear of costs who asks, and all who hold for it.
TEST(CommonQuiet, GivenRequests_ThenAllHoldForThemForAQuarterOfTheTime) {
  EXPECT_EQ(CommonQuietLeft(0, kNow), kCommonQuiet);
  EXPECT_EQ(CommonQuietLeft(kNow, kNow), kCommonQuiet);
  EXPECT_EQ(CommonQuietLeft(kNow, kNow + 20 * kMs), kCommonQuiet - 20 * kMs);
  EXPECT_EQ(CommonQuietLeft(kNow, kNow + kCommonQuiet), 0);
  EXPECT_EQ(CommonQuietLeft(kNow, kNow + 4 * kCommonQuiet), 0);
  EXPECT_EQ(CommonQuietLeft(kNow, kNow + 4 * kCommonQuiet + 1), kCommonQuiet);
}

// Who waits for his turn is there, though not at work.
TEST_F(CommonAreaTest, GivenOthersThatWait_ThenTheyArePresent_UntilTheyAreGone) {
  const int mine = Join(1);
  Join(2);
  area_->members[Join(3)].active_until = kNow + kMs;
  EXPECT_EQ(Look(mine).active, 1);
  EXPECT_EQ(Look(mine).present, 2);
  EXPECT_EQ(Look(mine, kNow + kCommonPresent).present, 0);
}

TEST_F(CommonAreaTest, GivenLessImportantOneAtWork_ThenItsEndIsKnown) {
  const int mine = Join(1, 0);
  area_->members[Join(2, 1)].active_until = kNow + kMs;
  area_->members[Join(3, 0)].active_until = kNow + 2 * kMs;
  EXPECT_EQ(Look(mine, kNow, 0).lower_until, kNow + kMs);
  EXPECT_EQ(Look(mine, kNow, 0).active_until, kNow + 2 * kMs);
}

TEST_F(CommonAreaTest, GivenTimesOutOfReach_ThenTheyDoNotCount) {
  const int mine = Join(1);
  CommonMember& other = area_->members[Join(2, 0)];
  other.active_until = kNow + 2 * kCommonReach;
  EXPECT_EQ(Look(mine).higher_until, 0);
  other.seen_at = kNow + 2 * kCommonPresent;
  EXPECT_FALSE(Look(mine).higher_present);
}

TEST(CommonBurst, GivenIdleTime_ThenItIsSharedByWeight) {
  EXPECT_EQ(CommonBurstRate(3000, 8000, 0), 8000u);       // alone: up to the ceiling
  EXPECT_EQ(CommonBurstRate(3000, 9999, 3000), 5000u);    // two of a kind
  EXPECT_EQ(CommonBurstRate(3000, 9999, 1000), 7500u);    // 3 : 1
  EXPECT_EQ(CommonBurstRate(3000, 9999, 7000), 3000u);    // nothing is idle
  EXPECT_EQ(CommonBurstRate(3000, 9999, 30'000), 3000u);  // never below the limit
  EXPECT_EQ(CommonBurstRate(3000, 2000, 0), 3000u);
}

TEST(CommonAreaFile, WhenMade_ThenItOpens_AndMakingItAgainChangesNothing) {
  const std::string path = testing::TempDir() + "/common-" + std::to_string(getpid());
  EXPECT_EQ(OpenCommonArea(path.c_str()).area, nullptr);
  ASSERT_TRUE(CreateCommonArea(path.c_str()));
  const CommonFile file = OpenCommonArea(path.c_str());
  ASSERT_NE(file.area, nullptr);
  EXPECT_EQ(CommonJoin(file.area, 5, kGpu, kNow), 0);
  ASSERT_TRUE(CreateCommonArea(path.c_str()));
  EXPECT_TRUE(CommonIsMine(*file.area, 0, 5, kGpu));
  EXPECT_TRUE(CommonIsWhole(file, path.c_str()));
  std::filesystem::resize_file(path, 100);
  EXPECT_FALSE(CommonIsWhole(file, path.c_str()));
  EXPECT_EQ(OpenCommonArea(path.c_str()).area, nullptr);
  munmap(file.area, sizeof(CommonArea));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace hami::region
