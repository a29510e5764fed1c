// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_guess.h"

#include <gtest/gtest.h>

namespace hami::vgpu {
namespace {

constexpr uint64_t kThreads = 100'000;
constexpr int64_t kCost = 50'000;

// So many grids measured, of nearly one size, the last of kThreads.
KernelCost Measured(uint32_t grids, int64_t cost = kCost) {
  KernelCost k;
  for (uint32_t left = grids; left > 0; --left) LearnKernel(&k, kThreads + left - 1, cost, false);
  return k;
}

// A graph that was updated again and again.
KernelCost Updated(int64_t cost) {
  KernelCost k;
  for (int i = 0; i < 9; ++i) LearnKernel(&k, 1, cost, false);
  return k;
}

TEST(PacerGuess, GivenAKernelThatWasNeverMeasured_ThenNothingIsGuessed) { EXPECT_EQ(Guess({}, kThreads), 0); }

TEST(PacerGuess, GivenGuessesThatWereRight_ThenTheNextOneCounts) {
  EXPECT_EQ(Guess(Measured(kTrusted), kThreads), 0) << "the first measurement was no guess";
  EXPECT_EQ(Guess(Measured(kTrusted + 1), kThreads), kCost);
}

TEST(PacerGuess, ThenItGoesByTheNumberOfThreads) {
  EXPECT_EQ(Guess(Measured(9), 2 * kThreads), 2 * kCost);
  EXPECT_EQ(Guess(Measured(9), kThreads / 2), kCost / 2);
}

TEST(PacerGuess, GivenACostOfWhichAPartDoesNotGoByThreads_ThenTwoGridsTell) {
  KernelCost k;
  for (const uint32_t times : {1u, 4u, 1u, 4u, 2u, 1u, 4u})
    LearnKernel(&k, times * kThreads, 90'000 + 10'000 * times, false);
  EXPECT_NEAR(static_cast<double>(Guess(k, kThreads)), 100'000, 10);
  EXPECT_NEAR(static_cast<double>(Guess(k, 3 * kThreads)), 120'000, 10);
  EXPECT_NEAR(static_cast<double>(Guess(k, kThreads * 3 / 4)), 97'500, 10);
}

TEST(PacerGuess, GivenGridsThatCostLessTheLargerTheyAre_ThenAllCostTheSame) {
  KernelCost k;
  for (int i = 0; i < 9; ++i)
    LearnKernel(&k, i % 2 == 0 ? kThreads : 2 * kThreads, i % 2 == 0 ? 60'000 : 50'000, false);
  EXPECT_EQ(Guess(k, 3 * kThreads), 60'000);
  EXPECT_EQ(Guess(k, kThreads / 2), 60'000);
}

TEST(PacerGuess, GivenAGridThatIsTooFarFromTheLastOne_ThenNothingIsGuessed) {
  EXPECT_EQ(Guess(Measured(9), kThreads * kLikeness), 0);
  EXPECT_EQ(Guess(Measured(9), kThreads / kLikeness), 0);
  EXPECT_EQ(Guess(Measured(9), UINT64_MAX), 0);
  EXPECT_EQ(Guess(Measured(9), 0), 0);
}

TEST(PacerGuess, GivenLongOnes_ThenNothingIsGuessed) {
  EXPECT_EQ(Guess(Measured(9, kLongestGuess + 1), kThreads), 0);
  EXPECT_EQ(Guess(Measured(9, kLongestGuess / 2 + 1), 2 * kThreads), 0);
}

TEST(PacerGuess, GivenAKernelWhoseCostIsAnothersMatter_ThenItIsGuessedToBeAmongTheDearest) {
  KernelCost k;
  const auto learn = [&](unsigned i, int64_t cost) { LearnKernel(&k, kThreads + i, cost, false); };
  for (unsigned i = 0; i < kWithin; ++i) learn(i, i % 2 == 0 ? 20'000 : 80'000);
  EXPECT_EQ(Guess(k, kThreads), 0) << "the first one was beyond all before";
  learn(kWithin, 20'000);
  EXPECT_NEAR(static_cast<double>(Guess(k, kThreads)), 80'000, 4'000);
  EXPECT_EQ(Guess(k, 2 * kThreads * kLikeness), 0);
  learn(0, 2'000'000);  // far beyond: the next ones are measured first
  EXPECT_EQ(Guess(k, kThreads), 0);
}

TEST(PacerGuess, WhenAGuessWasWrong_ThenNothingIsGuessedForNow) {
  KernelCost k = Measured(9);
  LearnKernel(&k, kThreads + 1, 200'000, false);
  EXPECT_EQ(Guess(k, kThreads), 0);
}

TEST(PacerGuess, GivenLaunchesOfOneGridUnderWayTogether_ThenTheyAreOneGuess) {
  KernelCost k;
  for (int i = 0; i < 50; ++i) LearnKernel(&k, kThreads, kCost, false);
  EXPECT_EQ(Guess(k, kThreads), 0);
}

TEST(PacerGuess, GivenAGraphThatWasUpdated_ThenItIsGuessedByWhatItTook) { EXPECT_EQ(Guess(Updated(kCost), 1), kCost); }

TEST(PacerGuess, GivenShortOnes_ThenAGapIsNoMistake) {
  KernelCost k;
  for (int i = 0; i < 9; ++i) LearnKernel(&k, 1, i % 2 == 0 ? 5'000 : 22'000, false);
  EXPECT_NE(Guess(k, 1), 0);
}

TEST(PacerGuess, WhatOthersDrewOutIsNeitherLearntNorCharged) {
  KernelCost k = Updated(kCost);
  for (int i = 0; i < 50; ++i) LearnKernel(&k, 1, i % int{kDoubted} == 0 ? kCost : 2'000'000, true);
  EXPECT_EQ(Guess(k, 1), kCost);
  EXPECT_EQ(AcceptGuessed(kCost, 2'000'000, true), kCost);
  EXPECT_EQ(AcceptGuessed(kCost, 2'000'000, false), 2'000'000);
}

TEST(PacerGuess, WhatIsLongerBesideOthersByLessThanASliceIsItsOwn) {
  EXPECT_EQ(AcceptGuessed(kCost, 90'000, true), 90'000);
}

// Taken for somebody else's time, always, it would never be paid for.
TEST(PacerGuess, GivenOneThatBecameDearerBesideOthers_ThenItIsGuessedNoMore) {
  KernelCost k = Updated(kCost);
  for (uint32_t i = 0; i < kDoubted; ++i) LearnKernel(&k, 1, 2'000'000, true);
  EXPECT_EQ(Guess(k, 1), 0);
}

}  // namespace
}  // namespace hami::vgpu
