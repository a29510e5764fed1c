// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/arbiter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace simgpu {
namespace {

constexpr std::int64_t kQuantum = 1000;

class ArbiterTest : public ::testing::Test {
 protected:
  ArbiterTest() : state_(std::make_unique<ArbiterState>()) { state_->timing.turn_ns = kQuantum; }

  // A context that asks for `work` ns at wall time `now`.
  int Busy(std::int64_t now, std::int64_t work, int owner = 1) {
    const int ctx = state_->Attach(owner, 0);
    state_->Advance(0, now);
    state_->Raise(ctx, work);
    return ctx;
  }

  std::int64_t Granted(int ctx) const { return state_->contexts[ctx].granted; }

  std::unique_ptr<ArbiterState> state_;
};

TEST_F(ArbiterTest, GivenOneContextWhenTimePassesThenItHasTheGpuUntilItsWorkEnds) {
  const int a = Busy(100, 5000);
  EXPECT_EQ(state_->Predict(a, 5000), 5100);
  state_->Advance(0, 3100);
  EXPECT_EQ(Granted(a), 3000);
  state_->Advance(0, 9000);
  EXPECT_EQ(Granted(a), 5000);
  EXPECT_EQ(state_->partitions[0].busy, 5000);
  EXPECT_EQ(state_->WallOf(a, 5000), 5100);
  EXPECT_EQ(state_->contexts[a].runnable, 0);
}

TEST_F(ArbiterTest, GivenTwoContexts_WhenBothHaveWork_ThenTurnsOfOneQuantum) {
  const int a = Busy(0, 10'000);
  const int b = Busy(0, 10'000);
  state_->Advance(0, 2500);
  EXPECT_EQ(Granted(a), 1500);
  EXPECT_EQ(Granted(b), 1000);
  EXPECT_EQ(state_->WallOf(a, 1000), 1000);
  EXPECT_EQ(state_->WallOf(a, 1200), 2200);
  EXPECT_EQ(state_->WallOf(b, 1000), 2000);
  state_->Advance(0, 20'000);
  EXPECT_EQ(Granted(a), 10'000);
  EXPECT_EQ(Granted(b), 10'000);
  EXPECT_EQ(state_->partitions[0].busy, 20'000);
}

TEST_F(ArbiterTest, GivenARivalWhenItRunsOutThenTheOtherGoesOnAtOnce) {
  const int a = Busy(0, 3000);
  const int b = Busy(0, 300);
  state_->Advance(0, 3300);
  EXPECT_EQ(state_->WallOf(b, 300), 1300);
  EXPECT_EQ(Granted(a), 3000);
  EXPECT_EQ(state_->WallOf(a, 3000), 3300);
}

TEST_F(ArbiterTest, GivenManyContextsWhenPredictedThenAdvancingShowsTheSame) {
  const int a = Busy(0, 123'456);
  const int b = Busy(10, 7'890);
  const int c = Busy(20, 45'000);
  const std::int64_t when_a = state_->Predict(a, 123'456);
  const std::int64_t when_b = state_->Predict(b, 7'890);
  const std::int64_t when_c = state_->Predict(c, 33'333);
  state_->Advance(0, 1'000'000);
  EXPECT_EQ(state_->WallOf(a, 123'456), when_a);
  EXPECT_EQ(state_->WallOf(b, 7'890), when_b);
  EXPECT_EQ(state_->WallOf(c, 33'333), when_c);
}

TEST_F(ArbiterTest, GivenSwitchesThatCost_WhenTwoTakeTurns_ThenEachLosesThem) {
  state_->timing = {kQuantum, 100, 40, 0, 0};
  const int a = Busy(0, 10'000);
  const int b = Busy(0, 1'500);
  state_->Advance(0, 2'000);
  EXPECT_EQ(Granted(a), 1'000) << "nobody was there before";
  EXPECT_EQ(Granted(b), 900) << "after a switch of 100";
  state_->Advance(0, 10'000);
  EXPECT_EQ(state_->WallOf(a, 1'001), 2'201);
  EXPECT_EQ(state_->WallOf(b, 1'500), 3'800) << "its second turn ends when its work does";
  EXPECT_EQ(state_->WallOf(a, 2'001), 3'841) << "then the switch is the shorter one";
  EXPECT_EQ(state_->partitions[0].lost, 340);
}

TEST_F(ArbiterTest, GivenCostlySwitches_WhenOneComesBackAlone_ThenLosesNothing) {
  state_->timing = {kQuantum, 100, 40, 0, 0};
  const int a = Busy(0, 500);
  state_->Advance(0, 5'000);
  state_->Raise(a, 1'000);
  state_->Advance(0, 6'000);
  EXPECT_EQ(state_->WallOf(a, 1'000), 5'500);
  EXPECT_EQ(state_->partitions[0].lost, 0);
}

TEST_F(ArbiterTest, GivenACostOfResuming_WhenInterrupted_ThenItIsPartOfTheTurn) {
  state_->timing = {kQuantum, 100, 40, 30, 0};
  const int a = Busy(0, 100'000);
  const int b = Busy(0, 100'000);
  state_->Advance(0, 4 * 1'100);
  EXPECT_EQ(Granted(a), 1'970);
  EXPECT_EQ(Granted(b), 1'970 - 0);
  EXPECT_EQ(state_->WallOf(a, 1'001), 2'231);
}

TEST_F(ArbiterTest, GivenCostsWhenPredictedThenAdvancingShowsTheSame) {
  state_->timing = {kQuantum, 100, 40, 30, 0};
  const int a = Busy(0, 123'456);
  const int b = Busy(10, 7'890);
  const int c = Busy(20, 45'000);
  for (const std::int64_t passed : {0, 500, 1'050, 5'555, 20'000}) {
    state_->Advance(0, passed);
    const std::int64_t when_a = state_->Predict(a, 123'456);
    const std::int64_t when_b = state_->Predict(b, 7'890);
    const std::int64_t when_c = state_->Predict(c, 33'333);
    auto later = std::make_unique<ArbiterState>();
    std::memcpy(static_cast<void*>(later.get()), state_.get(), sizeof(ArbiterState));
    later->Advance(0, 1'000'000);
    EXPECT_EQ(later->WallOf(a, 123'456), when_a) << passed;
    EXPECT_EQ(later->WallOf(b, 7'890), when_b) << passed;
    EXPECT_EQ(later->WallOf(c, 33'333), when_c) << passed;
  }
}

TEST_F(ArbiterTest, GivenJitter_WhenTurnsPass_ThenTheyDifferAndTheirMeanDoesNot) {
  state_->timing = {kQuantum, 0, 0, 0, 200};
  const int a = Busy(0, 1'000'000'000);
  Busy(0, 1'000'000'000);
  state_->Advance(0, 4'000'000);
  EXPECT_NEAR(static_cast<double>(Granted(a)), 2e6, 4e4);
  bool differ = false;
  for (int i = 1; i < kIntervals; ++i) {
    const std::int64_t length = state_->rings[a][i].length;
    EXPECT_NEAR(static_cast<double>(length), kQuantum, 0.2 * kQuantum);
    differ |= length != state_->rings[a][1].length;
  }
  EXPECT_TRUE(differ);
}

TEST_F(ArbiterTest, GivenRest_WhenTimePasses_ThenTheLoadFollows) {
  Busy(0, 500'000'000);
  state_->Advance(0, 500'000'000);
  EXPECT_GT(state_->partitions[0].load.load(), 900'000);
  state_->Advance(0, 1'000'000'000);
  EXPECT_LT(state_->partitions[0].load.load(), 100'000);
}

TEST_F(ArbiterTest, GivenDemandBelowWhenPredictedThenItNeverComes) {
  const int a = Busy(0, 1000);
  EXPECT_EQ(state_->Predict(a, 1001), kNever);
}

TEST_F(ArbiterTest, GivenADeadOwnerWhenRemovedThenTheOthersHaveTheGpu) {
  const int a = Busy(0, 100'000, 1);
  const int b = Busy(0, 100'000, 2);
  state_->Advance(0, 10'000);
  state_->RemoveOwner(1);
  state_->Advance(0, 20'000);
  EXPECT_EQ(Granted(b), 5'000 + 10'000);
  EXPECT_EQ(state_->contexts[a].used, 0);
}

TEST_F(ArbiterTest, GivenPartitionsWhenBothHaveWorkThenTheyRunSideBySide) {
  const int a = Busy(0, 1000);
  const int b = state_->Attach(1, 1);
  state_->Advance(1, 0);
  state_->Raise(b, 1000);
  state_->Advance(0, 1000);
  state_->Advance(1, 1000);
  EXPECT_EQ(Granted(a), 1000);
  EXPECT_EQ(Granted(b), 1000);
}

TEST_F(ArbiterTest, GivenLocklessRaise_WhenContextWasTakenOut_ThenRefused) {
  const int a = Busy(0, 1000);
  EXPECT_TRUE(ArbiterState::TryRaise(state_->contexts[a], 1000, 1500));
  state_->Advance(0, 2000);
  EXPECT_EQ(Granted(a), 1500);
  EXPECT_FALSE(ArbiterState::TryRaise(state_->contexts[a], 1500, 2000));
  state_->Raise(a, 2000);
  state_->Advance(0, 2500);
  EXPECT_EQ(Granted(a), 2000);
  EXPECT_EQ(state_->WallOf(a, 2000), 2500);
}

TEST_F(ArbiterTest, GivenAnOwnerThatDiedInsideWhenRepairedThenTheRotationIsWhole) {
  const int a = Busy(0, 10'000);
  const int b = Busy(0, 10'000);
  state_->contexts[a].next = 999;
  state_->partitions[0].runnable = 77;
  state_->Repair();
  state_->Advance(0, 20'000);
  EXPECT_EQ(Granted(a), 10'000);
  EXPECT_EQ(Granted(b), 10'000);
}

TEST_F(ArbiterTest, GivenAFullTableWhenAttachedThenItIsRefused) {
  for (int i = 0; i < kMaxContexts; ++i) {
    ASSERT_GE(state_->Attach(1, 0), 0);
  }
  EXPECT_EQ(state_->Attach(1, 0), -1);
  state_->Detach(17);
  EXPECT_EQ(state_->Attach(1, 0), 17);
}

TEST_F(ArbiterTest, GivenCopiesWhenReservedThenAnEngineDoesOneAtATime) {
  EXPECT_EQ(state_->ReserveCopy(0, 100, 50), 100);
  EXPECT_EQ(state_->ReserveCopy(0, 100, 50), 150);
  EXPECT_EQ(state_->ReserveCopy(1, 100, 50), 100);
}

TEST_F(ArbiterTest, ClientsThatFitBesideEachOtherHaveALaneEach) {
  int lanes[4] = {};
  for (int owner = 0; owner < 4; ++owner) {
    const int ctx = state_->AttachBeside(owner, 25);
    ASSERT_GE(ctx, 0);
    lanes[owner] = state_->contexts[ctx].partition;
    EXPECT_GE(lanes[owner], kFirstLane);
    for (int other = 0; other < owner; ++other) EXPECT_NE(lanes[owner], lanes[other]);
  }
  EXPECT_EQ(state_->contexts[state_->AttachBeside(2, 25)].partition, lanes[2]) << "one lane for all of an owner's";
  const int fifth = state_->AttachBeside(4, 25);
  EXPECT_EQ(state_->contexts[fifth].partition, lanes[0]) << "with no room left it takes turns";
  const int sixth = state_->AttachBeside(5, 25);
  EXPECT_EQ(state_->contexts[sixth].partition, lanes[1]);
  state_->RemoveOwner(3);
  const int seventh = state_->AttachBeside(6, 20);
  EXPECT_EQ(state_->contexts[seventh].partition, lanes[3]);
}

}  // namespace
}  // namespace simgpu
