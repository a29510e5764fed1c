// SPDX-License-Identifier: Apache-2.0

#include "sched/ledger.h"

#include <gtest/gtest.h>

#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "sched/testing/samples.h"

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

TEST_F(LedgerTest, GivenViewsOfPod_WhenSeen_ThenBooksTellWhetherChargeChanged) {
  const device::Pod pod = PodOf("one", Wants(1, 100));
  const Decision decision = Decide(pod);
  device::Pod seen = testing::Written(pod, decision, true);
  EXPECT_TRUE(ledger_.UpsertPod(seen));
  EXPECT_FALSE(ledger_.UpsertPod(seen));
  seen.annotations["of-nobody"] = "x";
  EXPECT_FALSE(ledger_.UpsertPod(seen));
  std::string& grant = seen.annotations["hami.io/vgpu-devices-allocated"];
  ASSERT_NE(grant.find(",100,"), std::string::npos) << grant;
  grant.replace(grant.find(",100,"), 5, ",300,");
  EXPECT_TRUE(ledger_.UpsertPod(seen));
  EXPECT_EQ(Used("a"), 300);
  seen.terminated = true;
  EXPECT_TRUE(ledger_.UpsertPod(seen));
  EXPECT_EQ(Used("a"), 0);
  EXPECT_FALSE(ledger_.UpsertPod(seen)) << "it is gone";
}

// A deadline may be set on a pod that runs, which makes it another quota's.
TEST_F(LedgerTest, AQuotaIsAboutAPodAsItIsNow) {
  ledger_.quotas().Set("default", "q", {{"limits.nvidia.com/gpumem", "1000"}}, {{"Terminating", "Exists", {}}});
  const device::Pod pod = PodOf("one", Wants(1, 700));
  device::Pod seen = testing::Written(pod, Decide(pod), true);
  EXPECT_TRUE(ledger_.UpsertPod(seen));
  const device::PodTraits terminating{true, false, false, ""};
  EXPECT_EQ(ledger_.quotas().Room("default", terminating, 0).memory, 1000);
  EXPECT_FALSE(ledger_.quotas().Room("default", {}, 0).limited());
  seen.traits = terminating;
  EXPECT_TRUE(ledger_.UpsertPod(seen));
  EXPECT_EQ(ledger_.quotas().Room("default", terminating, 0).memory, 300);
  EXPECT_EQ(Used("a"), 700);
  ledger_.RemovePod(pod.uid);
  EXPECT_EQ(ledger_.quotas().Room("default", terminating, 0).memory, 1000);
}

// What could not be read again would close its node to all.
TEST_F(LedgerTest, GivenMoreSharesOrContainersThanGrantHolds_ThenPodIsRefused) {
  device::NodeCards cards = Cards("a", 2);
  for (device::Device& card : cards.devices) card.count = 2 * static_cast<int>(device::kMostShares);
  ledger_.SetCards("a", 0, cards);
  device::Pod shares = PodOf("shares", Wants(2, 1));
  shares.containers.resize(device::kMostShares / 2, shares.containers[0]);
  device::Pod containers = PodOf("containers", Wants(1, 1));
  containers.containers.resize(device::kMostShares);
  for (device::Pod* pod : {&shares, &containers}) {
    const Decision most = Decide(*pod);
    ASSERT_EQ(most.outcome, Outcome::kPlaced) << pod->name;
    EXPECT_TRUE(device::DecodeGrant(testing::Written(*pod, most, false).annotations["hami.io/vgpu-devices-allocated"]));
    pod->containers.push_back(pod->containers.back());
    const Decision more = Decide(*pod);
    EXPECT_EQ(more.outcome, Outcome::kError) << pod->name;
    EXPECT_NE(more.error.find("2048"), std::string::npos) << more.error;
    EXPECT_TRUE(more.annotations.empty());
  }
}

TEST_F(LedgerTest, GivenUnknownNameWithNodesHash_WhenAsked_ThenItIsNotThatNode) {
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = "node-" + std::to_string(i);
    ledger_.SetCards(name, 0, testing::Cards(name, 1));
  }
  std::string stranger;
  for (int i = 0; i < 4'000'000 && stranger.empty(); ++i) {
    const std::string name = "stranger-" + std::to_string(i);
    const std::vector<std::string_view> asked{name};
    if (ledger_.Guess(asked).front() != kNoNode) stranger = name;
  }
  ASSERT_FALSE(stranger.empty());
  const device::Pod pod = PodOf("one", Wants(1, 100));
  const std::vector<std::string_view> alone{stranger};
  const Decision refused = filter_.Decide(pod, alone, {.now = 100});
  EXPECT_EQ(refused.outcome, Outcome::kNoFit);
  ASSERT_EQ(refused.failures.size(), 1U);
  EXPECT_EQ(refused.failures.front().reason, device::kNodeUnregistered);
  const std::vector<std::string_view> both{stranger, "a"};
  EXPECT_EQ(filter_.Decide(pod, both, {.now = 100}).node, "a");
}

TEST_F(LedgerTest, GivenAnAssumedPod_WhenForgotten_ThenItsShareIsFree) {
  Charge("one", 10000, 200);
  EXPECT_TRUE(ledger_.Forget("one"));
  EXPECT_EQ(Used("a"), 0);
  EXPECT_FALSE(ledger_.Forget("one"));
}

TEST_F(LedgerTest, GivenOverdueAssumedPod_ThenItExpiresAndCanNotBeConfirmed) {
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

TEST_F(LedgerTest, GivenAssumedPod_WhenOlderViewArrives_ThenDecisionStands) {
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

TEST_F(LedgerTest, GivenAssumedPod_WhenSeenBoundElsewhere_ThenTheObjectCounts) {
  device::Pod seen = Charge("one", 100, 200);
  seen.node_name = "b";
  seen.annotations[device::kAssignedNode] = "b";
  ledger_.SetCards("b", 0, Cards("b", 1));
  seen.annotations["hami.io/vgpu-devices-allocated"] = "b-0,NVIDIA,7,0:;";
  ledger_.UpsertPod(seen);
  EXPECT_EQ(Used("a"), 0);
  EXPECT_EQ(Used("b"), 7);
}

// As another scheduler writes it.
device::Pod PlacedAt(const char* time, const char* uid) {
  device::Pod pod = PodOf(uid, Wants(1, 100));
  pod.annotations = {{device::kAssignedNode, "a"},
                     {device::kAssignedTime, time},
                     {"hami.io/vgpu-devices-allocated", "a-0,NVIDIA,100,0:;"}};
  return pod;
}

TEST_F(LedgerTest, GivenEarlierSchedulersPod_WhenNeverBound_ThenItExpiresOnTime) {
  const device::Pod ghost = PlacedAt("1000", "ghost");
  ledger_.UpsertPod(ghost);
  EXPECT_EQ(Used("a"), 100);
  EXPECT_TRUE(ledger_.ExpireBefore(1299).empty());
  EXPECT_EQ(ledger_.ExpireBefore(1300).size(), 1U);
  EXPECT_EQ(Used("a"), 0);
}

TEST_F(LedgerTest, GivenForeignPod_WhenPlacedAgainLater_ThenItsTimeBeginsAnew) {
  device::Pod pod = PlacedAt("1000", "one");
  ledger_.UpsertPod(pod);
  pod.annotations[device::kAssignedTime] = "1200";
  ledger_.UpsertPod(pod);
  EXPECT_TRUE(ledger_.ExpireBefore(1499).empty());
  EXPECT_EQ(Used("a"), 100);
  EXPECT_EQ(ledger_.ExpireBefore(1500).size(), 1U);
}

TEST_F(LedgerTest, GivenFutureTime_WhenSeen_ThenChargeLastsAsLongAsAnyOther) {
  const device::Pod ghost = PlacedAt("99999999999", "ghost");
  ledger_.UpsertPod(ghost);
  Charge("own", 100, 5000);  // before the clock was set back
  EXPECT_TRUE(ledger_.ExpireBefore(1000).empty());
  EXPECT_TRUE(ledger_.ExpireBefore(1299).empty());
  EXPECT_EQ(Used("a"), 200);
  EXPECT_EQ(ledger_.ExpireBefore(1300), (std::vector<std::string>{"ghost", "own"}));
  EXPECT_EQ(Used("a"), 0);
}

TEST_F(LedgerTest, GivenFutureTime_WhenPodIsSeenRepeatedly_ThenItExpiresOnce) {
  device::Pod ghost = PlacedAt("99999999999", "ghost");
  ledger_.UpsertPod(ghost);
  EXPECT_TRUE(ledger_.ExpireBefore(1000).empty());
  ghost.annotations["touched"] = "1";
  ledger_.UpsertPod(ghost);
  EXPECT_TRUE(ledger_.ExpireBefore(1200).empty());
  ghost.annotations["hami.io/vgpu-devices-allocated"] = "a-0,NVIDIA,200,0:;";  // it is charged anew
  ledger_.UpsertPod(ghost);
  EXPECT_TRUE(ledger_.ExpireBefore(1299).empty());
  EXPECT_EQ(Used("a"), 200);
  EXPECT_EQ(ledger_.ExpireBefore(1300).size(), 1U);
  EXPECT_FALSE(ledger_.UpsertPod(ghost));
  EXPECT_EQ(Used("a"), 0) << "nobody has placed it again";
  device::Pod again = ghost;
  again.annotations[device::kAssignedTime] = "1400";
  EXPECT_TRUE(ledger_.UpsertPod(again));
  EXPECT_TRUE(ledger_.ExpireBefore(1699).empty());
  EXPECT_EQ(ledger_.ExpireBefore(1700).size(), 1U);
  ghost.node_name = "a";
  EXPECT_TRUE(ledger_.UpsertPod(ghost)) << "bound after all";
  EXPECT_EQ(Used("a"), 200);
}

TEST_F(LedgerTest, GivenSameCharge_WhenNodeOrQuotaChanges_ThenItIsChargedAnew) {
  device::Pod pod = PlacedAt("1000", "one");
  pod.annotations["hami.io/vgpu-devices-allocated"] = "what is this";
  EXPECT_TRUE(ledger_.UpsertPod(pod));
  pod.annotations[device::kAssignedNode] = "b";
  EXPECT_TRUE(ledger_.UpsertPod(pod));
  EXPECT_FALSE(ledger_.UpsertPod(pod));
  pod.ns = "other";
  EXPECT_TRUE(ledger_.UpsertPod(pod));
  pod.node_name = "b";
  EXPECT_FALSE(ledger_.UpsertPod(pod)) << "it keeps what it had";
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

TEST_F(LedgerTest, GivenPodThatRunsElsewhere_ThenItsAnnotatedNodeIsNotCharged) {
  const device::Pod pod = PodOf("one", Wants(1, 100));
  device::Pod seen = testing::Written(pod, Decide(pod), true);
  seen.node_name = "elsewhere";
  EXPECT_FALSE(ledger_.UpsertPod(seen));
  EXPECT_EQ(Used("a"), 0);
  seen.annotations["hami.io/vgpu-devices-allocated"] = "x";
  ledger_.UpsertPod(seen);
  EXPECT_TRUE(ledger_.node(ledger_.Find("a")).readable());
  // Nor does what was charged before that was known stay.
  Charge("two", 100, 200);
  device::Pod two = testing::Written(PodOf("two", Wants(1, 100)), Decide(PodOf("two", Wants(1, 100))), true);
  two.node_name = "elsewhere";
  EXPECT_TRUE(ledger_.UpsertPod(two));
  EXPECT_EQ(Used("a"), 0);
}

TEST(QuotaBooks, GivenAQuotaObject_WhenSet_ThenItSaysWhetherThatLeavesMore) {
  const device::Vendors vendors = testing::NvidiaOnly();
  QuotaBooks quotas(vendors);
  const device::StringMap small = {{"limits.nvidia.com/gpumem", "100"}};
  EXPECT_FALSE(quotas.Set("ns", "q", {{"limits.cpu", "1"}}));
  EXPECT_FALSE(quotas.Set("ns", "q", small)) << "a new limit";
  EXPECT_FALSE(quotas.Set("ns", "q", small));
  EXPECT_TRUE(quotas.Set("ns", "q", {{"limits.nvidia.com/gpumem", "200"}}));
  EXPECT_FALSE(quotas.Set("ns", "q", small)) << "lowered";
  EXPECT_FALSE(quotas.Set("ns", "r", {{"limits.nvidia.com/gpumem", "150"}}));
  EXPECT_FALSE(quotas.Set("ns", "r", {{"limits.nvidia.com/gpumem", "300"}})) << "the other one counts";
  EXPECT_TRUE(quotas.Set("ns", "q", {{"limits.cpu", "1"}}));
  EXPECT_FALSE(quotas.Remove("ns", "q"));
  EXPECT_TRUE(quotas.Set("ns", "r", {{"limits.nvidia.com/gpumem", "400"}, {"limits.nvidia.com/gpucores", "50"}}));
  EXPECT_TRUE(quotas.Remove("ns", "r"));
  EXPECT_FALSE(quotas.Remove("ns", "r"));
  EXPECT_FALSE(quotas.Remove("none", "r"));
  const QuotaScopes scopes = {{"Terminating", "Exists", {}}};
  EXPECT_FALSE(quotas.Set("ns", "s", small, scopes));
  EXPECT_FALSE(quotas.Set("ns", "s", small, scopes));
  EXPECT_TRUE(quotas.Set("ns", "s", small, {{"NotTerminating", "Exists", {}}})) << "about other pods";
  EXPECT_TRUE(quotas.Remove("ns", "s"));
  EXPECT_EQ(quotas.Complaint("ns", "s"), "");
  quotas.Set("ns", "s", {{"limits.nvidia.com/gpucores", "1500m"}});
  EXPECT_EQ(quotas.Complaint("ns", "s"), "quota s blocks: limits.nvidia.com/gpucores 1500m is no whole number");
}

}  // namespace
}  // namespace hami::sched
