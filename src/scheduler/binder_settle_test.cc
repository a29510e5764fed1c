// SPDX-License-Identifier: Apache-2.0
//
// What a binding leaves when its answer was lost or it failed.

#include "scheduler/binder.h"

#include "device/annotations.h"
#include "scheduler/testing/binder.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::Fault;
using testing::SimPod;

class BinderSettleTest : public BinderTest {
 protected:
  // It is bound, and from then on nobody can be asked.
  void BindPAndHearNothing() {
    AddPod("p");
    ASSERT_TRUE(Place(*a_, "p"));
    a_->api.fault = [down = false](const std::string& call) mutable {
      if (call == "BIND") return down = true, Fault::kAnswerLost;
      return down ? Fault::kRefusedBefore : Fault::kNone;
    };
    EXPECT_FALSE(Bind(*a_, "p"));
  }
  // Its Binding is denied, and so is, for now, the write that gives the node back.
  void BindPAndOweItsNode() {
    ASSERT_TRUE(Place(*a_, "p"));
    a_->api.fault = [patches = 0](const std::string& call) mutable {
      if (call == "BIND") return Fault::kDenied;
      return call == "PATCH node" && ++patches > 1 ? Fault::kServerError : Fault::kNone;
    };
    ASSERT_FALSE(Bind(*a_, "p"));
  }
};

TEST_F(BinderSettleTest, GivenALostAnswer_WhenThePodWasBound_ThenItIsFoundOut) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  a_->api.fault = Once("BIND", Fault::kAnswerLost);
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(Pod("p").node_name, "n");
  EXPECT_EQ(a_->charged(), 1U);
}

// Through another API server, while ours could not be asked.
TEST_F(BinderSettleTest, GivenLostAnswer_WhenPluginAllocatedFirst_ThenPodKeepsCharge) {
  ASSERT_NO_FATAL_FAILURE(BindPAndHearNothing());
  SimPod* pod = cluster_.FindPod("default", "pod-p");
  pod->pod.annotations["hami.io/vgpu-devices-to-allocate"] = ";";
  pod->pod.annotations[device::kMigAllocations] = "[]";
  PluginAnswers("p");
  a_->api.fault = nullptr;
  a_->binder.Settle();
  EXPECT_EQ(a_->charged(), 1U);
  EXPECT_TRUE(a_->books.Read([](const State& state) { return state.IsBoundTo("p", "n"); }));
  ASSERT_EQ(a_->api.labelled.size(), 1U);
  EXPECT_EQ(a_->api.labelled[0].labels, (device::StringMap{{device::kAssignedNode, "n"}}));
}

TEST_F(BinderSettleTest, GivenSilentServer_WhenNodesAreOwed_ThenOneIsTriedPerRound) {
  for (const char* uid : {"p", "q", "r"}) {
    const std::string node = std::string("o-") + uid;
    cluster_.AddNode(node, sched::testing::Cards(node, 1, 16000), false);
    a_->watch.Drain();
    AddPod(uid);
    ASSERT_TRUE(Place(*a_, uid, node));
    cluster_.RemovePod("default", std::string("pod-") + uid);
    int patches = 0;
    a_->api.fault = [&](const std::string& call) {
      return call == "PATCH node" && ++patches == 2 ? Fault::kRefusedBefore : Fault::kNone;
    };
    EXPECT_FALSE(Bind(*a_, uid, node));
  }
  a_->api.fault = [](const std::string&) { return Fault::kRefusedBefore; };
  const int before = a_->api.calls["PATCH node"];
  a_->binder.Settle();
  EXPECT_EQ(a_->api.calls["PATCH node"] - before, 1);
  a_->api.fault = nullptr;
  a_->binder.Settle();
  for (const char* node : {"o-p", "o-q", "o-r"}) {
    EXPECT_EQ(device::Find(cluster_.nodes[node].annotations, device::kNodeLock), nullptr) << node;
  }
}

TEST_F(BinderSettleTest, GivenBindingGivenUp_WhenItArrivesLate_ThenServerRefusesIt) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  std::function<void()> late;
  a_->api.fault = Once("BIND", Fault::kDelayed);
  a_->api.delay = [&](std::function<void()> write) { late = std::move(write); };
  EXPECT_FALSE(Bind(*a_, "p"));
  EXPECT_EQ(a_->charged(), 0U);
  late();
  EXPECT_EQ(Pod("p").node_name, "");
}

TEST_F(BinderSettleTest, GivenSilentBindingAndNobodyToAsk_ThenChargeStaysUntilSettled) {
  ASSERT_NO_FATAL_FAILURE(BindPAndHearNothing());
  EXPECT_EQ(a_->charged(), 1U);
  EXPECT_FALSE(Place(*a_, "p")) << "not before it is known";
  a_->binder.Settle();
  EXPECT_EQ(a_->charged(), 1U);
  a_->api.fault = nullptr;
  a_->binder.Settle();
  EXPECT_EQ(a_->charged(), 1U);
  EXPECT_TRUE(a_->books.Read([](const State& state) { return state.IsBoundTo("p", "n"); }));
}

TEST_F(BinderSettleTest, GivenALostAnswerOfTheNode_WhenItWasWritten_ThenTheBindGoesOn) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  a_->api.fault = Once("PATCH node", Fault::kAnswerLost);
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(a_->api.calls["PATCH node"], 1);
}

TEST_F(BinderSettleTest, GivenOwedNode_WhenServerIsBack_ThenNodeIsGivenBack) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  cluster_.RemovePod("default", "pod-p");
  int patches = 0;
  a_->api.fault = [&](const std::string& call) {
    return call == "PATCH node" && ++patches == 2 ? Fault::kRefusedBefore : Fault::kNone;
  };
  EXPECT_FALSE(Bind(*a_, "p"));
  EXPECT_NE(Lock(), nullptr);
  a_->binder.Settle();
  EXPECT_EQ(Lock(), nullptr);
}

TEST_F(BinderSettleTest, GivenUnsentBinding_WhenNothingCanBeSent_ThenChargeGoesAtOnce) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  a_->api.fault = [none = false](const std::string& call) mutable {
    none = none || call == "BIND";
    return none ? Fault::kNotSent : Fault::kNone;
  };
  EXPECT_FALSE(Bind(*a_, "p"));
  EXPECT_EQ(a_->charged(), 0U);
  EXPECT_FALSE(a_->binder.Unsettled());
  EXPECT_EQ(a_->api.calls["PATCH pod"], 0) << "there is nothing to revoke";
  a_->api.fault = nullptr;
  a_->binder.Settle();
  EXPECT_EQ(Lock(), nullptr);
}

// Its Binding was denied, and the write that gives the node back is late.
TEST_F(BinderSettleTest, GivenReleaseOnItsWay_WhenPodIsBoundAgain_ThenNewLockStands) {
  AddPod("p");
  AddPod("q");
  BindPAndOweItsNode();
  a_->watch.Drain();
  cluster_.now += 2000;
  a_->api.fault = [&, again = false](const std::string& call) mutable {
    if (call != "PATCH node" || std::exchange(again, true)) return Fault::kNone;
    EXPECT_TRUE(Place(*a_, "p"));
    EXPECT_TRUE(Bind(*a_, "p"));
    return Fault::kNone;
  };
  a_->binder.Settle();
  a_->binder.Settle();
  EXPECT_EQ(Pod("p").node_name, "n");
  ASSERT_NE(Lock(), nullptr);
  EXPECT_NE(device::TextAt(cluster_.nodes["n"].annotations, kBindTicket).find("pod-p"), std::string::npos);
  a_->watch.Drain();
  EXPECT_FALSE(Place(*a_, "q") && Bind(*a_, "q")) << "the plugin works on p";
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(BinderSettleTest, GivenOwedNode_WhenPodWaitsAgain_ThenItIsGivenBackAfterThat) {
  AddPod("p");
  BindPAndOweItsNode();
  ASSERT_NE(Lock(), nullptr);
  // The next bind call finds the node being written, looks again, and is given up before it wrote anything.
  ASSERT_TRUE(Place(*a_, "p"));
  a_->books.Locked([](State& state) { state.NodeAt("n").patching = true; });
  cluster_.yield = [&] { a_->binder.Settle(); };
  EXPECT_FALSE(Bind(*a_, "p"));
  cluster_.yield = nullptr;
  a_->books.Locked([](State& state) { state.NodeAt("n").patching = false; });
  ASSERT_NE(Lock(), nullptr);
  a_->api.fault = nullptr;
  a_->binder.Settle();
  EXPECT_EQ(Lock(), nullptr);
}

TEST_F(BinderSettleTest, GivenLostNodeAnswer_WhenReadFailsToo_ThenItIsGivenBackLater) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  a_->api.fault = [down = false](const std::string& call) mutable {
    if (call == "PATCH node" && !down) return down = true, Fault::kAnswerLost;
    return down ? Fault::kRefusedBefore : Fault::kNone;
  };
  EXPECT_FALSE(Bind(*a_, "p"));
  ASSERT_NE(Lock(), nullptr);
  a_->api.fault = nullptr;
  a_->binder.Settle();
  EXPECT_EQ(Lock(), nullptr);
}

TEST_F(BinderSettleTest, GivenBindingFoundBoundLater_ThenItCountsAsUnknownAndBound) {
  ASSERT_NO_FATAL_FAILURE(BindPAndHearNothing());
  EXPECT_EQ(a_->binder.counters().unknown, 1U);
  EXPECT_EQ(a_->binder.counters().failed, 0U);
  a_->api.fault = nullptr;
  a_->binder.Settle();
  EXPECT_EQ(a_->binder.counters().bound, 1U);
  EXPECT_EQ(a_->binder.counters().failed, 0U);
}

}  // namespace
}  // namespace hami::scheduler
