// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_shared.h"

#include <gtest/gtest.h>

#include "vgpu/pacing/pacer_model.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000 * kMs;
constexpr int64_t kTick = 5 * kMs;

// What others have: `longs` with a long launch, `shorts` that are charged `percent` of the time together.
region::CommonUsed Others(int64_t longs, int64_t shorts = 0, int64_t charged = 0) {
  return {.gpu = static_cast<uint64_t>(charged >> region::kCommonUnit), .longs = longs, .shorts = shorts};
}

double OwnMs(const SharedTime& s, int64_t measured) {
  return static_cast<double>(OwnOf(s, measured, true)) / static_cast<double>(kMs);
}

TEST(SharedTime, GivenNobodyElse_ThenAllOfItIsItsOwn) {
  SharedTime s = SharedFrom(Others(0), kStart);
  for (int i = 1; i < 20; ++i) LookAround(&s, Others(0), true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 98 * kMs), 98, 0.01);
}

TEST(SharedTime, GivenALongOneOfAnother_ThenHalfOfTheTimeTheyShareIsItsOwn) {
  SharedTime s = SharedFrom(Others(1), kStart);
  for (int i = 1; i <= 40; ++i) LookAround(&s, Others(i < 20 ? 1 : 0), true, kStart + i * kTick);
  // 95 ms beside it, 5 in which it ended, 100 without.
  EXPECT_NEAR(OwnMs(s, 200 * kMs), 95 / 2.0 + 5 * 2 / 3.0 + 100, 0.1);
}

TEST(SharedTime, GivenTwoLongOnes_ThenAThirdIsItsOwn) {
  SharedTime s = SharedFrom(Others(2), kStart);
  for (int i = 1; i <= 60; ++i) LookAround(&s, Others(2), true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 303 * kMs), 101, 0.1);
}

TEST(SharedTime, GivenShortOnesThatTakeLessThanTheirTurns_ThenTheRestIsItsOwn) {
  SharedTime s = SharedFrom(Others(0, 1, 0), kStart);
  for (int i = 1; i <= 30; ++i) LookAround(&s, Others(0, 1, i * kTick * 3 / 10), true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 150 * kMs), 105, 0.1);
}

// A launch ends some ms after the last look. Were that taken for its own, one of 50 ms would be charged 3 % too much.
TEST(SharedTime, GivenATimeAfterTheLastLook_ThenOthersHadTheirTurnsInItToo) {
  SharedTime s = SharedFrom(Others(0, 1, 0), kStart);
  for (int i = 1; i <= 19; ++i) LookAround(&s, Others(0, 1, i * kTick / 2), true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 99 * kMs), 49.5, 0.1);
}

// They are charged when they launch, many at once, and have what they paid for later.
TEST(SharedTime, GivenShortOnesThatPayBeforehand_ThenWhatTheyCanNotHaveHadYetCountsLater) {
  SharedTime s = SharedFrom(Others(0, 1, 0), kStart);
  for (int i = 1; i <= 40; ++i) {
    LookAround(&s, Others(0, 1, (i + 3) / 4 * 2 * kTick), true, kStart + i * kTick);
  }
  EXPECT_NEAR(OwnMs(s, 200 * kMs), 100, 0.1);
}

TEST(SharedTime, GivenALongOneAndShortOnes_ThenWhatTheseLeaveIsDivided) {
  SharedTime s = SharedFrom(Others(1, 1, 0), kStart);
  for (int i = 1; i <= 40; ++i) LookAround(&s, Others(1, 1, i * kTick / 5), true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 200 * kMs), 80, 0.1);
}

TEST(SharedTime, GivenAnyClaim_ThenNobodyHasMoreThanHisTurns) {
  for (const int64_t claim : {int64_t{1} << 60, int64_t{90} * kMs, -(int64_t{1} << 60)}) {
    SharedTime s = SharedFrom(Others(0, 1, 0), kStart);
    for (int i = 1; i <= 40; ++i) {
      LookAround(&s, Others(0, 1, static_cast<int64_t>(static_cast<uint64_t>(claim) * static_cast<uint64_t>(i))), true,
                 kStart + i * kTick);
    }
    EXPECT_GE(OwnOf(s, 200 * kMs, true), 100 * kMs - 1) << claim;
    EXPECT_LE(OwnOf(s, 200 * kMs, true), 200 * kMs) << claim;
  }
}

TEST(SharedTime, WhenSomebodyLeaves_ThenThatIsNoTimeGivenBack) {
  SharedTime s = SharedFrom(Others(0, 1, 5'000 * kMs), kStart);
  LookAround(&s, Others(0, 1, 5'002 * kMs), true, kStart + kTick);
  LookAround(&s, Others(0, 0, 0), true, kStart + 2 * kTick);
  LookAround(&s, Others(0, 0, 0), true, kStart + 10 * kTick);
  EXPECT_NEAR(OwnMs(s, 50 * kMs), 48, 0.1);
}

TEST(SharedTime, WhenSomebodyComesBack_ThenWhatHeHadBeforeIsNotOfNow) {
  SharedTime s = SharedFrom(Others(0, 0, 0), kStart);
  LookAround(&s, Others(0, 1, 5'000 * kMs), true, kStart + kTick);
  for (int i = 2; i <= 10; ++i) LookAround(&s, Others(0, 1, 5'000 * kMs), true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 50 * kMs), 50, 0.1);
}

TEST(SharedTime, GivenALaunchOfMinutes_ThenNothingOverflows) {
  for (const int64_t seconds : {5, 60, 600}) {
    const int64_t measured = seconds * 1'000 * kMs;
    SharedTime s = SharedFrom(Others(0), kStart);
    for (int64_t i = 1; i <= seconds; ++i) LookAround(&s, Others(0), true, kStart + i * 1'001 * kMs);
    EXPECT_NEAR(OwnMs(s, measured), static_cast<double>(seconds) * 1'000, 1);
  }
}

TEST(SharedTime, WhileItHasNotBegun_ThenNothingCounts) {
  SharedTime s = SharedFrom(Others(1), kStart);
  for (int i = 1; i <= 20; ++i) LookAround(&s, Others(1), false, kStart + i * kTick);
  for (int i = 21; i <= 40; ++i) LookAround(&s, Others(0), true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 100 * kMs), 100, 2);
}

TEST(SharedTime, GivenOneWhoTellsNothing_OrTooFewLooks_ThenNobodyCanSay) {
  SharedTime s = SharedFrom(Others(1), kStart);
  LookAround(&s, Others(1), true, kStart + kTick);
  EXPECT_EQ(OwnOf(s, 100 * kMs, true), 0);
  region::CommonUsed silent = Others(1);
  silent.silent = true;
  LookAround(&s, silent, true, kStart + 18 * kTick);
  LookAround(&s, Others(1), true, kStart + 20 * kTick);
  EXPECT_EQ(OwnOf(s, 100 * kMs, true), 0);
  EXPECT_NEAR(static_cast<double>(OwnOf(s, 100 * kMs, false)), 50.0 * kMs, 1.0 * kMs) << "of the same container";
}

TEST(SharedTime, GivenProcessesOfTheSameContainer_ThenEachTakesTurnsLikeAnotherContainer) {
  region::CommonUsed siblings = Others(0);
  siblings.siblings = 3;
  SharedTime s = SharedFrom(siblings, kStart);
  for (int i = 1; i <= 80; ++i) LookAround(&s, siblings, true, kStart + i * kTick);
  EXPECT_NEAR(OwnMs(s, 400 * kMs), 100, 0.1);
}

// Without what others had there is no reason to take what is high for theirs.
TEST(SharedTime, GivenALaunchThatComesToTakeLonger_ThenItIsPaidInFullAtOnce) {
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, 50 * kMs, {.told = true});
  EXPECT_EQ(Learn(&e, 90 * kMs, {.told = true}), 90 * kMs);
  EXPECT_LT(Learn(&e, 190 * kMs, {.contended = true}), 70 * kMs);
}

}  // namespace
}  // namespace hami::vgpu
