// SPDX-License-Identifier: Apache-2.0
//
// Launches of one kind that are short or long by chance: what is charged has to be their mean.
#include <gtest/gtest.h>

#include "vgpu/pacing/pacer_model.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kShort20 = 20'000, kLong80 = 80'000;
constexpr Circumstances kAhead{.gap = Gap::kNone};

class Coin {
 public:
  explicit Coin(uint32_t seed) : random_(seed) {}
  int64_t Toss() {
    random_ = random_ * 1'664'525 + 1'013'904'223;
    return random_ >> 31 != 0 ? kLong80 : kShort20;
  }

 private:
  uint32_t random_;
};

// Known with work ahead, from so few that they misled: at 80 us.
Estimate KnownAsLong() {
  Estimate e;
  Learn(&e, kShort20, kAhead);
  for (int i = 0; i < 60; ++i) Learn(&e, kLong80, kAhead);
  return e;
}

// The host takes a tenth of what is long, and a third of what is short.
TEST(LaunchThatVaries, GivenKernelsOfTwoLengthsOnAHostThatShowsBesideTheShortOnes_ThenTheirMeanIsExpected) {
  constexpr int64_t kShort = 22'000, kLong82 = 82'000;
  double sum = 0;
  int count = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Estimate e;
    uint32_t random = seed;
    for (int i = 0; i < 100; ++i) {
      random = random * 1'664'525 + 1'013'904'223;
      Learn(&e, random >> 31 != 0 ? kLong82 : kShort, {.gap = Gap::kCertain, .host_span = 8'000});
      if (i < 16) continue;
      sum += static_cast<double>(e.cost);
      ++count;
    }
  }
  // Without the 2 us that are taken for the gap.
  EXPECT_NEAR(sum / count, 50'000, 3'000);
}

// On a fast host it seldom shows that a stream has work ahead, and then no gap is long.
TEST(LaunchThatVaries, GivenOneMeasuredWithoutGap_WhenOthersCanHaveNoLongOne_ThenTheyCountToo) {
  double sum = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Estimate e = KnownAsLong();
    Coin coin(seed);
    for (int i = 0; i < 200; ++i) Learn(&e, coin.Toss(), {.gap = Gap::kUnsure, .host_span = 800});
    sum += static_cast<double>(e.cost);
  }
  EXPECT_NEAR(sum / 20, 50'000, 3'000);
}

TEST(LaunchThatVaries, GivenOneMeasuredWithoutGap_WhenOthersMayHaveALongOne_ThenNeitherLowNorHighOnesCount) {
  Estimate e = KnownAsLong();
  const int64_t known = e.cost;
  Coin coin(1);
  for (int i = 0; i < 200; ++i) Learn(&e, coin.Toss(), {.gap = Gap::kUnsure, .host_span = 15'000});
  EXPECT_EQ(e.cost, known);
}

TEST(LaunchThatVaries, GivenOneMeasuredWithoutGap_WhenAllOthersAreFarBelow_ThenTheyAreBelievedInTheEnd) {
  Estimate e = KnownAsLong();
  for (int i = 0; i < 200; ++i) Learn(&e, kShort20, {.gap = Gap::kUnsure, .host_span = 15'000});
  EXPECT_NEAR(static_cast<double>(e.cost), kShort20, 4'000);
}

// Else the first one decides for a second, as few come with work ahead.
TEST(LaunchThatVaries, WhenOneIsFirstMeasuredWithoutGap_ThenAMeanBeginsWithIt) {
  Estimate e;
  for (int i = 0; i < 20; ++i) Learn(&e, i % 2 == 0 ? kShort20 : kLong80);
  for (int i = 0; i < 6; ++i) Learn(&e, i % 2 == 0 ? kLong80 : kShort20, kAhead);
  EXPECT_NEAR(static_cast<double>(e.cost), 50'000, 7'000);
}

TEST(LaunchThatVaries, GivenFewMeasuredWithoutGap_WhenOneIsFarBelow_ThenItDoesNotCountForAll) {
  Estimate e;
  for (int64_t measured : {kLong80, kLong80, kLong80, kShort20}) Learn(&e, measured, kAhead);
  EXPECT_NEAR(static_cast<double>(e.cost), 65'000, 1'000);
}

// 5 us, a tenth more or less by chance.
class Alike {
 public:
  explicit Alike(uint32_t seed) : random_(seed) {}
  int64_t Next(int64_t cost = 5'000) {
    random_ = random_ * 1'664'525 + 1'013'904'223;
    return cost + cost * (static_cast<int64_t>(random_ >> 16) - 32'768) / 327'680;
  }

 private:
  uint32_t random_;
};

// Two hundred are measured in a second: the last few of them are no mean, and whoever charges by it is off by points.
TEST(LaunchesMuchAlike, WhenManyWereMeasured_ThenTheCostIsTheMeanOfManyAndNotOfTheLastFew) {
  double squares = 0;
  int count = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Estimate e;
    Alike alike(seed);
    for (int i = 0; i < 600; ++i) {
      Learn(&e, alike.Next(), kAhead);
      if (i < 200) continue;
      squares += static_cast<double>((e.cost - 5'000) * (e.cost - 5'000));
      ++count;
    }
  }
  EXPECT_LT(squares / count, 30.0 * 30.0);  // of the last eight: 75
}

TEST(LaunchesMuchAlike, WhenTheyBecomeDearerOrCheaper_ThenTheCostFollowsAtOnce) {
  for (int64_t next : {6'000, 4'200}) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      Estimate e;
      Alike alike(seed);
      for (int i = 0; i < 300; ++i) Learn(&e, alike.Next(), kAhead);
      for (int i = 0; i < 24; ++i) Learn(&e, alike.Next(next), kAhead);
      EXPECT_NEAR(static_cast<double>(e.cost), static_cast<double>(next), 300) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace hami::vgpu
