// SPDX-License-Identifier: Apache-2.0
// When others are asked to hold their launches, for how long, and what is measured meanwhile: on a clock that only
// sleeping moves.
#include "vgpu/pacing/pacer_alone.h"

#include <gtest/gtest.h>

#include "region/process.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_samples.h"

namespace hami {

namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint32_t kQuarter = 2500;

struct Neighbours {
  int64_t in_flight = 0;     // ns that they need to be done once they hold their launches
  int64_t grant = 50 * kMs;  // for so long they do
  int64_t held_until = 0;
  int64_t done_at = 0;
};
Neighbours g_others;
int64_t g_now = 0;

}  // namespace

void region::SleepNanos(int64_t nanos) { g_now += nanos; }

namespace vgpu {

int64_t MonotonicNanos() { return g_now; }
bool GivesWay(int) { return false; }
uint32_t LimitOf(int) { return kQuarter; }
bool WindowSeeksQuiet(int, bool, int64_t*) { return false; }
void CountWindow(int, int64_t, int64_t) {}
region::CommonView Others(int, int64_t now) {
  const bool holds = now < g_others.held_until;
  const int64_t until = holds ? g_others.done_at : now + g_others.in_flight;
  return {.active_until = until, .under_way = until, .active = 7, .present = 7};
}
int64_t AskForQuiet(int, int64_t span, int64_t least, int64_t, int64_t now) {
  if (g_others.grant < least) return 0;
  g_others.held_until = now + (span < g_others.grant ? span : g_others.grant);
  g_others.done_at = now + g_others.in_flight;
  return g_others.held_until;
}
int64_t ProlongQuiet(int, int64_t span, int64_t now) { return g_others.held_until = now + span; }
void EndQuiet(int, int64_t now) { g_others.held_until = now; }

namespace {

class MeasuringAlone : public testing::Test {
 protected:
  MeasuringAlone() {
    ResetAlone();
    g_others = {};
    g_now = 1000 * kMs;
  }

  static bool GoesOn(const Estimate& kind) { return GoesOnAlone(&kind, 0, 0, kQuarter, g_now); }
  static bool OthersHold() { return g_now < g_others.held_until; }

  // Beside others it was seen only, and took `cost`.
  static Estimate Beside(int64_t cost) { return {.cost = cost, .samples = 20}; }
};

TEST_F(MeasuringAlone, GivenSevenWithAllThatTheyMayHaveInFlight_ThenTheFirstWaitsForAllOfIt) {
  g_others.in_flight = 27 * kMs;
  const int64_t begin = g_now;
  EXPECT_TRUE(SeekQuiet(Beside(2 * kMs), 0, g_now));
  EXPECT_GE(g_now - begin, 27 * kMs);
  EXPECT_LT(g_now - begin, 28 * kMs);
  EXPECT_GE(g_others.held_until - g_now, 4 * kMs) << "as long as it is measured";
}

TEST_F(MeasuringAlone, GivenOthersThatAreNotDoneInTime_ThenTheyAreLetGo) {
  g_others.in_flight = 200 * kMs;
  EXPECT_FALSE(SeekQuiet(Beside(2 * kMs), 0, g_now));
  EXPECT_FALSE(OthersHold());
}

TEST_F(MeasuringAlone, GivenOthersThatGrantNextToNothing_ThenTheyAreNotWaitedFor) {
  g_others.grant = 5 * kMs;
  const int64_t begin = g_now;
  EXPECT_FALSE(SeekQuiet(Beside(2 * kMs), 0, g_now));
  EXPECT_EQ(g_now, begin);
}

// Of what varies a mean takes many, for which all the others would wait before they had their first.
TEST_F(MeasuringAlone, GivenFirstOnes_ThenTheyEndSoonerThanThoseForAMean) {
  Estimate kind = {.cost = kMs / 2, .spread = kMs / 20, .samples = 20};
  ASSERT_TRUE(SeekQuiet(kind, 0, g_now));
  int first = 0;
  for (; GoesOn(kind); ++kind.alone) ++first;
  EXPECT_EQ(first, kConfident);
  EXPECT_FALSE(OthersHold());

  ASSERT_TRUE(SeekQuiet(kind, 0, g_now));
  int more = 0;
  for (; GoesOn(kind); ++kind.alone) ++more;
  EXPECT_EQ(more, kManyAlone - kConfident);
  EXPECT_FALSE(OthersHold());
  EXPECT_FALSE(SeekQuiet(kind, 0, g_now));
}

TEST_F(MeasuringAlone, GivenNoMoreLaunchesOfItsKind_ThenOthersGoOnSoon) {
  const Estimate kind = Beside(kMs);
  ASSERT_TRUE(SeekQuiet(kind, 0, g_now));
  ASSERT_TRUE(GoesOn(kind));
  g_now += 10 * kMs;
  EXPECT_FALSE(OthersHold());
  EXPECT_FALSE(GoesOn(kind));
}

}  // namespace
}  // namespace vgpu
}  // namespace hami
