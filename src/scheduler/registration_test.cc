// SPDX-License-Identifier: Apache-2.0

#include "scheduler/registration.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "device/vendors/sections.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler {
namespace {

constexpr const char* kHandshake = "hami.io/node-handshake";
constexpr const char* kRegister = "hami.io/node-nvidia-register";
constexpr device::UnixSeconds kNow = 1'700'000'000;

class RegistrationTest : public ::testing::Test {
 protected:
  RegistrationTest() : books_(sched::testing::NvidiaOnly(), {}) {
    base::StartLog("test", base::LogLevel::kOff);
    view_.name = "n";
    view_.annotations[kRegister] = device::EncodeRegisterJson(sched::testing::Cards("n", 2).devices);
    view_.allocatable["nvidia.com/gpu"] = "10";
  }
  void Look(device::UnixSeconds now = kNow) {
    view_.version = std::to_string(++version_);
    books_.Locked([&](State& state) {
      ASSERT_TRUE(state.NodeSeen(view_));
      registration_.Look(state, state.NodeAt("n"), {now, 0});
    });
  }
  std::vector<NodeWrite> Due(device::UnixSeconds now = kNow) {
    return books_.Locked([&](State& state) { return registration_.Due(state, {now, 0}, 100); });
  }
  std::size_t Cards() {
    return books_.Read([](const State& state) {
      const sched::NodeId id = state.ledger.Find("n");
      return id == sched::kNoNode ? 0 : state.ledger.node(id).devices().size();
    });
  }

  Books books_;
  Registration registration_;
  NodeView view_;
  int version_ = 0;
};

TEST_F(RegistrationTest, WhenNewNodeIsSeen_ThenCardsAreThereAtOnceAndHandshakeIsDue) {
  Look();
  EXPECT_EQ(Cards(), 2U);
  const auto writes = Due();
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].changes, (Changes{{kHandshake, "Requesting_2023-11-14 22:13:20"}}));
  EXPECT_TRUE(Due(kNow + 1).empty()) << "once is enough, until it is seen to have failed";
  EXPECT_EQ(Due(kNow + 16).size(), 1U);
  view_.annotations[kHandshake] = "Requesting_2023-11-14 22:13:20";
  Look(kNow + 17);
  EXPECT_TRUE(Due(kNow + 100).empty());
  EXPECT_EQ(Cards(), 2U);
}

TEST_F(RegistrationTest, GivenANodeWithoutCards_WhenSeen_ThenNothingIsEverWrittenOnIt) {
  view_.annotations.clear();
  Look();
  EXPECT_EQ(Cards(), 0U);
  EXPECT_TRUE(Due(kNow + 1000).empty());
}

TEST_F(RegistrationTest, GivenSilentPlugin_WhenMinutePassed_ThenCardsGoAndStayAway) {
  view_.allocatable.clear();
  view_.annotations[kHandshake] = device::RequestingText({kNow, 0});
  Look();
  EXPECT_EQ(Cards(), 2U);
  EXPECT_TRUE(Due(kNow + 59).empty());
  const auto writes = Due(kNow + 60);
  EXPECT_EQ(Cards(), 0U);
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].changes, (Changes{{kHandshake, std::nullopt}}));
  // What we removed ourselves is no sign of life.
  view_.annotations.erase(kHandshake);
  Look(kNow + 61);
  EXPECT_EQ(Cards(), 0U);
  EXPECT_TRUE(Due(kNow + 500).empty());
  view_.allocatable["nvidia.com/gpu"] = "10";
  Look(kNow + 501);
  EXPECT_EQ(Cards(), 2U);
}

TEST_F(RegistrationTest, GivenPlugin_WhenDevicesGo_ThenLastAnswerBringsNoCardsBack) {
  view_.annotations[kHandshake] = "Reported_2023-11-14 22:13:20";
  Look();
  EXPECT_EQ(Cards(), 2U);
  view_.allocatable.clear();
  Look(kNow + 1);
  EXPECT_EQ(Cards(), 0U);
  const auto writes = Due(kNow + 2);
  EXPECT_EQ(Cards(), 0U) << "that it answered is from before";
  ASSERT_EQ(writes.size(), 1U);
  EXPECT_EQ(writes[0].changes, (Changes{{kHandshake, std::nullopt}}));
  Look(kNow + 3);  // it is another part of the node that changed
  view_.annotations.erase(kHandshake);
  Look(kNow + 4);
  EXPECT_EQ(Cards(), 0U);
  view_.annotations[kHandshake] = "Reported_2023-11-14 22:13:50";
  Look(kNow + 30);
  EXPECT_EQ(Cards(), 2U) << "now it lives";
}

TEST_F(RegistrationTest, GivenFollower_WhenMadeLeader_ThenItWritesWhatNobodyWrote) {
  Look();
  (void)Due();  // not written: somebody else leads
  books_.Locked([&](State& state) { registration_.OweAll(state); });
  EXPECT_EQ(Due().size(), 1U);
}

TEST_F(RegistrationTest, GivenChangeNotOfCards_WhenSeen_ThenBooksAreNotTouched) {
  Look();
  const auto touched = [&] { return books_.Read([](const State& s) { return s.ledger.counters().events; }); };
  const auto before = touched();
  view_.annotations[device::kNodeLock] = "2023-11-14T22:13:20Z,ns,p";
  view_.annotations[kBindTicket] = "1;w";
  Look();
  EXPECT_EQ(touched(), before);
  view_.annotations["hami.io/device-cordon"] = "n-0";
  Look();
  EXPECT_GT(touched(), before);
}

TEST_F(RegistrationTest, GivenOurWrite_WhenAnswerIsOnlyChange_ThenEchoTeachesNothing) {
  const auto knows = [&] {
    return books_.Read([&](const State& state) { return state.KnowsNode("n", view_.version); });
  };
  // As the answer of a write brings it: nobody has looked.
  const auto answered = [&] {
    view_.version = std::to_string(++version_);
    books_.Locked([&](State& state) { ASSERT_TRUE(state.NodeSeen(view_)); });
  };
  answered();
  EXPECT_FALSE(knows()) << "of a node that is new there is everything to learn";
  Look();
  EXPECT_TRUE(knows());
  view_.annotations[device::kNodeLock] = "2023-11-14T22:13:20Z,ns,p";
  view_.annotations[kBindTicket] = "1;w";
  answered();
  EXPECT_TRUE(knows());
  view_.annotations[kRegister] = device::EncodeRegisterJson(sched::testing::Cards("n", 3).devices);
  answered();
  EXPECT_FALSE(knows()) << "the plugin has written as well";
  EXPECT_TRUE(books_.Read([&](const State& state) { return state.KnowsNode("n", "1"); })) << "long overtaken";
  view_.annotations[kBindTicket] = "2;w";
  answered();
  EXPECT_FALSE(knows()) << "that is still to be learnt";
  Look();
  EXPECT_TRUE(knows());
  view_.allocatable.clear();
  answered();
  EXPECT_FALSE(knows());
  Look();
  books_.Locked([&](State& state) { state.NodeGone("n"); });
  EXPECT_FALSE(knows());
}

TEST_F(RegistrationTest, GivenAnAnnotationThatBreaks_WhenSeen_ThenWhatWasKnownStays) {
  Look();
  view_.annotations[kRegister] = "[{";
  Look();
  EXPECT_EQ(Cards(), 2U);
  view_.annotations.erase(kRegister);
  Look();
  EXPECT_EQ(Cards(), 0U);
}

TEST_F(RegistrationTest, GivenBrokenPairScores_WhenCardsChange_ThenTheChangeCounts) {
  view_.annotations["hami.io/node-nvidia-score"] = "[{";
  Look();
  EXPECT_EQ(Cards(), 2U);
  view_.annotations[kRegister] = device::EncodeRegisterJson(sched::testing::Cards("n", 3).devices);
  Look();
  EXPECT_EQ(Cards(), 3U);
}

TEST_F(RegistrationTest, GivenANodeThatLosesItsLabel_WhenSeen_ThenItsCardsGo) {
  Look();
  view_.selected = false;
  Look();
  EXPECT_EQ(Cards(), 0U);
}

// Cards that a node tells by its capacity, and a plugin whose handshake stays when it goes.
TEST(RegistrationOfVendors, CapacityIsAsGoodAsAnAnnotation) {
  base::StartLog("test", base::LogLevel::kOff);
  device::DeviceConfig config;
  config.others = {{"enflame.resourceNameGCU", "enflame.com/gcu"},
                   {"iluvatars[0].commonWord", "MR-V100"},
                   {"iluvatars[0].resourceCountName", "iluvatar.ai/MR-V100-vgpu"}};
  Books books(device::MakeVendors(config, {.ascend = false, .iluvatar = true}), {});
  Registration registration;
  NodeView view;
  view.name = "n";
  view.capacity["enflame.com/gcu"] = "4";
  int version = 0;
  const auto look = [&](device::UnixSeconds now) {
    view.version = std::to_string(++version);
    return books.Locked([&](State& state) {
      EXPECT_TRUE(state.NodeSeen(view));
      registration.Look(state, state.NodeAt("n"), {now, 0});
      const sched::NodeId id = state.ledger.Find("n");
      return id == sched::kNoNode ? 0 : state.ledger.node(id).devices().size();
    });
  };
  EXPECT_EQ(look(kNow), 4U);
  view.capacity["enflame.com/gcu"] = "3";
  EXPECT_EQ(look(kNow), 3U);
  view.annotations["hami.io/node-MR-V100-register"] = "G,10,100,100,MR-V100,0,true:";
  view.annotations["hami.io/node-handshake-MR-V100"] = "Requesting_2023-11-14 22:13:20";
  EXPECT_EQ(look(kNow + 30), 4U);
  EXPECT_EQ(look(kNow + 60), 3U) << "its plugin is gone";
  const auto due = books.Locked([&](State& state) { return registration.Due(state, {kNow + 60, 0}, 100); });
  EXPECT_TRUE(due.empty()) << "and its handshake stays";
  view.capacity.clear();
  EXPECT_EQ(look(kNow + 61), 0U);
}

}  // namespace
}  // namespace hami::scheduler
