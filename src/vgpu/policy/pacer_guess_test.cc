// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/pacer_guess.h"

#include <gtest/gtest.h>

namespace hami::vgpu {
namespace {

constexpr uint64_t kThreads = 100'000;

// Measured in so many grids of one cost a thread.
KernelCost Measured(uint32_t grids, int64_t cost = 50'000) {
  KernelCost k;
  for (uint32_t i = 0; i < grids; ++i) LearnKernel(&k, kThreads, cost, false);
  return k;
}

TEST(PacerGuess, GivenAKernelThatWasNeverMeasured_ThenNothingIsGuessed) { EXPECT_EQ(Guess({}, kThreads), 0); }

TEST(PacerGuess, GivenGuessesThatWereRight_ThenTheNextOneCounts) {
  EXPECT_EQ(Guess(Measured(kTrusted), kThreads), 0) << "the first measurement was no guess";
  EXPECT_EQ(Guess(Measured(kTrusted + 1), kThreads), 50'000);
}

TEST(PacerGuess, ThenItGoesByTheNumberOfThreads) {
  EXPECT_EQ(Guess(Measured(9), 2 * kThreads), 100'000);
  EXPECT_EQ(Guess(Measured(9), kThreads / 2), 25'000);
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

TEST(PacerGuess, GivenAKernelWhoseCostIsAnothersMatter_ThenItIsNotGuessed) {
  KernelCost k = Measured(9);
  LearnKernel(&k, kThreads, 200'000, false);
  EXPECT_EQ(Guess(k, kThreads), 0);
  for (int i = 0; i < 50; ++i) LearnKernel(&k, kThreads, i % 2 == 0 ? 50'000 : 200'000, false);
  EXPECT_EQ(Guess(k, kThreads), 0);
}

TEST(PacerGuess, GivenShortOnes_ThenAGapIsNoMistake) {
  KernelCost k;
  for (int i = 0; i < 9; ++i) LearnKernel(&k, kThreads, i % 2 == 0 ? 5'000 : 22'000, false);
  EXPECT_NE(Guess(k, kThreads), 0);
}

TEST(PacerGuess, WhatOthersDrewOutIsNoMistake) {
  KernelCost k = Measured(9);
  LearnKernel(&k, kThreads, 2'000'000, true);
  EXPECT_EQ(Guess(k, kThreads), 50'000);
  LearnKernel(&k, kThreads, 60'000, true);
  EXPECT_EQ(Guess(k, kThreads), 60'000);
}

}  // namespace
}  // namespace hami::vgpu
