// SPDX-License-Identifier: Apache-2.0
//
// Streams side by side: the factor by which what they are charged one by one is less than what they take together.

#include <gtest/gtest.h>

#include "vgpu/pacing/pacer_overlap.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(StreamOverlap, GivenFirstPhaseSideBySide_ThenItIsBelievedAndTheRestRefunded) {
  Overlap o;
  const int64_t beyond = Learn(&o, {.busy = kMs, .sum = 8 * kMs, .streams = 8});
  EXPECT_NEAR(static_cast<double>(Scale(8 * kMs, o)), 1.0 * kMs, 0.01 * kMs);
  EXPECT_NEAR(static_cast<double>(beyond), -7.0 * kMs, 0.01 * kMs);
}

TEST(StreamOverlap, GivenStreamsSideBySide_ThenTheFactorIsTheirShare) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = kMs, .sum = 8 * kMs, .streams = 8});
  EXPECT_NEAR(static_cast<double>(Scale(8 * kMs, o)), 1.0 * kMs, 0.02 * kMs);
}

TEST(StreamOverlap, GivenIdleGapsOrOthersSlices_ThenNeverMoreThanTheSum) {
  Overlap o;
  for (int i = 0; i < 100; ++i) Learn(&o, {.busy = 30 * kMs, .sum = kMs, .streams = 8});
  EXPECT_EQ(Scale(kMs, o), kMs);
}

TEST(StreamOverlap, GivenPhasesThatLookTooShort_ThenNeverLessThanAllStreamsAtOnce) {
  Overlap o;
  for (int i = 0; i < 100; ++i) Learn(&o, {.busy = kMs / 10, .sum = 8 * kMs, .streams = 8});
  EXPECT_EQ(Scale(8 * kMs, o), kMs);
}

TEST(StreamOverlap, WhenStreamsNoLongerOverlap_ThenTheFactorReturns) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = kMs, .sum = 8 * kMs, .streams = 8});
  for (int i = 0; i < 80; ++i) Learn(&o, {.busy = kMs, .sum = kMs, .streams = 8});
  EXPECT_NEAR(static_cast<double>(o.factor), 1.0 * Overlap::kOne, 0.02 * Overlap::kOne);
}

TEST(StreamOverlap, WhenStreamsNoLongerOverlap_ThenSomePhasesThatAgreeTell) {
  Overlap o;
  Learn(&o, {.busy = kMs, .sum = 8 * kMs, .streams = 8, .long_enough = true});
  for (int i = 0; i < 10; ++i) Learn(&o, {.busy = 6 * kMs, .sum = 12 * kMs, .streams = 4, .long_enough = true});
  EXPECT_GT(o.factor, Overlap::kOne * 45 / 100);
}

// A kernel of 20 us measured by itself is one of 640 between the others of 32 streams, and one of 66 after a wait.
TEST(StreamOverlap, GivenAKindThatHasAll_WhenItsCostMoves_ThenItIsChargedTheSame) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = 20 * kMs, .sum = 66 * kMs, .streams = 32});
  const int64_t charged = Scale(66 * kMs, o);
  CostMoves(&o, 66, 640, kAllThereIs);
  EXPECT_NEAR(static_cast<double>(Scale(640 * kMs, o)), static_cast<double>(charged), 0.02 * kMs);
  CostMoves(&o, 640, 66, kAllThereIs);
  EXPECT_NEAR(static_cast<double>(Scale(66 * kMs, o)), static_cast<double>(charged), 0.02 * kMs);
}

TEST(StreamOverlap, GivenAKindThatHasAQuarter_WhenItsCostMoves_ThenAllAreChargedTheSame) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = 20 * kMs, .sum = 80 * kMs, .streams = 32});
  const int64_t charged = Scale(80 * kMs, o);
  CostMoves(&o, 20, 60, kAllThereIs / 4);
  EXPECT_NEAR(static_cast<double>(Scale((60 + 60) * kMs, o)), static_cast<double>(charged), 0.02 * kMs);
}

// No kernel that became dearer is nearly free until the next phase tells.
TEST(StreamOverlap, WhenACostMovesFar_ThenItIsChargedAsManyStreamsCanHaveIt) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = 20 * kMs, .sum = 40 * kMs, .streams = 8, .long_enough = true});
  CostMoves(&o, 1, 1000, kAllThereIs);
  EXPECT_GE(Scale(8 * kMs, o), kMs * 3 / 4);
  for (int i = 0; i < 100; ++i) CostMoves(&o, 1000, 1, kAllThereIs);
  EXPECT_EQ(o.factor, Overlap::kOne);
}

TEST(StreamOverlap, GivenOneStream_WhenItsCostMoves_ThenThatIsCharged) {
  Overlap o;
  CostMoves(&o, 10, 1000, kAllThereIs);
  EXPECT_EQ(o.factor, Overlap::kOne);
}

// One phase side by side, and from then on the host feeds fewer streams: what goes beyond the charges is no
// neighbour's.
TEST(StreamOverlap, GivenAFactorThatIsTooLow_WhenItLooksLikeOthersAtWork_ThenItReturnsAllTheSame) {
  Overlap o;
  Learn(&o, {.busy = kMs, .sum = 10 * kMs, .streams = 8, .long_enough = true});
  for (int i = 0; i < 40; ++i) {
    Learn(&o, {.busy = (6 + i * 7 % 5) * kMs,
               .sum = 15 * kMs,
               .streams = 4,
               .long_enough = true,
               .contended = true,
               .suspected = true});
  }
  EXPECT_GT(o.factor, Overlap::kOne * 6 / 15 * 3 / 4);
}

TEST(StreamOverlap, GivenOthersAtWork_ThenNeverLessThanSoFewStreamsTake) {
  Overlap o;
  Learn(&o, {.busy = kMs, .sum = 10 * kMs, .streams = 8, .long_enough = true});
  for (int i = 0; i < 40; ++i) {
    Learn(&o, {.busy = 30 * kMs, .sum = 15 * kMs, .streams = 2, .long_enough = true, .contended = true});
  }
  EXPECT_GT(o.factor, Overlap::kOne * 3 / 8 * 95 / 100);
  EXPECT_LT(o.factor, Overlap::kOne * 1 / 2);
}

// Whenever it has work the neighbour has, too: each phase is twice as long as it would be.
constexpr OnPhase kBesideANeighbour{
    .busy = 16 * kMs, .sum = 64 * kMs, .streams = 8, .long_enough = true, .contended = true};
constexpr OnPhase kOthersQuiet{.busy = 8 * kMs, .sum = 64 * kMs, .streams = 8, .long_enough = true, .quiet = true};

TEST(StreamOverlap, GivenOthersAlwaysAtWork_WhenTheyWereQuiet_ThenThatIsBelieved) {
  Overlap o;
  for (int i = 0; i < 20; ++i) Learn(&o, kBesideANeighbour);
  Learn(&o, kOthersQuiet);
  EXPECT_NEAR(static_cast<double>(Scale(64 * kMs, o)), 8.0 * kMs, 0.01 * kMs);
}

TEST(StreamOverlap, GivenAPhaseWithOthersQuiet_ThenThoseBesideThemChangeNothing) {
  Overlap o;
  for (uint32_t alone = 1; alone <= kEnoughAlone; ++alone) {
    Learn(&o, kOthersQuiet);
    int64_t settled = 0;
    for (int i = 0; i < 1000; ++i) settled += Learn(&o, kBesideANeighbour);
    EXPECT_NEAR(static_cast<double>(Scale(64 * kMs, o)), 8.0 * kMs, 0.01 * kMs) << alone;
    EXPECT_EQ(settled, 0);
  }
}

TEST(StreamOverlap, GivenSomePhasesWithOthersQuiet_WhenOneBesideThemIsMuchShorter_ThenItIsMeasuredAgain) {
  Overlap o;
  OnPhase slow = kOthersQuiet;
  slow.busy = 64 * kMs;
  for (uint32_t i = 0; i < kEnoughAlone; ++i) Learn(&o, slow);
  Learn(&o, kBesideANeighbour);
  EXPECT_NEAR(static_cast<double>(Scale(64 * kMs, o)), 16.0 * kMs, 0.01 * kMs);
  EXPECT_LT(o.alone, kEnoughAlone);
}

// Somebody who does not know that he was asked for it.
// One of three phases has gaps.
TEST(StreamOverlap, GivenAHostThatLeavesGapsWhileOthersAreQuiet_ThenTheyAreNotChargedForAsMuch) {
  Overlap o;
  double charged = 0;
  constexpr int kRounds = 300;
  for (int i = 0; i < kRounds; ++i) {
    OnPhase phase = kOthersQuiet;
    if (i % 3 == 1) phase.busy += phase.busy / 10;
    Learn(&o, phase);
    charged += static_cast<double>(Scale(64 * kMs, o));
  }
  EXPECT_NEAR(charged / kRounds, 8.0 * kMs, 0.15 * kMs);
}

TEST(StreamOverlap, GivenAFirstPhaseThatWasNotAlone_WhenTheNextOnesWere_ThenItIsForgotten) {
  Overlap o;
  OnPhase disturbed = kOthersQuiet;
  disturbed.busy = 24 * kMs;
  Learn(&o, disturbed);
  Learn(&o, kOthersQuiet);
  EXPECT_NEAR(static_cast<double>(Scale(64 * kMs, o)), 8.0 * kMs, 0.01 * kMs);
}

TEST(StreamOverlap, GivenFirstPhaseShortAndRagged_ThenALongOneOutweighsIt) {
  Overlap o;
  Learn(&o, {.busy = kMs * 3 / 4, .sum = 4 * kMs, .streams = 8});
  Learn(&o, {.busy = 13 * kMs, .sum = 100 * kMs, .streams = 8, .long_enough = true});
  EXPECT_NEAR(static_cast<double>(o.factor), 0.13 * Overlap::kOne, 0.005 * Overlap::kOne);
}

// Of a phase that begins while the one before still ends, the end alone is counted. Believed at once, it is charged too
// little for as long as it takes to rise again.
TEST(StreamOverlap, GivenNoOverlap_WhenAPhaseOnlyHasItsEndCounted_ThenItWeighsNoMoreThanItsLength) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = 610'000, .sum = 600'000, .streams = 1, .long_enough = true});
  Learn(&o, {.busy = 79'000, .sum = 339'000, .streams = 8});  // two launches a stream
  EXPECT_GT(o.factor, Overlap::kOne * 8 / 10);
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = 610'000, .sum = 600'000, .streams = 1, .long_enough = true});
  Learn(&o, {.busy = 27'000, .sum = 580'000, .streams = 2, .long_enough = true});  // less than two streams can take
  EXPECT_GT(o.factor, Overlap::kOne * 8 / 10);
}

TEST(StreamOverlap, WhenStreamsBeginToOverlap_ThenOneLongPhaseTells) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = kMs, .sum = kMs, .streams = 1, .long_enough = true});
  Learn(&o, {.busy = 13 * kMs, .sum = 100 * kMs, .streams = 8, .long_enough = true});
  EXPECT_NEAR(static_cast<double>(o.factor), 0.13 * Overlap::kOne, 0.005 * Overlap::kOne);
}

TEST(StreamOverlap, GivenEstimatesThatAreTooHigh_ThenALongPhaseIsChargedAsItWas) {
  Overlap o;
  for (int i = 0; i < 40; ++i) Learn(&o, {.busy = 16 * kMs, .sum = 8 * 18 * kMs, .streams = 8, .long_enough = true});
  EXPECT_NEAR(static_cast<double>(Scale(8 * 18 * kMs, o)), 16.0 * kMs, 0.05 * kMs);
}

// Estimates are off by some per cent, up and down in turn.
TEST(StreamOverlap, GivenEstimatesThatVary_ThenTheMeanIsCharged) {
  Overlap o;
  int64_t charged = 0;
  constexpr int kRounds = 1000;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t sum = 128 * kMs + (i * 7 % 11 - 5) * kMs;
    charged += Scale(sum, o);
    charged += Learn(&o, {.busy = 16 * kMs + kMs / 10, .sum = sum, .streams = 8, .long_enough = true});
  }
  EXPECT_NEAR(static_cast<double>(charged) / kRounds, 16.1 * kMs, 0.03 * kMs);
}

}  // namespace
}  // namespace hami::vgpu
