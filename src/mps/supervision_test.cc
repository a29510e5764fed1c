// SPDX-License-Identifier: Apache-2.0

#include "mps/supervision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::mps {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Millis kSecond = 1000;

// Plays a daemon's life against the decisions; what Decide asks for is done by the test.
class SupervisionTest : public testing::Test {
 protected:
  Decision Look(const Seen& seen, Millis now) {
    Decision decision = Decide(wanted_, seen, memory_, now);
    memory_ = decision.memory;
    return decision;
  }
  Decision LookAtNothing(Millis now) { return Look({}, now); }
  Decision LookAtAnswer(Millis now, std::vector<Server> servers = {}) {
    return Look({true, true, std::move(servers), {}}, now);
  }
  Decision LookAtSilence(Millis now) { return Look({true, false, {}, "timed out"}, now); }
  void Run(Millis now) {
    LookAtNothing(now);
    LookAtAnswer(now);
  }

  Wanted wanted_{true, {}};
  Memory memory_;
};

TEST_F(SupervisionTest, AWantedDaemonIsStartedToldItsLimitsAndRuns) {
  wanted_.limits = {25, 1024};
  EXPECT_EQ(LookAtNothing(0).action, Action::kStart);
  EXPECT_EQ(memory_.state, State::kStarting);
  EXPECT_FALSE(Serves(memory_));
  EXPECT_EQ(LookAtAnswer(10).action, Action::kConfigure);
  EXPECT_TRUE(Serves(memory_));
  EXPECT_EQ(LookAtAnswer(20).action, Action::kNone);
  EXPECT_EQ(memory_.restarts, 0U);
}

TEST_F(SupervisionTest, ADaemonThatRunsAlreadyIsAdopted) {
  EXPECT_EQ(LookAtAnswer(0).action, Action::kConfigure);
  EXPECT_TRUE(Serves(memory_));
}

TEST_F(SupervisionTest, OtherLimitsAreTold) {
  Run(0);
  wanted_.limits.percent = 50;
  EXPECT_EQ(LookAtAnswer(10).action, Action::kConfigure);
  EXPECT_EQ(LookAtAnswer(20).action, Action::kNone);
}

TEST_F(SupervisionTest, ADaemonThatEndedIsDownAndStartedAnewAtOnce) {
  Run(0);
  LookAtAnswer(5 * kSecond, {{7, ServerStatus::kActive, {8, 9}}});
  const Decision decision = LookAtNothing(10 * kSecond);
  EXPECT_EQ(decision.action, Action::kStart);
  EXPECT_EQ(memory_.restarts, 1U);
  EXPECT_FALSE(Serves(memory_));
  EXPECT_THAT(memory_.trouble, HasSubstr("its process ended"));
  EXPECT_THAT(decision.notices, ElementsAre(Field(&Notice::message, HasSubstr("clients at the last look: 2"))));
  const Decision back = LookAtAnswer(11 * kSecond);
  EXPECT_EQ(back.action, Action::kConfigure) << "a new daemon knows no limits";
  EXPECT_THAT(back.notices, ElementsAre(Field(&Notice::reason, "MpsDaemonServes")));
  EXPECT_TRUE(Serves(memory_));
}

TEST_F(SupervisionTest, OneThatKeepsEndingIsStartedEverLater) {
  Run(0);
  std::vector<Millis> starts;
  for (Millis now = 1; now < 200 * kSecond; now += 100) {
    if (LookAtNothing(now).action == Action::kStart) starts.push_back(now);
  }
  ASSERT_GE(starts.size(), 6U);
  EXPECT_LE(starts[0], 100);
  EXPECT_GE(starts[1] - starts[0], 1 * kSecond);
  EXPECT_GE(starts[2] - starts[1], 2 * kSecond);
  EXPECT_GE(starts[5] - starts[4], 16 * kSecond);
  EXPECT_LE(starts.back() - starts[starts.size() - 2], 61 * kSecond);
  EXPECT_EQ(memory_.restarts, starts.size());
}

TEST_F(SupervisionTest, OneThatRanForLongIsStartedAtOnceAgain) {
  Run(0);
  for (Millis now = 1; now < 10 * kSecond; now += 100) LookAtNothing(now);
  LookAtAnswer(30 * kSecond);
  EXPECT_TRUE(Serves(memory_));
  LookAtAnswer(100 * kSecond);
  EXPECT_EQ(LookAtNothing(101 * kSecond).action, Action::kStart);
}

TEST_F(SupervisionTest, OneUnansweredQuestionIsNoTrouble) {
  Run(0);
  EXPECT_EQ(LookAtSilence(5 * kSecond).action, Action::kNone);
  EXPECT_TRUE(Serves(memory_));
  EXPECT_EQ(LookAtAnswer(8 * kSecond).action, Action::kNone);
  EXPECT_EQ(LookAtSilence(16 * kSecond).action, Action::kNone) << "an answer ends the silence";
}

TEST_F(SupervisionTest, ADaemonThatStaysSilentIsKilled) {
  Run(0);
  LookAtSilence(5 * kSecond);
  const Decision decision = LookAtSilence(15 * kSecond);
  EXPECT_EQ(decision.action, Action::kKill);
  EXPECT_EQ(memory_.state, State::kDown);
  EXPECT_THAT(memory_.trouble, HasSubstr("did not answer for 10 s: timed out"));
  EXPECT_EQ(LookAtNothing(16 * kSecond).action, Action::kStart);
}

TEST_F(SupervisionTest, AFaultIsToldOnceAndEndsWithItsClients) {
  Run(0);
  const std::vector<Server> faulted = {{7, ServerStatus::kFault, {8, 9}}};
  const Decision decision = LookAtAnswer(1, faulted);
  EXPECT_EQ(memory_.state, State::kFaulted);
  EXPECT_FALSE(Serves(memory_));
  EXPECT_THAT(memory_.trouble, HasSubstr("8, 9"));
  EXPECT_THAT(decision.notices, ElementsAre(Field(&Notice::reason, "MpsServerFault")));
  EXPECT_THAT(LookAtAnswer(2, faulted).notices, IsEmpty());
  EXPECT_EQ(memory_.faults, 1U);
  EXPECT_THAT(LookAtAnswer(3, {{7, ServerStatus::kActive, {}}}).notices,
              ElementsAre(Field(&Notice::reason, "MpsDaemonServes")));
  EXPECT_TRUE(Serves(memory_));
}

TEST_F(SupervisionTest, AServerThatEndsWithClientsIsTold) {
  Run(0);
  LookAtAnswer(1, {{7, ServerStatus::kActive, {8}}, {17, ServerStatus::kActive, {}}});
  EXPECT_THAT(LookAtAnswer(2).notices, ElementsAre(Field(&Notice::message, HasSubstr("the MPS server 7 ended"))));
  EXPECT_EQ(memory_.faults, 1U);
}

TEST_F(SupervisionTest, AnUnwantedDaemonIsAskedToEndAndThenMadeTo) {
  Run(0);
  wanted_.running = false;
  EXPECT_EQ(LookAtAnswer(1 * kSecond).action, Action::kQuit);
  EXPECT_EQ(LookAtSilence(5 * kSecond).action, Action::kQuit);
  EXPECT_EQ(LookAtSilence(11 * kSecond).action, Action::kKill);
  EXPECT_EQ(LookAtNothing(12 * kSecond).action, Action::kNone);
  EXPECT_EQ(memory_.state, State::kStopped);
  EXPECT_THAT(memory_.trouble, IsEmpty());
}

TEST_F(SupervisionTest, NothingIsStartedThatIsNotWanted) {
  wanted_.running = false;
  EXPECT_EQ(LookAtNothing(0).action, Action::kNone);
  EXPECT_EQ(memory_.state, State::kStopped);
}

}  // namespace
}  // namespace hami::mps
