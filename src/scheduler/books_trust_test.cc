// SPDX-License-Identifier: Apache-2.0
//
// What becomes of annotations that tenants write, before and after the scheduler is started anew, with a key for seals
// and without.

#include <gtest/gtest.h>

#include "scheduler/testing/binder.h"
#include "scheduler/testing/hostile.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::Fault;
using testing::Scheduler;

constexpr const char* kAllocated = "hami.io/vgpu-devices-allocated";
constexpr const char* kToAllocate = "hami.io/vgpu-devices-to-allocate";

class BooksTrustTest : public BinderTest {
 protected:
  BooksTrustTest() { a_ = std::make_unique<Scheduler>(cluster_, "a", false, keys_.get()); }

  void RunPod(const std::string& uid, device::MiB memory, const std::string& node = "c") {
    AddPod(uid, memory);
    a_->watch.Drain();
    ASSERT_TRUE(Place(*a_, uid, node));
    ASSERT_TRUE(Bind(*a_, uid, node));
    PluginAnswers(uid);
    a_->watch.Drain();
  }
  void Write(const std::string& uid, const Changes& changes) {
    ASSERT_TRUE(cluster_.PatchPod("default", "pod-" + uid, uid, changes));
    a_->watch.Drain();
  }
  void StartAnew(bool keyed) { a_ = std::make_unique<Scheduler>(cluster_, "a", false, keyed ? keys_.get() : nullptr); }
  device::MiB Held(const std::string& node = "c") {
    return a_->books.Read([&](const State& state) -> device::MiB {
      const sched::NodeId id = state.ledger.Find(node);
      return id == sched::kNoNode ? -1 : state.ledger.node(id).used()[0].memory;
    });
  }
  bool Open(const std::string& node = "c") {
    return a_->books.Read([&](const State& state) { return state.ledger.node(state.ledger.Find(node)).readable(); });
  }
  void AddStranger(const device::Pod& base, const std::string& node, const device::StringMap& annotations) {
    device::Pod pod = base;
    pod.node_name = node;
    pod.annotations = annotations;
    cluster_.AddPod(pod);
    a_->watch.Drain();
  }

  const std::unique_ptr<device::GrantKeyring> keys_ = testing::TestKeys();
};

TEST_F(BooksTrustTest, ABindingCarriesASealThatProvesIt) {
  RunPod("p", 9000);
  const auto keys = keys_->Get();
  EXPECT_TRUE(device::IsSealed(keys.get(), "p", "c", Pod("p").annotations));
  EXPECT_FALSE(device::IsSealed(keys.get(), "q", "c", Pod("p").annotations));
}

TEST_F(BooksTrustTest, WithoutAKeyNothingIsSealed) {
  StartAnew(false);
  RunPod("p", 9000);
  EXPECT_EQ(device::Find(Pod("p").annotations, device::kGrantSeal), nullptr);
}

TEST_F(BooksTrustTest, TheSealIsOfThePodAsItIsWhenItIsBound) {
  AddPod("p", 9000);
  a_->watch.Drain();
  ASSERT_TRUE(Place(*a_, "p", "c"));
  // Somebody writes another vendor's result on it before the Binding arrives, which is then posted again.
  Write("p", {{"hami.io/dcu-devices-allocated", "DCU-0,DCU,1,1:;"}});
  ASSERT_TRUE(Bind(*a_, "p", "c"));
  EXPECT_TRUE(device::IsSealed(keys_->Get().get(), "p", "c", Pod("p").annotations));
}

TEST_F(BooksTrustTest, ARunningPodGivesNothingBack) {
  for (const bool keyed : {true, false}) {
    StartAnew(keyed);
    const std::string uid = keyed ? "p" : "q";
    const device::MiB before = Held();
    RunPod(uid, 7000);
    for (const Changes& changes :
         {Changes{{kAllocated, std::nullopt}}, Changes{{kAllocated, ""}}, Changes{{kAllocated, "c-0,NVIDIA,1,0:;"}},
          Changes{{kAllocated, "nonsense"}}, Changes{{device::kAssignedNode, "n"}},
          Changes{{device::kAssignedNode, std::nullopt}, {device::kGrantSeal, std::nullopt}}}) {
      Write(uid, changes);
      EXPECT_EQ(Held(), before + 7000);
    }
    Write(uid, {{kAllocated, "c-0,NVIDIA,7000,0:;"}, {device::kAssignedNode, "c"}});
  }
}

TEST_F(BooksTrustTest, APodThatAsksForNothingCostsNothing) {
  AddStranger(sched::testing::PodOf("p", {}), "c",
              {{device::kAssignedNode, "c"}, {kAllocated, "c-0,NVIDIA,16000,100:;"}});
  AddStranger(sched::testing::PodOf("q", {}), "c", {{device::kAssignedNode, "c"}, {kAllocated, "nonsense"}});
  AddStranger(sched::testing::PodOf("r", {}), "", {{device::kAssignedNode, "c"}, {kAllocated, "nonsense"}});
  StartAnew(false);
  EXPECT_EQ(Held(), 0);
  RunPod("s", 16000);
}

TEST_F(BooksTrustTest, WithAKeyForgedGrantsCountNothing) {
  RunPod("p", 9000);
  // Another scheduler's pod with a grant of its own, one with a copied seal.
  device::StringMap forged = Pod("p").annotations;
  AddStranger(sched::testing::PodOf("copy", sched::testing::Wants(1, 9000)), "c", forged);
  forged[kAllocated] = forged[kToAllocate] = "c-0,NVIDIA,16000,100:;";
  AddStranger(sched::testing::PodOf("more", sched::testing::Wants(1, 16000)), "c", forged);
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(Held(), 9000);
    EXPECT_FALSE(Open()) << "nobody can tell what they hold";
    StartAnew(true);
  }
  for (const char* name : {"pod-copy", "pod-more"}) {  // the plugin refuses them
    testing::SimPod* pod = cluster_.FindPod("default", name);
    pod->pod.terminated = true;
    cluster_.PodChanged(*pod);
  }
  a_->watch.Drain();
  EXPECT_TRUE(Open());
  EXPECT_EQ(Held(), 9000);
}

TEST_F(BooksTrustTest, WithoutAKeyForgedGrantsCountUpToTheirRequest) {
  StartAnew(false);
  AddStranger(sched::testing::PodOf("more", sched::testing::Wants(1, 3000)), "c",
              {{device::kAssignedNode, "c"}, {kAllocated, "c-0,NVIDIA,16000,100:;"}});
  EXPECT_EQ(Held(), 3000);
}

TEST_F(BooksTrustTest, ASealedGrantSurvivesARestartWhateverNodeIsWritten) {
  RunPod("p", 9000);
  Write("p", {{device::kAssignedNode, "n"}});
  StartAnew(true);
  EXPECT_EQ(Held(), 9000);
  Write("p", {{device::kAssignedNode, std::nullopt}});
  StartAnew(true);
  EXPECT_EQ(Held(), 9000);
}

TEST_F(BooksTrustTest, ATextThatWasTakenOffCountsAgainWhenItIsWrittenAnew) {
  RunPod("p", 9000);
  const device::StringMap good = Pod("p").annotations;
  Write("p", {{kAllocated, std::nullopt}, {device::kAssignedNode, std::nullopt}});
  StartAnew(true);
  EXPECT_FALSE(Open()) << "nobody is left to know what it holds";
  Write("p", {{kAllocated, good.at(kAllocated)}});
  EXPECT_TRUE(Open());
  EXPECT_EQ(Held(), 9000);
}

// What a tenant writes as soon as its pod is bound, and the watch shows at once with the binding.
TEST_F(BooksTrustTest, WhatIsWrittenBeforeTheAnswerComesChangesNothing) {
  AddPod("p", 9000);
  a_->watch.Drain();
  ASSERT_TRUE(Place(*a_, "p", "c"));
  a_->api.fault = Once("BIND", Fault::kAnswerLost);
  cluster_.yield = [&] {
    testing::SimPod* pod = cluster_.FindPod("default", "pod-p");
    if (pod->pod.node_name.empty() || pod->pod.annotations[kAllocated] == "") return;
    pod->pod.annotations[kAllocated] = "";
    cluster_.PodChanged(*pod);
    a_->watch.Relist();
  };
  (void)Bind(*a_, "p", "c");
  cluster_.yield = nullptr;
  EXPECT_EQ(Held(), 9000);
}

TEST_F(BooksTrustTest, APhaseThatIsWrittenBackHoldsNobodyUp) {
  RunPod("p", 4000);
  Write("p",
        {{device::kBindPhase, device::kPhaseAllocating}, {device::kBindTime, std::to_string(cluster_.now / 1000)}});
  a_->books.Locked([](State& state) { EXPECT_TRUE(state.NodeAt("c").in_flight.empty()); });
}

}  // namespace
}  // namespace hami::scheduler
