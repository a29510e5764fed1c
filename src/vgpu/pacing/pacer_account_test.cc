// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "region/gpu_time.h"
#include "vgpu/pacing/pacer_model.h"

namespace hami::vgpu {
namespace {

using region::GpuTimeBalance;
using region::GpuTimeCharge;
using region::GpuTimeDevice;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000 * kMs;

TEST(GpuTimeAccount, WhenACorrectionComesBack_ThenItMakesNoBalanceAboveTheMost) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2000);
  GpuTimeCharge(&account, 10 * kMs, kStart, 2000);
  const auto paid_back = [&](int64_t gpu) { return region::GpuTimePaidBack(&account, gpu, 16 * kMs, kStart, 2000); };
  EXPECT_EQ(paid_back(-20 * kMs), -20 * kMs);
  EXPECT_EQ(paid_back(-70 * kMs), -26 * kMs);
  EXPECT_EQ(paid_back(5 * kMs), 5 * kMs) << "a charge is never less";
  GpuTimeCharge(&account, -40 * kMs, kStart, 2000);
  EXPECT_EQ(paid_back(-kMs), 0) << "nor does one come of it";
}

TEST(GpuTimeAccount, GivenNewAccount_ThenItStartsAtZeroAndEarnsItsRate) {
  GpuTimeDevice account{};
  EXPECT_EQ(GpuTimeBalance(&account, kStart, 2500), 0);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 4 * kMs, 2500), kMs);
}

TEST(GpuTimeAccount, GivenDebt_ThenItIsPaidAtTheRate) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2500);
  GpuTimeCharge(&account, 500 * kMs, kStart, 2500);
  EXPECT_EQ(GpuTimeBalance(&account, kStart, 2500), -500 * kMs);
  EXPECT_LT(GpuTimeBalance(&account, kStart + 1999 * kMs, 2500), 0);
  EXPECT_GE(GpuTimeBalance(&account, kStart + 2001 * kMs, 2500), 0);
}

TEST(GpuTimeAccount, GivenRest_ThenLittleIsKept_AndMoreByTheActive) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 5000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 10'000 * kMs, 5000), region::kIdleCap);
  GpuTimeCharge(&account, 1, kStart + 10'000 * kMs, 5000);
  EXPECT_GT(GpuTimeBalance(&account, kStart + 10'040 * kMs, 5000), 20 * kMs);
}

TEST(GpuTimeAccount, GivenALongLaunchOfOthers_ThenMoreIsKeptWhileThatIsNotLongAgo) {
  const auto balance = [](int64_t seen) {
    GpuTimeDevice account{};
    GpuTimeBalance(&account, kStart, 5000);
    region::GpuTimeBesideLong(&account, seen);
    region::GpuTimeWaits(&account, kStart + 10'000 * kMs);
    return GpuTimeBalance(&account, kStart + 10'000 * kMs, 5000);
  };
  EXPECT_EQ(balance(kStart + 9'000 * kMs), region::kBesideLongCap);
  EXPECT_EQ(balance(kStart + 10'000 * kMs), region::kBesideLongCap);
  for (const int64_t not_now : {kStart - kMs, kStart + 11'000 * kMs, INT64_MIN, INT64_MAX, int64_t{0}}) {
    EXPECT_EQ(balance(not_now), region::kActiveCap) << not_now;
  }
}

TEST(GpuTimeAccount, WhenTheRateChanges_ThenTheBalanceIsKept) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2000);
  GpuTimeCharge(&account, 100 * kMs, kStart, 2000);
  EXPECT_NEAR(static_cast<double>(GpuTimeBalance(&account, kStart, 8000)), -100.0 * kMs, 1000);
  EXPECT_NEAR(static_cast<double>(GpuTimeBalance(&account, kStart, 500)), -100.0 * kMs, 1000);
}

TEST(GpuTimeAccount, WhenForgone_ThenNothingSavedIsLeft_AndWhatIsInFlightIsOwedOnce) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2000);
  GpuTimeCharge(&account, 1, kStart, 2000);
  ASSERT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), 20 * kMs - 1);
  region::GpuTimeForgo(&account, 6 * kMs, kStart + 100 * kMs, 2000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), -6 * kMs);
  region::GpuTimeForgo(&account, 4 * kMs, kStart + 100 * kMs, 2000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), -6 * kMs);
  GpuTimeCharge(&account, 300 * kMs, kStart + 100 * kMs, 2000);
  region::GpuTimeForgo(&account, 300 * kMs, kStart + 100 * kMs, 2000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart + 100 * kMs, 2000), -306 * kMs);
}

TEST(GpuTimeAccount, WhenSomeIsForfeited_ThenItIsGone_AndNobodyHadIt) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 2000);
  region::GpuTimeForfeit(&account, 3 * kMs, 2000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart, 2000), -3 * kMs);
  EXPECT_EQ(account.charged, 0u);
}

// Of two threads one may see the rate of another moment: what others leave changes all the time.
TEST(GpuTimeAccount, GivenAChargeByARateThatIsNotTheAccounts_ThenItCostsWhatItIs) {
  for (const uint32_t stale : {100u, 10'000u}) {
    GpuTimeDevice account{};
    GpuTimeBalance(&account, kStart, 2000);
    GpuTimeCharge(&account, 10 * kMs, kStart, stale);
    region::GpuTimeForfeit(&account, 10 * kMs, stale);
    EXPECT_EQ(GpuTimeBalance(&account, kStart, 2000), -20 * kMs) << stale;
  }
  GpuTimeDevice unused{};
  GpuTimeCharge(&unused, kMs, kStart, 2000);
  EXPECT_EQ(unused.charged, static_cast<uint64_t>(kMs));
}

TEST(GpuTimeAccount, GivenPointOfAnotherClock_ThenItStartsAnew) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart + 1000 * region::kLongestDebt, 5000);
  EXPECT_EQ(GpuTimeBalance(&account, kStart, 5000), 0);
}

TEST(RunningLaunch, GivenAKindThatIsNotKnown_ThenItIsPaidForAsItsTimePasses_UpToItsRoom) {
  Running r = RunningOf(0);
  EXPECT_EQ(PayFor(&r, 5 * kMs), 5 * kMs);
  EXPECT_EQ(PayFor(&r, 25 * kMs), 15 * kMs);
  EXPECT_EQ(PayFor(&r, 470 * kMs), 0);
  EXPECT_EQ(r.paid, kRoom);
  MakeRoom(&r);  // another one is launched
  EXPECT_EQ(PayFor(&r, 10 * kMs), 490 * kMs);
}

TEST(RunningLaunch, GivenSomethingHeldBehindItInVain_ThenThatTimeMakesNoRoom) {
  Running r = RunningOf(0);
  PayFor(&r, kPatience);
  HeldInVain(&r);
  MakeRoom(&r);
  EXPECT_EQ(r.room, 2 * kRoom);
  EXPECT_EQ(PayFor(&r, kPatience), kRoom);
}

TEST(RunningLaunch, GivenALongOneThatIsKnown_ThenWhatItTakesLongerIsPaidFor_UpToAQuarter) {
  Running r = RunningOf(400 * kMs);
  EXPECT_EQ(PayFor(&r, 400 * kMs), 0);
  EXPECT_EQ(PayFor(&r, 5 * kMs), 5 * kMs);
  EXPECT_EQ(PayFor(&r, 1000 * kMs), 95 * kMs);
  Running shorter = RunningOf(kMs);
  EXPECT_EQ(PayFor(&shorter, 1000 * kMs), 0);
}

TEST(RunningLaunch, WhileItsEndIsAwaited_ThenItIsLookedForOftenEnough) {
  for (int64_t at_work = 0; at_work < kPatience; at_work += at_work / 8 + 1000) {
    EXPECT_GE(EndPoll(at_work), 20'000);
    EXPECT_LE(EndPoll(at_work), at_work / 32 + 20'000);
    EXPECT_LE(EndPoll(at_work), 5 * kMs);
  }
}

TEST(GpuTimeAccount, GivenSomebodyWhoWaits_ThenItIsNotAtRest) {
  GpuTimeDevice account{};
  GpuTimeBalance(&account, kStart, 100);
  GpuTimeCharge(&account, 1, kStart, 100);
  for (int64_t now = kStart; now < kStart + 4000 * kMs; now += 5 * kMs) {
    GpuTimeBalance(&account, now, 100);
    region::GpuTimeWaits(&account, now);
  }
  EXPECT_GT(GpuTimeBalance(&account, kStart + 4000 * kMs, 100), 30 * kMs);
}

TEST(GpuTimeWorkers, EachCountsOnceInAPeriod_AndTheLastPeriodCountsUntilThereAreMore) {
  GpuTimeDevice account{};
  uint32_t counted_in[3]{};
  EXPECT_EQ(region::GpuTimeWorkers(&account, kStart, &counted_in[0]), 1u);
  EXPECT_EQ(region::GpuTimeWorkers(&account, kStart, &counted_in[1]), 2u);
  EXPECT_EQ(region::GpuTimeWorkers(&account, kStart, &counted_in[2]), 3u);
  EXPECT_EQ(region::GpuTimeWorkers(&account, kStart, &counted_in[0]), 3u);
  const int64_t next = kStart + region::kWorkPeriod;
  EXPECT_EQ(region::GpuTimeWorkers(&account, next, &counted_in[0]), 3u);
  EXPECT_EQ(region::GpuTimeWorkers(&account, next + region::kWorkPeriod, &counted_in[0]), 1u) << "two have gone";
}

TEST(GpuTimeWorkers, AfterARest_ThenNobodyElseIsThere) {
  GpuTimeDevice account{};
  uint32_t counted_in[2]{};
  region::GpuTimeWorkers(&account, kStart, &counted_in[0]);
  region::GpuTimeWorkers(&account, kStart, &counted_in[1]);
  EXPECT_EQ(region::GpuTimeWorkers(&account, kStart + 2 * region::kWorkPeriod, &counted_in[0]), 1u);
}

TEST(GpuTimeLongs, EachSaysSoAgainAndAgain_AndSeesHowManyOthersDo) {
  GpuTimeDevice account{};
  uint32_t said[3]{};
  EXPECT_EQ(region::GpuTimeLongs(&account, true, kStart, &said[0]), 0);
  EXPECT_EQ(region::GpuTimeLongs(&account, true, kStart, &said[1]), 1);
  EXPECT_EQ(region::GpuTimeLongs(&account, false, kStart, &said[2]), 2) << "who has none sees those who have";
  for (int64_t later = 0; later < 20'000 * kMs; later += 10 * kMs) {
    EXPECT_EQ(region::GpuTimeLongs(&account, true, kStart + later, &said[0]), later <= 40 * kMs ? 1 : 0)
        << "the second one was killed; " << later / kMs << " ms later";
    if (later == 40 * kMs) later = 70 * kMs;
  }
  EXPECT_EQ(region::GpuTimeLongs(&account, false, kStart + 20'000 * kMs, &said[0]), 0);
  EXPECT_EQ(account.longs, 0u);
}

TEST(GpuTimeLongs, GivenMoreThanEight_ThenEightAreSeen_AndOneThatIsThroughMakesRoom) {
  GpuTimeDevice account{};
  uint32_t said[10]{};
  for (uint32_t& his : said) region::GpuTimeLongs(&account, true, kStart, &his);
  EXPECT_EQ(region::GpuTimeLongs(&account, true, kStart, &said[0]), 7);
  EXPECT_EQ(region::GpuTimeLongs(&account, true, kStart, &said[9]), 8);
  region::GpuTimeLongs(&account, false, kStart, &said[3]);
  EXPECT_EQ(region::GpuTimeLongs(&account, true, kStart, &said[9]), 7);
  // Who did not come by for long has lost its place, and takes another one, not somebody else's.
  const int64_t later = kStart + 100 * kMs;
  region::GpuTimeLongs(&account, true, later, &said[8]);
  EXPECT_EQ(region::GpuTimeLongs(&account, true, later, &said[0]), 1);
  EXPECT_EQ(region::GpuTimeLongs(&account, true, later, &said[8]), 1);
}

TEST(GpuTimeLongs, GivenAnyContent_ThenItIsEightAtMostAndRightSoonAfter) {
  for (const uint64_t word : {~uint64_t{0}, uint64_t{0x0101'0101'0101'0101}, uint64_t{0x80ff'0001'7f00'fe01}}) {
    GpuTimeDevice account{};
    account.longs = word;
    uint32_t said = 0x0101;
    EXPECT_LE(region::GpuTimeLongs(&account, true, kStart, &said), 8);
    EXPECT_EQ(region::GpuTimeLongs(&account, true, kStart + 100 * kMs, &said), 0) << word;
  }
}

// A region may hold anything, and be of another boot, whose clock was ahead.
TEST(GpuTimeWorkers, GivenAnyContent_ThenItIsOneAtLeastAndRightAfterTwoPeriods) {
  for (const uint64_t word : {~uint64_t{0}, uint64_t{0xffff}, uint64_t{0xffff'ffff}, uint64_t{0xffff} << 16,
                              static_cast<uint64_t>(kStart / region::kWorkPeriod) << 32 | 0xffff'ffff}) {
    GpuTimeDevice account{};
    account.workers = word;
    uint32_t counted_in = 0;
    EXPECT_GE(region::GpuTimeWorkers(&account, kStart, &counted_in), 1u);
    region::GpuTimeWorkers(&account, kStart + region::kWorkPeriod, &counted_in);
    EXPECT_EQ(region::GpuTimeWorkers(&account, kStart + 2 * region::kWorkPeriod, &counted_in), 1u) << word;
  }
}

}  // namespace
}  // namespace hami::vgpu
