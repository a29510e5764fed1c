// SPDX-License-Identifier: Apache-2.0
//
// How long a placement is held that no bind call comes for, and where pods go while a node is taken.

#include <gtest/gtest.h>

#include <utility>

#include "scheduler/testing/binder.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::SimPod;

// Pods that wait for each other are charged while kube-scheduler keeps them waiting, and no longer.
class GivenUpTest : public BinderTest {
 protected:
  // What kube-scheduler writes when an attempt came to nothing: the condition PodScheduled.
  void GiveUp(const std::string& uid, std::uint64_t words) {
    SimPod* pod = cluster_.FindPod("default", "pod-" + uid);
    if (std::exchange(pod->refusal, words) != words) cluster_.PodChanged(*pod);
    a_->watch.Drain();
  }
  // As /filter brings it, with what is written on it.
  bool Ask(const std::string& uid) {
    const SimPod* pod = cluster_.FindPod("default", "pod-" + uid);
    const std::string_view names[] = {"n"};
    Candidate candidate{.pod = pod->pod, .version = pod->version, .group = true, .refusal = pod->refusal};
    return a_->books.Locked([&](State& state) {
      return state.Place(std::move(candidate), names, cluster_.now / 1000, false).outcome == sched::Outcome::kPlaced;
    });
  }
  void Wait(Millis span) {
    cluster_.now += span;
    a_->keeper.RunOnce();
  }
};

TEST_F(GivenUpTest, AMemberOfAHalfPlacedGroupHoldsNothing) {
  AddPod("p", 16000);
  AddPod("q", 16000);
  ASSERT_TRUE(Ask("p"));
  ASSERT_FALSE(Ask("q"));  // the other half of the group
  Wait(5000);
  EXPECT_EQ(a_->charged(), 1U);  // kube-scheduler may still be waiting
  GiveUp("p", 7);
  EXPECT_EQ(a_->charged(), 0U);
  AddPod("other", 16000);
  EXPECT_TRUE(Place(*a_, "other"));
}

TEST_F(GivenUpTest, TheSameWordsAgainEndTheHoldByItsLength) {
  AddPod("p", 16000);
  ASSERT_TRUE(Ask("p"));
  Wait(30'000);
  GiveUp("p", 7);
  ASSERT_TRUE(Ask("p"));
  GiveUp("p", 7);  // is written once
  Wait(40'000);
  EXPECT_EQ(a_->charged(), 1U);
  Wait(21'000);  // twice as long as the first time
  EXPECT_EQ(a_->charged(), 0U);
}

TEST_F(GivenUpTest, ABindCallThatComesAllTheSameDecidesAnew) {
  AddPod("p", 16000);
  ASSERT_TRUE(Ask("p"));
  GiveUp("p", 7);
  ASSERT_EQ(a_->charged(), 0U);
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(Pod("p").node_name, "n");
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(GivenUpTest, ABindCallFindsNoRoomWhereAnotherPodCameMeanwhile) {
  AddPod("p", 16000);
  AddPod("other", 16000);
  ASSERT_TRUE(Ask("p"));
  GiveUp("p", 7);
  ASSERT_TRUE(Place(*a_, "other"));
  EXPECT_FALSE(Bind(*a_, "p"));
  EXPECT_TRUE(Bind(*a_, "other"));
}

TEST_F(GivenUpTest, WordsOfAnEarlierAttemptEndNothing) {
  AddPod("p", 16000);
  GiveUp("p", 7);
  ASSERT_TRUE(Ask("p"));
  SimPod* pod = cluster_.FindPod("default", "pod-p");
  pod->pod.annotations["theirs"] = "changed";
  cluster_.PodChanged(*pod);
  a_->watch.Drain();
  EXPECT_EQ(a_->charged(), 1U);
}

// A lock that nobody releases: HAMi's plugin is stuck with a pod that lives.
class TakenNodeTest : public BinderTest {
 protected:
  TakenNodeTest() {
    cluster_.AddNode("m", sched::testing::Cards("m", 1, 16000), false);
    AddPod("stuck", 1000);
    (void)cluster_.PatchNode("m", "", {{device::kNodeLock, FormatLock(cluster_.now, 0, "default", "pod-stuck")}});
    a_->watch.Drain();
    AddPod("there");
    EXPECT_TRUE(Place(*a_, "there", "m"));  // so that m is the best for all others
  }
  std::string Go(const std::string& uid, device::MiB memory = 1000) {
    if (cluster_.FindPod("default", "pod-" + uid) == nullptr) AddPod(uid, memory);
    const SimPod* pod = cluster_.FindPod("default", "pod-" + uid);
    const std::string_view names[] = {"m", "n"};
    return a_->books.Locked([&](State& state) {
      return state.Place({.pod = pod->pod, .version = pod->version}, names, cluster_.now / 1000, false).node;
    });
  }
};

TEST_F(TakenNodeTest, PodsGoToOtherNodesAfterABindThatWaitedInVain) {
  ASSERT_EQ(Go("p"), "m");
  ASSERT_FALSE(Bind(*a_, "p", "m"));
  EXPECT_EQ(Go("p"), "n");
  EXPECT_TRUE(Bind(*a_, "p", "n"));
  EXPECT_EQ(Go("q"), "n");
  (void)cluster_.PatchNode("m", "", {{device::kNodeLock, std::nullopt}});
  a_->watch.Drain();
  EXPECT_EQ(Go("q"), "m");
}

TEST_F(TakenNodeTest, ANodeThatIsTakenIsBetterThanNone) {
  ASSERT_EQ(Go("p"), "m");
  ASSERT_FALSE(Bind(*a_, "p", "m"));
  ASSERT_EQ(Go("p"), "n");
  EXPECT_EQ(Go("large", 15500), "");
  EXPECT_EQ(Go("half", 12000), "n");
  EXPECT_EQ(Go("last", 12000), "m");
}

TEST_F(TakenNodeTest, OnePodTriesAgainAfterAWhile) {
  ASSERT_EQ(Go("p"), "m");
  ASSERT_FALSE(Bind(*a_, "p", "m"));
  ASSERT_EQ(Go("p"), "n");
  cluster_.now += 31'000;
  a_->books.Locked([](State& state) { state.Drop("p"); });
  EXPECT_EQ(Go("p"), "m");
}

}  // namespace
}  // namespace hami::scheduler
