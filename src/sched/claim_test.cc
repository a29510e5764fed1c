// SPDX-License-Identifier: Apache-2.0
//
// What the books make of annotations that nobody vouches for: a pod never costs others more than it asks for, and never
// gives back what it was granted.

#include "sched/claim.h"

#include <gtest/gtest.h>

#include "device/annotations.h"
#include "sched/ledger.h"
#include "sched/testing/samples.h"

namespace hami::sched {
namespace {

using testing::Cards;
using testing::PodOf;
using testing::Wants;

constexpr const char* kAllocated = "hami.io/vgpu-devices-allocated";

class ClaimTest : public ::testing::Test {
 protected:
  ClaimTest() { ledger_.SetCards("n", 0, Cards("n", 2, 10000)); }

  static device::Pod Running(device::Pod pod, const std::string& grant) {
    pod.annotations[device::kAssignedNode] = "n";
    pod.annotations[kAllocated] = grant;
    pod.node_name = "n";
    return pod;
  }
  static device::Pod Asks(int gpus, device::MiB memory, int cores = 0) {
    return PodOf("u", Wants(gpus, memory, cores));
  }
  void See(const device::Pod& pod, Trust trust = Trust::kBelieved) { ledger_.UpsertPod(pod, trust); }
  device::CardState Used(int card) {
    const Node& node = ledger_.node(ledger_.Find("n"));
    return node.used()[static_cast<std::size_t>(card)];
  }
  bool Open() { return ledger_.node(ledger_.Find("n")).readable(); }

  const device::Vendors vendors_ = testing::NvidiaOnly();
  Ledger ledger_{vendors_};
};

TEST_F(ClaimTest, APodThatAsksForNothingCostsNothing) {
  device::Pod pod = PodOf("u", {});
  See(Running(pod, "n-0,NVIDIA,10000,100:;"));
  EXPECT_EQ(ledger_.pod_count(), 0U);
  See(Running(pod, "nonsense"));
  EXPECT_TRUE(Open());
  pod.annotations[device::kMigAllocations] =
      R"([{"containerIndex":0,"deviceIndex":0,"gpuUUID":"n-0","profile":"1g","placement":{"start":0,"size":1}}])";
  See(Running(pod, "n-0,NVIDIA,10000,100:;"));
  EXPECT_EQ(Used(0), device::CardState{});
  EXPECT_TRUE(ledger_.node(ledger_.Find("n")).usable(0));
}

TEST_F(ClaimTest, AClaimCountsForNoMoreThanItsRequest) {
  See(Running(Asks(1, 3000, 20), "n-0,NVIDIA,9000,90:n-1,NVIDIA,9000,90:;n-1,NVIDIA,1,1:;"));
  EXPECT_EQ(Used(0), (device::CardState{3000, 1, 20}));
  EXPECT_EQ(Used(1), device::CardState{});
}

TEST_F(ClaimTest, AClaimOfLessIsWhatItIs) {
  See(Running(Asks(2, 3000, 20), "n-0,NVIDIA,1000,10:;"));
  EXPECT_EQ(Used(0), (device::CardState{1000, 1, 10}));
}

TEST_F(ClaimTest, APercentageIsOfTheCardWheneverThatIsSeen) {
  device::Pod pod = PodOf("u", Wants(1, 0));
  pod.containers[0].limits["nvidia.com/gpumem-percentage"] = "30";
  See(Running(pod, "n-0,NVIDIA,9000,50:;"));
  EXPECT_EQ(Used(0), (device::CardState{3000, 1, 50}));
  ledger_.SetCards("n", 0, Cards("n", 2, 20000));
  EXPECT_EQ(Used(0), (device::CardState{6000, 1, 50}));
  ledger_.RemoveNode("n");
  ledger_.SetCards("n", 0, Cards("n", 2, 10000));
  EXPECT_EQ(Used(0).memory, 3000);
  ledger_.RemovePod("u");
  EXPECT_EQ(Used(0), device::CardState{});
}

TEST_F(ClaimTest, WhatAsksForAWholeCardHoldsNoMoreThanOne) {
  See(Running(Asks(1, 0), "n-0,NVIDIA,99999999,5000:;"));
  EXPECT_EQ(Used(0), (device::CardState{10000, 1, 100}));
}

TEST_F(ClaimTest, ARunningPodGivesNothingBack) {
  const device::Pod granted = Running(Asks(1, 9000), "n-0,NVIDIA,9000,0:;");
  const auto holds = [&] { return Used(0) == device::CardState{9000, 1, 0} && Used(1) == device::CardState{}; };
  See(granted);
  ASSERT_TRUE(holds());
  for (const char* text : {"", ";", "n-0,NVIDIA,10,0:;", "n-1,NVIDIA,9000,0:;", "nonsense"}) {
    See(Running(Asks(1, 9000), text));
    EXPECT_TRUE(holds()) << text;
    EXPECT_TRUE(Open());
  }
  device::Pod pod = granted;
  pod.annotations[device::kAssignedNode] = "m";
  See(pod);
  EXPECT_TRUE(holds());
  pod.annotations.clear();
  See(pod);
  EXPECT_TRUE(holds());
  pod.terminated = true;
  See(pod);
  EXPECT_EQ(Used(0), device::CardState{});
}

TEST_F(ClaimTest, WhatWasDecidedHereStaysWhateverIsWritten) {
  device::Pod pod = Asks(1, 9000);
  ledger_.Assume(pod, "n", {{{0, {{{"n-0", "NVIDIA", 9000, 0}}}}}, {}}, 100);
  ledger_.Confirm("u");
  See(Running(pod, "n-0,NVIDIA,9000,0:;"));
  See(Running(pod, "n-1,NVIDIA,9000,0:;"));
  pod.node_name = "n";
  See(pod);
  EXPECT_EQ(Used(0).memory, 9000);
  EXPECT_EQ(Used(1).memory, 0);
}

TEST_F(ClaimTest, ALoweredClaimThatIsWrittenAnewCountsAgain) {
  See(Running(Asks(1, 9000), "n-0,NVIDIA,10,0:;"));  // as a scheduler that was restarted may meet it
  EXPECT_EQ(Used(0).memory, 10);
  See(Running(Asks(1, 9000), "n-0,NVIDIA,9000,0:;"));
  EXPECT_EQ(Used(0).memory, 9000);
  See(Running(Asks(1, 9000), "n-1,NVIDIA,9000,0:;"));
  EXPECT_EQ(Used(1).memory, 0) << "it moves nowhere";
}

TEST_F(ClaimTest, ASealedClaimIsTheTruthWhateverWasBelieved) {
  See(Running(Asks(1, 9000), "n-1,NVIDIA,9000,0:;"));
  See(Running(Asks(1, 9000), "n-0,NVIDIA,9500,0:;"), Trust::kProven);
  EXPECT_EQ(Used(0).memory, 9500);
  EXPECT_EQ(Used(1).memory, 0);
  See(Running(Asks(1, 9000), "n-1,NVIDIA,9000,0:;"));
  EXPECT_EQ(Used(0).memory, 9500);
  EXPECT_EQ(Used(1).memory, 0);
}

TEST_F(ClaimTest, ADoubtedClaimTakesNothingBack) {
  See(Running(Asks(1, 9000), "n-0,NVIDIA,9000,0:;"), Trust::kProven);
  See(Running(Asks(1, 9000), "n-1,NVIDIA,1,0:;"), Trust::kDoubted);
  EXPECT_EQ(Used(0).memory, 9000);
  EXPECT_TRUE(Open());
}

TEST_F(ClaimTest, OfADoubtedPodNobodyKnowsWhatItHolds) {
  device::Pod pod = Running(Asks(1, 9000), "n-0,NVIDIA,9000,0:;");
  pod.node_name.clear();
  See(pod, Trust::kDoubted);
  EXPECT_EQ(ledger_.pod_count(), 0U) << "it runs nowhere";
  See(Running(PodOf("v", {}), "n-0,NVIDIA,9000,0:;"), Trust::kDoubted);
  EXPECT_EQ(ledger_.pod_count(), 0U) << "it asks for nothing";
  See(Running(Asks(1, 9000), "n-0,NVIDIA,9000,0:;"), Trust::kDoubted);
  EXPECT_FALSE(Open());
  EXPECT_EQ(Used(0).memory, 0);
  See(Running(Asks(1, 9000), "n-0,NVIDIA,9000,0:;"), Trust::kProven);
  EXPECT_TRUE(Open());
  EXPECT_EQ(Used(0).memory, 9000);
}

// The watch shows the pod before the answer to our Binding comes.
TEST_F(ClaimTest, WhatWeMayHaveBoundIsChargedUntilThatIsKnown) {
  device::Pod pod = PodOf("v", Wants(1, 800));
  ledger_.Assume(pod, "n", {{{0, {{{"n-0", "NVIDIA", 800, 0}}}}}, {}}, 100);
  See(Running(pod, "n-1,NVIDIA,1,0:;"), Trust::kDoubted);
  EXPECT_EQ(Used(0).memory, 800);
  EXPECT_FALSE(Open()) << "it may hold another's grant";
  ledger_.Confirm("v");
  EXPECT_TRUE(Open());
  EXPECT_EQ(Used(0).memory, 800);
}

TEST_F(ClaimTest, AnUnreadableTextClosesTheNodeOfAPodThatRunsThereAlone) {
  device::Pod pod = Running(Asks(1, 100), "nonsense");
  pod.node_name.clear();
  See(pod);
  EXPECT_TRUE(Open()) << "it is bound nowhere";
  See(Running(Asks(1, 100), "nonsense"));
  EXPECT_FALSE(Open());
  See(Running(Asks(1, 100), "n-0,NVIDIA,100,0:;"));
  EXPECT_TRUE(Open());
  EXPECT_EQ(Used(0).memory, 100);
}

TEST_F(ClaimTest, AMadeUpMigInstanceShutsNoCard) {
  device::Pod pod = Asks(1, 100);
  pod.annotations[device::kMigAllocations] =
      R"([{"containerIndex":0,"deviceIndex":0,"gpuUUID":"n-0","profile":"1g","placement":{"start":0,"size":1}},)"
      R"({"containerIndex":7,"deviceIndex":0,"gpuUUID":"gone","profile":"1g","placement":{"start":0,"size":1}}])";
  See(Running(pod, "n-0,NVIDIA,100,0:;"));
  EXPECT_TRUE(ledger_.node(ledger_.Find("n")).usable(0));
  EXPECT_TRUE(ledger_.node(ledger_.Find("n")).usable(1));
}

TEST_F(ClaimTest, AQuotaIsChargedWhatTheCardsAre) {
  ledger_.quotas().Set("default", "q", {{"limits.nvidia.com/gpumem", "10000"}});
  See(Running(Asks(1, 3000), "n-0,NVIDIA,9000000,0:;"));
  EXPECT_EQ(ledger_.quotas().Rooms("default")[0].Admits(7000, 0), true);
  EXPECT_EQ(ledger_.quotas().Rooms("default")[0].Admits(7001, 0), false);
}

}  // namespace
}  // namespace hami::sched
