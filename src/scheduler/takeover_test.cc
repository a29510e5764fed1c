// SPDX-License-Identifier: Apache-2.0
//
// What another one left on a node when it died, and how soon it is out of the way.

#include "scheduler/testing/binder.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::Fault;
using testing::Scheduler;

// A leader that is killed between the two writes of a bind. Its successor leads when the lease has run out; from then
// on it is a matter of seconds, for the pod that was on its way and for others.
class DeadWriterTest : public BinderTest {
 protected:
  void DieBetweenTicketAndBinding(const std::string& node) {
    AddPod("p", 4000);
    ASSERT_TRUE(Place(*a_, "p", node));
    a_->api.fault = [](const std::string& call) { return call == "PATCH node" ? Fault::kNone : Fault::kRefusedBefore; };
    ASSERT_FALSE(Bind(*a_, "p", node));
    b_->watch.Drain();
  }
  // As kube-scheduler asks again and again; how long it took.
  Millis UntilBound(const std::string& uid, const std::string& node) {
    const Millis begin = cluster_.now;
    for (int i = 0; i < 200; ++i) {
      b_->watch.Drain();
      if (Place(*b_, uid, node) && Bind(*b_, uid, node)) return cluster_.now - begin;
      cluster_.now += 1'000;
    }
    return -1;
  }
};

TEST_F(DeadWriterTest, GivenDeadLeader_WhenItsPodComesAgain_ThenItIsBoundAtOnce) {
  for (const char* node : {"n", "c"}) {
    DieBetweenTicketAndBinding(node);
    EXPECT_EQ(UntilBound("p", node), 0) << node;
    cluster_.RemovePod("default", "pod-p");
    a_->api.fault = nullptr;
    a_ = std::make_unique<Scheduler>(cluster_, "a2");
  }
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(DeadWriterTest, GivenDeadLeader_WhenOtherPodWantsNode_ThenItHasItInSeconds) {
  for (const char* node : {"n", "c"}) {
    DieBetweenTicketAndBinding(node);
    AddPod("q", 4000);
    const Millis took = UntilBound("q", node);
    EXPECT_GE(took, 0) << node << ": never";
    EXPECT_LE(took, 8'000) << node;
    for (const char* uid : {"p", "q"}) cluster_.RemovePod("default", std::string("pod-") + uid);
    a_ = std::make_unique<Scheduler>(cluster_, "a2");
  }
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(DeadWriterTest, GivenLeaderWithClockAhead_WhenPodWantsNode_ThenOursCounts) {
  cluster_.now += 3'600'000;
  DieBetweenTicketAndBinding("c");
  cluster_.now -= 3'600'000;
  AddPod("q", 4000);
  const Millis took = UntilBound("q", "c");
  EXPECT_GE(took, 0);
  EXPECT_LE(took, 8'000);
}

// What makes it safe not to wait: the dead one's Binding may still be in the network.
TEST_F(DeadWriterTest, GivenDeadLeader_WhenBindingArrives_ThenRefusedAndOursCounts) {
  AddPod("p", 4000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  std::function<void()> late;
  a_->api.fault = [](const std::string& call) { return call == "PATCH node" ? Fault::kNone : Fault::kDelayed; };
  a_->api.delay = [&](std::function<void()> write) { late = late ? late : std::move(write); };
  EXPECT_FALSE(Bind(*a_, "p", "c"));
  b_->watch.Drain();
  ASSERT_TRUE(Place(*b_, "p", "c"));
  b_->api.fault = [&](const std::string& call) {
    if (call == "BIND") late();
    return Fault::kNone;
  };
  EXPECT_TRUE(Bind(*b_, "p", "c"));
  EXPECT_EQ(*device::Find(Pod("p").annotations, kBoundBy), "b");
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(BinderTest, GivenALockWhoseOwnerIsGone_WhenAPodIsBound_ThenItIsTakenOver) {
  (void)cluster_.PatchNode("n", "", {{device::kNodeLock, FormatLock(cluster_.now - 1000, 0, "default", "ghost")}});
  a_->watch.Drain();
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(a_->api.calls["GET pod"], 1);
}

// A scheduler that died between lock and Binding leaves one behind, and its successor may place the pod elsewhere.
TEST_F(BinderTest, GivenLockOwnerElsewhere_WhenPodIsBound_ThenLockIsTakenOver) {
  device::Pod owner = sched::testing::PodOf("owner", sched::testing::Wants(1, 1000));
  owner.node_name = "elsewhere";
  cluster_.AddPod(owner);
  (void)cluster_.PatchNode("n", "", {{device::kNodeLock, FormatLock(cluster_.now - 1000, 0, "default", owner.name)}});
  a_->watch.Drain();
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  EXPECT_TRUE(Bind(*a_, "p"));
}

// A lock says its pod's name and a second, and a pod may come back under its name within one.
TEST_F(BinderTest, GivenLockOwnerGone_WhenSuccessorTakesLikeOne_ThenThatStands) {
  (void)cluster_.PatchNode("n", "", {{device::kNodeLock, FormatLock(cluster_.now, 3600, "default", "pod-p")}});
  a_->watch.Drain();
  b_->watch.Drain();
  AddPod("q");
  ASSERT_TRUE(Place(*b_, "q"));
  bool done = false;
  b_->api.fault = [&](const std::string& call) {
    if (call != "PATCH node" || std::exchange(done, true)) return Fault::kNone;  // b looked for the owner in vain
    AddPod("p");
    EXPECT_TRUE(Place(*a_, "p"));
    EXPECT_TRUE(Bind(*a_, "p"));
    return Fault::kNone;
  };
  EXPECT_FALSE(Bind(*b_, "q"));
  EXPECT_TRUE(cluster_.violations.empty()) << cluster_.violations.front();
}

}  // namespace
}  // namespace hami::scheduler
