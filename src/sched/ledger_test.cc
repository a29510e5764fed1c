// SPDX-License-Identifier: Apache-2.0

#include "sched/ledger.h"

#include <gtest/gtest.h>

#include "device/annotations.h"
#include "sched/testing.h"

namespace hami::sched {
namespace {

using testing::Cards;
using testing::PodOf;
using testing::Wants;

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() { ledger_.SetCards("a", 0, Cards("a", 1)); }

  Decision Decide(const device::Pod& pod) { return filter_.DecideAny(pod, {.now = 100}); }
  device::MiB Used(const char* node) { return ledger_.node(ledger_.Find(node)).used().at(0).memory; }
  device::Pod Charge(const char* uid, device::MiB memory, device::UnixSeconds deadline) {
    const device::Pod pod = PodOf(uid, Wants(1, memory));
    const Decision decision = Decide(pod);
    ledger_.Assume(pod, decision.node, decision.allocation, deadline);
    return testing::Written(pod, decision, false);
  }

  device::Vendors vendors_ = testing::NvidiaOnly();
  Ledger ledger_{vendors_, 300};
  Filter filter_{ledger_, vendors_, {}};
};

TEST_F(LedgerTest, GivenADecision_WhenAssumed_ThenTheNextOneSeesIt) {
  Charge("one", 10000, 200);
  EXPECT_EQ(Decide(PodOf("two", Wants(1, 10000))).outcome, Outcome::kNoFit);
}

TEST_F(LedgerTest, GivenAnAssumedPod_WhenForgotten_ThenItsShareIsFree) {
  Charge("one", 10000, 200);
  EXPECT_TRUE(ledger_.Forget("one"));
  EXPECT_EQ(Used("a"), 0);
  EXPECT_FALSE(ledger_.Forget("one"));
}

TEST_F(LedgerTest, GivenAnAssumedPod_WhenItsDeadlinePasses_ThenItExpiresAndCanNotBeConfirmed) {
  Charge("one", 100, 200);
  Charge("two", 100, 201);
  EXPECT_EQ(ledger_.ExpireBefore(199), std::vector<std::string>{});
  EXPECT_EQ(ledger_.ExpireBefore(200), std::vector<std::string>{"one"});
  EXPECT_EQ(Used("a"), 100);
  EXPECT_FALSE(ledger_.Confirm("one"));
  EXPECT_TRUE(ledger_.Confirm("two"));
}

TEST_F(LedgerTest, GivenAConfirmedPod_ThenItNeitherExpiresNorIsForgotten) {
  Charge("one", 100, 200);
  ASSERT_TRUE(ledger_.Confirm("one"));
  EXPECT_TRUE(ledger_.ExpireBefore(1000000).empty());
  EXPECT_FALSE(ledger_.Forget("one"));
  EXPECT_EQ(Used("a"), 100);
  ledger_.RemovePod("one");
  EXPECT_EQ(Used("a"), 0);
}

TEST_F(LedgerTest, GivenAnAssumedPod_WhenAnOlderViewArrives_ThenTheDecisionStands) {
  device::Pod old = PodOf("one", Wants(1, 100));
  Charge("one", 100, 200);
  ledger_.UpsertPod(old);
  EXPECT_EQ(Used("a"), 100);
  old.annotations[device::kAssignedNode] = "b";
  old.annotations["hami.io/vgpu-devices-allocated"] = "b-0,NVIDIA,7,0:;";
  ledger_.UpsertPod(old);
  EXPECT_EQ(Used("a"), 100);
  EXPECT_EQ(ledger_.Find("b"), kNoNode);
}

TEST_F(LedgerTest, GivenAnAssumedPod_WhenItIsSeenBoundElsewhere_ThenTheObjectCounts) {
  device::Pod seen = Charge("one", 100, 200);
  seen.node_name = "b";
  seen.annotations[device::kAssignedNode] = "b";
  ledger_.SetCards("b", 0, Cards("b", 1));
  seen.annotations["hami.io/vgpu-devices-allocated"] = "b-0,NVIDIA,7,0:;";
  ledger_.UpsertPod(seen);
  EXPECT_EQ(Used("a"), 0);
  EXPECT_EQ(Used("b"), 7);
}

TEST_F(LedgerTest, GivenAPodWrittenByAnEarlierScheduler_WhenItIsNeverBound_ThenItExpiresAfterItsTime) {
  device::Pod ghost = PodOf("ghost", Wants(1, 100));
  ghost.annotations[device::kAssignedNode] = "a";
  ghost.annotations[device::kAssignedTime] = "1000";
  ghost.annotations["hami.io/vgpu-devices-allocated"] = "a-0,NVIDIA,100,0:;";
  ledger_.UpsertPod(ghost);
  EXPECT_EQ(Used("a"), 100);
  EXPECT_TRUE(ledger_.ExpireBefore(1299).empty());
  EXPECT_EQ(ledger_.ExpireBefore(1300).size(), 1U);
  EXPECT_EQ(Used("a"), 0);
}

TEST_F(LedgerTest, GivenAPodBeforeItsNode_ThenTheNodeStartsWithItsUse) {
  device::Pod pod = PodOf("one", Wants(1, 100));
  pod.node_name = "late";
  pod.annotations[device::kAssignedNode] = "late";
  pod.annotations["hami.io/vgpu-devices-allocated"] = "late-0,NVIDIA,100,0:;";
  ledger_.UpsertPod(pod);
  ledger_.SetCards("late", 0, Cards("late", 1));
  EXPECT_EQ(Used("late"), 100);
}

TEST_F(LedgerTest, GivenANodeThatLeavesAndReturns_ThenItsPodsStillCount) {
  Charge("one", 100, 200);
  ledger_.RemoveNode("a");
  EXPECT_EQ(Decide(PodOf("two", Wants(1, 1))).outcome, Outcome::kNoFit);
  ledger_.SetCards("a", 0, Cards("a", 1));
  EXPECT_EQ(Used("a"), 100);
}

TEST_F(LedgerTest, GivenEmptiedNodes_ThenNothingIsKept) {
  Charge("one", 100, 200);
  ledger_.RemoveNode("a");
  EXPECT_EQ(ledger_.node_count(), 1U);  // its pod is still there
  ledger_.RemovePod("one");
  EXPECT_EQ(ledger_.node_count(), 0U);
  EXPECT_TRUE(ledger_.quotas().Lines().empty());
}

TEST_F(LedgerTest, GivenTheSameObjectAgain_ThenNoNodeIsTouched) {
  device::Pod pod = Charge("one", 100, 200);
  pod.node_name = "a";
  ledger_.UpsertPod(pod);
  const auto before = ledger_.counters();
  ledger_.UpsertPod(pod);
  EXPECT_EQ(ledger_.counters().nodes_touched, before.nodes_touched);
  EXPECT_EQ(ledger_.counters().events, before.events + 1);
}

TEST_F(LedgerTest, GivenAReaderThatFellFarBehind_ThenItIsToldToLookAtAll) {
  std::vector<NodeId> changes;
  const std::uint64_t start = ledger_.change_count();
  EXPECT_TRUE(ledger_.ChangesSince(start, changes));
  EXPECT_TRUE(changes.empty());
  for (int i = 0; i < 3000; ++i) {
    Charge("one", 1 + i % 2, 200);
    ledger_.Forget("one");
  }
  EXPECT_FALSE(ledger_.ChangesSince(start, changes));
  EXPECT_EQ(Decide(PodOf("two", Wants(1, 16384))).node, "a");
}

}  // namespace
}  // namespace hami::sched
