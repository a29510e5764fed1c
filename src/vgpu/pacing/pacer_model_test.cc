// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_model.h"

#include <gtest/gtest.h>

#include <set>

namespace hami::vgpu {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000 * kMs;

TEST(LaunchCost, GivenFirstMeasurement_ThenItIsTheCost) {
  Estimate e;
  EXPECT_EQ(Learn(&e, 5'000), 5'000);
  EXPECT_EQ(e.cost, 5'000);
}

TEST(LaunchCost, GivenFirstMeasurementAlone_ThenNothingIsThereYetThatItCouldBeOutOfProportionTo) {
  Estimate e;
  EXPECT_EQ(Learn(&e, 2 * kMs, {.alone = true}), 2 * kMs);
  EXPECT_EQ(e.cost, 2 * kMs);
  EXPECT_EQ(e.rare, 0);
}

TEST(LaunchCost, GivenFirstMeasurementInflated_ThenTheNextOnesCorrectItSoon) {
  Estimate e;
  Learn(&e, 4 * kMs);
  for (int i = 0; i < 32; ++i) Learn(&e, 10'000);
  EXPECT_LT(e.cost, 11'000);
}

TEST(LaunchCost, GivenSlicesOfOthersInSomeMeasurements_ThenTheyAreNotCharged) {
  Estimate e;
  Learn(&e, 100'000);
  for (int i = 0; i < 200; ++i) {
    const bool sliced = i % 4 == 0;
    EXPECT_LE(Learn(&e, sliced ? 2'100'000 : 100'000), 130'000);
  }
  EXPECT_NEAR(static_cast<double>(e.cost), 100'000, 1'000);
}

TEST(LaunchCost, GivenKernelThatReallyBecameSlower_ThenTheCostFollows) {
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, kMs);
  for (int i = 0; i < 60; ++i) Learn(&e, 3 * kMs);
  EXPECT_NEAR(static_cast<double>(e.cost), 3.0 * kMs, 0.1 * kMs);
}

TEST(LaunchCost, GivenGapsBeforeSomeLaunches_ThenTheLowMeasurementsCount) {
  Estimate e;
  for (int i = 0; i < 200; ++i) Learn(&e, 5'000 + (i % 2) * 2'000);
  EXPECT_LT(e.cost, 5'600);
}

TEST(LaunchCost, GivenKernelsThatVaryBehindOthers_ThenTheMeanIsCharged) {
  Estimate e;
  double mean = 0;
  constexpr int kRounds = 400;
  for (int i = 0; i < kRounds; ++i) {
    Learn(&e, 4'500 + i * 7 % 11 * 100, {.gap = Gap::kNone});
    if (i >= kRounds / 2) mean += 2.0 * static_cast<double>(e.cost) / kRounds;
  }
  EXPECT_NEAR(mean, 5'000, 50);
}

// Of one kernel with one grid, every other launch takes four times as long.
double MeanOfMixed(const Circumstances& at, int64_t gap) {
  Estimate e;
  double charged = 0;
  double cost_of_all = 0;
  uint32_t random = 1;
  for (int i = 0; i < 4000; ++i) {
    random = random * 1664525 + 1013904223;
    const int64_t cost = random >> 31 == 0 ? 20'000 : 80'000;
    const int64_t noise = random >> 8 & 1023;
    Learn(&e, cost + gap + (gap == 0 ? 0 : noise - 512), at);
    if (i < 100) continue;
    charged += static_cast<double>(e.cost);
    cost_of_all += static_cast<double>(cost);
  }
  return charged / cost_of_all;
}

TEST(LaunchCost, GivenLaunchesThatVaryByTheirArguments_ThenTheMeanIsCharged) {
  EXPECT_NEAR(MeanOfMixed({.gap = Gap::kNone}, 0), 1.0, 0.02);
  EXPECT_NEAR(MeanOfMixed({.gap = Gap::kCertain, .host_gap = 3'000}, 5'000), 1.0, 0.02);
  EXPECT_NEAR(MeanOfMixed({.gap = Gap::kUnsure}, 1'000), 1.0, 0.06);
}

TEST(LaunchCost, GivenLaunchesThatVaryAndSlicesOfOthers_ThenTheSlicesAreNotCharged) {
  Estimate e;
  double mean = 0;
  constexpr int kRounds = 800;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t cost = i * 7 % 11 < 6 ? 20'000 : 80'000;
    Learn(&e, i % 5 == 0 ? cost + 2 * kMs : cost, {.gap = Gap::kNone});
    if (i >= kRounds / 2) mean += 2.0 * static_cast<double>(e.cost) / kRounds;
  }
  EXPECT_NEAR(mean, 47'000, 4'000);
}

// A host that was interrupted between launch and event saw a short launch end late.
TEST(LaunchCost, GivenOneOutOfAllProportion_WhenNobodyElseIsThere_ThenItIsPaid_AndEachIsTimedFromThenOn) {
  constexpr Circumstances kAlone{.gap = Gap::kNone, .alone = true};
  Estimate e;
  for (int i = 0; i < 100; ++i) Learn(&e, 10'000, kAlone);
  EXPECT_FALSE(e.each);
  EXPECT_EQ(Learn(&e, 5 * kMs, kAlone), 5 * kMs);
  for (int i = 0; i < 4'000; ++i) {
    // Whether or not they have work ahead, what they took is what is paid.
    EXPECT_EQ(Learn(&e, 10'000, i < 100 ? kAlone : Circumstances{.gap = Gap::kUnsure, .alone = true}), 10'000);
    ASSERT_TRUE(e.each);
  }
  for (int i = 0; i < 100; ++i) Learn(&e, 10'000, kAlone);
  EXPECT_FALSE(e.each);
  EXPECT_NEAR(static_cast<double>(e.cost), 10'000, 100);
}

TEST(LaunchCost, GivenOneOutOfAllProportion_WhenOthersMayBeThere_ThenItIsNotPaid) {
  for (const Circumstances at : {Circumstances{}, Circumstances{.siblings = true, .alone = true}}) {
    Estimate e;
    for (int i = 0; i < 100; ++i) Learn(&e, 10'000, at);
    EXPECT_LT(Learn(&e, 5 * kMs, at), 15'000);
    EXPECT_FALSE(e.each);
  }
}

// To time each of them would take the host as long as one takes the GPU.
TEST(LaunchCost, GivenStreamsSideBySide_WhenMostOfItIsWhatOthersDo_ThenNotEachIsTimed) {
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, 2 * kMs, {.gap = Gap::kNone, .own = 1});
  EXPECT_FALSE(e.each);
  for (int i = 0; i < 20; ++i) Learn(&e, 2 * kMs, {.gap = Gap::kNone, .own = 12});
  EXPECT_TRUE(e.each);
}

TEST(LaunchCost, GivenOneThatTheHostDrewOut_ThenItIsNotOutOfProportion) {
  Estimate e;
  for (int i = 0; i < 100; ++i) Learn(&e, 10'000, {.alone = true});
  EXPECT_LT(Learn(&e, 5 * kMs, {.host_span = 5 * kMs - 10'000, .alone = true}), 15'000);
  EXPECT_FALSE(e.each);
}

TEST(LaunchCost, GivenAMeasurementThatTheHostDrewOut_ThenItIsNotCharged) {
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, 5'000, {.gap = Gap::kNone, .host_span = 3'000});
  EXPECT_LE(Learn(&e, 400'000, {.gap = Gap::kNone, .host_span = 401'000}), 7'000);
  EXPECT_EQ(e.cost, 5'000);
}

// The first launch of a kernel may load its code.
TEST(LaunchCost, GivenAFirstMeasurementThatTheHostDrewOut_ThenItIsNotCharged) {
  Estimate e;
  EXPECT_EQ(Learn(&e, 100 * kMs + 30'000, {.gap = Gap::kCertain, .host_span = 100 * kMs}), 30'000);
  EXPECT_EQ(Learn(&e, 100 * kMs, {.gap = Gap::kUnsure, .host_span = 100 * kMs + 1}), 0);
  EXPECT_EQ(e.cost, 0);
  Learn(&e, 30'000, {.gap = Gap::kNone});
  EXPECT_EQ(e.cost, 30'000);
}

TEST(LaunchCost, GivenAHostThatIsAlwaysSlow_ThenWhatItMeasuresCounts) {
  Estimate e;
  for (uint32_t i = 0; i <= kDrawnOut; ++i) Learn(&e, 3 * kMs, {.gap = Gap::kCertain, .host_span = 2 * kMs});
  EXPECT_GT(e.cost, kMs);
}

// Constant ones: what differs is the gap, which is never shorter than it can be.
TEST(LaunchCost, GivenConstantLaunchesAndGapsThatVary_ThenTheShortestTell) {
  Estimate e;
  for (int i = 0; i < 400; ++i) Learn(&e, 40'000 + 4'000 + i * 7 % 11 * 150, {.gap = Gap::kCertain, .host_gap = 2'000});
  EXPECT_NEAR(static_cast<double>(e.cost), 40'000, 600);
}

TEST(LaunchCost, GivenOneMeasuredWithoutGap_ThenThoseWithOneDoNotCount) {
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, 8'000);
  Learn(&e, 5'000, {.gap = Gap::kNone});
  EXPECT_EQ(e.cost, 5'000);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Learn(&e, 5'900), 5'000);
  EXPECT_EQ(e.cost, 5'000);
}

// A host that takes its time says of a short launch next to nothing: neither that it is longer, as the second event
// came late, nor that it is shorter, as nobody knows how much of the gap was the host's.
TEST(LaunchCost, GivenOneMeasuredWithoutGap_WhenTheHostIsSlow_ThenGuessesDoNotCount) {
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, 5'000, {.gap = Gap::kNone});
  for (int i = 0; i < 200; ++i) {
    const int64_t late = i * 7 % 11 * 2'000;
    const Circumstances at{.gap = Gap::kCertain, .host_gap = 12'000, .host_span = 14'000 + late};
    EXPECT_EQ(Learn(&e, 12'000 + late, at), 5'000);
  }
  EXPECT_EQ(e.cost, 5'000);
}

TEST(LaunchCost, GivenOneMeasuredWithoutGap_WhenItTakesLongerThanAnyGap_ThenTheCostFollows) {
  const Circumstances synchronised{.gap = Gap::kCertain, .host_gap = 1'000, .host_span = 4'000};
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, 5'000, {.gap = Gap::kNone});
  for (int i = 0; i < 200; ++i) Learn(&e, 60'000 + 3'000, synchronised);
  EXPECT_NEAR(static_cast<double>(e.cost), 60'000, 1'000);
  for (int i = 0; i < 200; ++i) Learn(&e, 5'000 + 3'000, synchronised);
  EXPECT_NEAR(static_cast<double>(e.cost), 5'000, 500);
}

// What does not count is seen all the same: a kind that is hardly known is timed at every look, gap or not.
TEST(LaunchCost, GivenOneMeasuredWithoutGap_WhenOthersMayHaveOne_ThenTheyCountAsSeen) {
  Estimate e;
  Learn(&e, 20'000, {.gap = Gap::kNone});
  for (uint32_t i = 0; i < kConfident; ++i) Learn(&e, 80'000 - i % 2 * 60'000, {.gap = Gap::kUnsure, .host_span = 900});
  EXPECT_GE(e.samples, kConfident);
}

// That it has no work ahead may be because the host was slow when it was looked for.
TEST(LaunchCost, GivenAKindNeverMeasuredWithoutGap_ThenItIsTriedAgainNowAndThen) {
  Estimate e;
  EXPECT_TRUE(SeeksGapless(e, kStart, kStart));
  for (int i = 0; i < 100; ++i) Learn(&e, 8'000, {.gap = Gap::kCertain});
  int64_t seeks = 0;
  int64_t in_a_row = 0;
  int64_t longest_pause = 0;
  for (int64_t at = 0; at < 4000; ++at) {
    in_a_row = SeeksGapless(e, kStart + at * kMs, kStart) ? 0 : in_a_row + 1;
    seeks += in_a_row == 0 ? 1 : 0;
    longest_pause = in_a_row > longest_pause ? in_a_row : longest_pause;
  }
  EXPECT_NEAR(static_cast<double>(seeks), 500, 80);
  EXPECT_LT(longest_pause, 500);
  Learn(&e, 5'000, {.gap = Gap::kNone});
  for (int64_t at = 0; at < 1000; ++at) EXPECT_TRUE(SeeksGapless(e, kStart + at * kMs, kStart));
}

// Synchronised launches never have work ahead. Each look for it would cost those that vary a measurement, and the first
// few of those say little of the mean.
TEST(LaunchCost, GivenAKindThatVariesAndHasNoWorkAhead_ThenItIsTimedAllTheSameSoon) {
  for (const int rare : {82'000, 22'000}) {
    Estimate e;
    for (int i = 0; i < 10; ++i) Learn(&e, i == 8 ? rare : 104'000 - rare, {.gap = Gap::kCertain});
    ASSERT_LT(e.samples, kNeverGapless);
    EXPECT_TRUE(SeeksGapless(e, kStart + kMs, kStart));
    EXPECT_FALSE(SeeksGapless(e, kStart + 10 * kMs, kStart));
    Learn(&e, 20'000, {.gap = Gap::kNone});
    EXPECT_TRUE(SeeksGapless(e, kStart + 10 * kMs, kStart));
  }
  // A first launch that took long, and gaps, are no variation.
  Estimate constant;
  for (int i = 0; i < 10; ++i) Learn(&constant, i == 0 ? 90'000 : 22'000 + i * 1'000, {.gap = Gap::kCertain});
  EXPECT_TRUE(SeeksGapless(constant, kStart + 10 * kMs, kStart));
}

TEST(LaunchCost, GivenNothingButTheGap_ThenNextToNothingIsCharged) {
  Estimate e;
  Learn(&e, 60'000);
  for (int i = 0; i < 20; ++i) Learn(&e, 2'400, {.gap = Gap::kCertain, .host_gap = 400});
  EXPECT_LE(e.cost, 200);
  EXPECT_GE(e.cost, 1);
}

TEST(LaunchCost, GivenMillisecondKernelsThatVary_ThenNoneIsLeftOut) {
  Estimate e;
  double mean = 0;
  constexpr int kRounds = 400;
  for (int i = 0; i < kRounds; ++i) {
    Learn(&e, kMs + (i * 7 % 11 - 5) * kMs / 50);
    if (i >= kRounds / 2) mean += 2.0 * static_cast<double>(e.cost) / kRounds;
  }
  EXPECT_NEAR(mean, 1.0 * kMs, 0.01 * kMs);
}

TEST(LaunchCost, GivenOnlySlicedMeasurements_WhenOneIsTakenAlone_ThenItCountsAndTheExcessComesBack) {
  Estimate e;
  Learn(&e, 8 * kMs, {.contended = true});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Learn(&e, 8 * kMs, {.contended = true}), 8 * kMs);
  EXPECT_EQ(Learn(&e, 2 * kMs), 2 * kMs - 3 * 6 * kMs);
  EXPECT_EQ(e.cost, 2 * kMs);
  EXPECT_EQ(Learn(&e, 9 * kMs, {.contended = true}), 2 * kMs);
  EXPECT_EQ(Learn(&e, 2 * kMs), 2 * kMs);
}

TEST(LaunchCost, GivenSlicedMeasurementsPaidInPart_WhenOneIsTakenAlone_ThenNoMoreComesBackThanWasPaid) {
  Estimate e;
  Learn(&e, 8 * kMs, {.contended = true, .sharers = 4});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Learn(&e, 8 * kMs, {.contended = true, .sharers = 4}), 2 * kMs);
  EXPECT_EQ(Learn(&e, 2 * kMs), 2 * kMs);
}

TEST(LaunchCost, GivenWhatWasNotReallyAlone_WhenALaunchTakesLess_ThenThatCounts) {
  Estimate e;
  Learn(&e, 3 * kMs);
  Learn(&e, 3 * kMs + kMs / 5);
  Learn(&e, 2 * kMs);
  EXPECT_EQ(e.cost, 2 * kMs);
  EXPECT_EQ(e.alone, 1);
  EXPECT_EQ(e.spread, 0);
}

// Others that have just come may be at work for longer than they say.
TEST(LaunchCost, GivenTheEndOfWhatOthersDidInTheFirstOnesAlone_WhenTwoInARowAreLess_ThenTheMeanBeginsWithThem) {
  Estimate e;
  for (int64_t measured : {2'250'000, 2'868'000, 1'996'000, 1'990'000, 1'990'000}) Learn(&e, measured);
  EXPECT_NEAR(static_cast<double>(e.cost), 1'990'000, 2'000);
  EXPECT_LT(e.spread, 10'000);
}

TEST(LaunchCost, GivenCostKnownAlone_WhenOthersAreAlwaysInTheWay_ThenItIsToBeMeasuredAloneAgain_NotDearer) {
  Estimate e;
  for (uint32_t i = 0; i < kEnoughAlone; ++i) {
    Learn(&e, 2 * kMs);
    for (uint32_t j = 0; j < 2 * kPersistentContended; ++j) Learn(&e, 8 * kMs, {.contended = true});
    EXPECT_EQ(e.cost, 2 * kMs);
    EXPECT_LT(e.alone, kEnoughAlone);
  }
  for (uint32_t i = 0; i < kPersistent + 60; ++i) Learn(&e, 4 * kMs);
  EXPECT_NEAR(static_cast<double>(e.cost), 4.0 * kMs, 0.01 * kMs);
}

// The end of what others did may be measured when they are not at work any more.
TEST(LaunchCost, GivenCostKnownAlone_WhenOthersWereLongInTheWay_ThenOneThatIsLongAloneDoesNotRaiseIt) {
  Estimate e;
  for (uint32_t i = 0; i < kConfident; ++i) Learn(&e, 2 * kMs);
  for (uint32_t i = 0; i < 2 * kPersistent; ++i) Learn(&e, 3 * kMs, {.contended = true});
  EXPECT_EQ(Learn(&e, 3 * kMs + kMs / 8), 2 * kMs + kMs / 2 + 500);
  EXPECT_EQ(e.cost, 2 * kMs);
}

// Beside others a launch takes its time or up to half as much again.
TEST(LaunchCost, GivenCostKnownAlone_WhenOthersAreInTheWay_ThenTheirTimeIsNotTakenForTheLaunchs) {
  Estimate e;
  for (uint32_t i = 0; i < kEnoughAlone; ++i) Learn(&e, 2 * kMs);
  int64_t charged = 0;
  constexpr int kRounds = 1000;
  for (int i = 0; i < kRounds; ++i) charged += Learn(&e, 2 * kMs + i * 7 % 11 * kMs / 10, {.contended = true});
  EXPECT_NEAR(static_cast<double>(charged), 2.0 * kMs * kRounds, 0.01 * kMs * kRounds);
}

TEST(LaunchCost, GivenLaunchesThatVary_WhenOthersUseTheGpu_ThenNoneIsLeftOut) {
  Estimate e;
  const auto cost = [](int i) { return kMs + (i * 7 % 11 - 5) * kMs / 50; };
  int i = 0;
  for (; i < 3; ++i) Learn(&e, kMs);  // by chance alike
  int64_t charged = 0;
  int64_t cost_of_all = 0;
  for (; i < 1003; ++i) {
    charged += Learn(&e, cost(i), {.contended = true});
    cost_of_all += cost(i);
  }
  EXPECT_NEAR(static_cast<double>(charged), static_cast<double>(cost_of_all), 0.01 * static_cast<double>(cost_of_all));
}

// A tenth more or less by chance, 1 ms in the mean.
int64_t Jittered(uint32_t* random) {
  *random = *random * 1664525 + 1013904223;
  return 900'000 + static_cast<int64_t>(*random >> 8) % 200'001;
}

// One that waits for its balance launches into an idle stream: the GPU may be another's, for a slice at most.
TEST(LaunchCost, GivenLaunchesThatWaitForTheirTurn_ThenShortWaitsAreNotTakenForTheLaunchs) {
  Estimate e;
  uint32_t random = 7;
  for (uint32_t i = 0; i < kManyAlone; ++i) Learn(&e, Jittered(&random));
  const Circumstances in_turn{.gap = Gap::kCertain, .host_gap = 1'000, .host_span = 10'000, .contended = true};
  for (int i = 0; i < 2000; ++i) {
    const int64_t cost = Jittered(&random);
    Learn(&e, cost + 3'000 + (random >> 4) % (2 * kMs), in_turn);
  }
  EXPECT_NEAR(static_cast<double>(e.cost), kMs, 0.03 * kMs);
}

// Others are quiet for that, so it is no more than it has to be.
TEST(LaunchCost, GivenLaunchesThatVary_ThenMoreAreMeasuredAlone_ThanOfThoseThatAreAlike) {
  const auto wanted = [](int64_t cost, int64_t varies) {
    Estimate e;
    EXPECT_TRUE(WantsQuiet(e));
    int measured = 0;
    for (; measured < 1000 && WantsQuiet(e); ++measured) {
      Learn(&e, measured % 2 == 0 ? cost + varies : cost - varies, {.gap = Gap::kNone});
    }
    return measured;
  };
  EXPECT_EQ(wanted(kMs, 5'000), static_cast<int>(kConfident));
  EXPECT_NEAR(wanted(kMs, kMs / 10), kManyAlone, 2);
  EXPECT_NEAR(wanted(4 * kMs, kMs / 2), kAloneAtMost / (4 * kMs), 3);
  EXPECT_NEAR(wanted(100 * kMs, 10 * kMs), kEnoughAlone, 1);
}

// They are few, and often all there are.
TEST(LaunchCost, GivenFewMeasurementsAloneThatVary_ThenTheirMeanIsTheCost) {
  uint32_t random = 1;
  double off = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    Estimate e;
    int64_t sum = 0;
    for (uint32_t i = 0; i < 16; ++i) {
      const int64_t cost = Jittered(&random);
      sum += cost;
      Learn(&e, cost, {.gap = Gap::kNone});
    }
    off += static_cast<double>(e.cost - sum / 16) / kRounds;
  }
  EXPECT_NEAR(off, 0, 0.001 * kMs);
}

// Kernels of 1 ms that vary by a tenth; one in three without others of its stream before it has to wait,
// for up to 1 ms, until siblings have had their turn.
TEST(LaunchCost, GivenSiblingsWhoTakeTurns_ThenTheirTimeIsChargedToThemAlone) {
  Estimate e;
  uint64_t random = 1;
  const auto below = [&random](uint64_t n) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((random >> 33) % n);
  };
  int64_t charged = 0;
  constexpr int kRounds = 8000;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t cost = kMs - kMs / 10 + below(kMs / 5);
    const bool behind = below(24) == 0;
    const int64_t wait = !behind && below(3) == 0 ? below(kMs) : 0;
    charged += Learn(&e, cost + wait, {.gap = behind ? Gap::kNone : Gap::kUnsure, .siblings = true});
  }
  EXPECT_NEAR(static_cast<double>(charged) / kRounds, 1.0 * kMs, 0.005 * kMs);
}

TEST(LaunchCost, GivenSiblings_WhenAKernelReallyBecomesSlower_ThenTheCostFollows) {
  Estimate e;
  for (int i = 0; i < 200; ++i) Learn(&e, kMs, {.siblings = true});
  for (int i = 0; i < 60; ++i) Learn(&e, 3 * kMs, {.siblings = true});
  EXPECT_NEAR(static_cast<double>(e.cost), 3.0 * kMs, 0.1 * kMs);
}

TEST(LaunchCost, GivenGapForCertain_ThenItIsNoPartOfALongLaunchEither) {
  Estimate e;
  EXPECT_EQ(Learn(&e, kMs + 3'000, {.gap = Gap::kCertain, .host_gap = 1'000}), kMs);
}

TEST(LaunchCost, GivenLaunchesWorthTiming_ThenEachIsTimed_NotOnlyWhileTheyAreThoughtLong) {
  Estimate e;
  Learn(&e, kWorthTiming);
  for (int i = 0; i < 100; ++i) {
    Learn(&e, kWorthTiming + (i * 7 % 11 - 5) * kWorthTiming / 25);
    EXPECT_TRUE(e.each) << i;
  }
  for (int i = 0; i < 60; ++i) Learn(&e, kVaryWorthTiming / 4);
  EXPECT_FALSE(e.each);
}

// The mean of the last ones says little of those that are not measured.
TEST(LaunchCost, GivenLaunchesThatVary_ThenShorterOnesAreEachTimed_ThanOfThoseThatAreAllAlike) {
  constexpr int64_t kCost = kWorthTiming * 5 / 8;
  Estimate alike, vary;
  for (int i = 0; i < 100; ++i) {
    Learn(&alike, kCost);
    Learn(&vary, kCost + (i * 7 % 11 - 5) * kCost / 50);
  }
  EXPECT_FALSE(alike.each);
  EXPECT_TRUE(vary.each);
}

TEST(LaunchName, GivenDimensionsBeyond32Bits_ThenNamesDiffer) {
  std::set<uint64_t> ids;
  for (uint64_t x : {1ull, 65535ull, 65536ull, 0x7fff'ffffull}) {
    for (uint64_t y : {1ull, 65535ull}) ids.insert(LaunchId(0x1000, y << 32 | x, 65535, 1));
  }
  EXPECT_EQ(ids.size(), 8u);
  EXPECT_EQ(ids.count(0), 0u);
}

}  // namespace
}  // namespace hami::vgpu
