// SPDX-License-Identifier: Apache-2.0

#include "scheduler/testing/binder.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::Fault;
using testing::Scheduler;
using testing::SimApi;
using testing::SimCluster;
using testing::SimPod;
using testing::SimWatch;

TEST_F(BinderTest, GivenAPlacedPod_WhenBound_ThenTwoWritesCarryEverything) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  EXPECT_TRUE(a_->api.calls.empty()) << "placing writes nothing";
  ASSERT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(a_->api.calls, (std::map<std::string, int>{{"BIND", 1}, {"PATCH node", 1}}));
  EXPECT_EQ(Pod("p").node_name, "n");
  EXPECT_EQ(*device::Find(Pod("p").annotations, "hami.io/vgpu-devices-to-allocate"), "n-0,NVIDIA,4000,0:;");
  EXPECT_EQ(*device::Find(Pod("p").annotations, device::kBindPhase), "allocating");
  EXPECT_EQ(*device::Find(Pod("p").annotations, device::kBindTime), "1700000000");
  ASSERT_NE(Lock(), nullptr) << "the plugin recognises the pod by it";
  EXPECT_EQ(*Lock(), "2023-11-14T23:13:20+01:00,default,pod-p");
  EXPECT_EQ(a_->events,
            std::vector<std::string>{"Normal pod-p BindingSucceed: Successfully binding node [n] to default/pod-p"});
  a_->watch.Drain();
  EXPECT_EQ(a_->charged(), 1U);
}

TEST_F(BinderTest, GivenConcurrentNode_WhenAlikePodsBind_ThenNoneWaitsOrLocks) {
  for (const char* uid : {"p", "q", "r"}) {
    AddPod(uid);
    ASSERT_TRUE(Place(*a_, uid, "c"));
    ASSERT_TRUE(Bind(*a_, uid, "c")) << uid;
  }
  EXPECT_EQ(device::Find(cluster_.nodes["c"].annotations, device::kNodeLock), nullptr);
  AddPod("other", 2000);
  ASSERT_TRUE(Place(*a_, "other", "c"));
  const base::Status bound = Bind(*a_, "other", "c");
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("busy with pod"), std::string::npos);
}

TEST_F(BinderTest, GivenLockedNode_WhenPodBinds_ThenWaitFailsAndKeepsNothing) {
  AddPod("p");
  AddPod("q");
  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_TRUE(Place(*a_, "q"));
  ASSERT_TRUE(Bind(*a_, "p"));
  const Millis before = cluster_.now;
  const base::Status bound = Bind(*a_, "q");
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("node lock contention"), std::string::npos);
  EXPECT_GE(cluster_.now - before, 2000);
  EXPECT_EQ(a_->charged(), 1U);
  EXPECT_EQ(a_->events.back(), "Warning pod-q BindingFailed: " + bound.error().message);
  // Its plugin answers, and the next try goes through.
  PluginAnswers("p");
  a_->watch.Drain();
  ASSERT_TRUE(Place(*a_, "q"));
  EXPECT_TRUE(Bind(*a_, "q"));
}

TEST_F(BinderTest, GivenGroupMember_WhenLockIsReleasedLate_ThenItWaitedForIt) {
  LockByPAndPlaceMemberQ();
  const Millis release = cluster_.now + 20'000;
  cluster_.yield = [&] {
    if (cluster_.now < release || Lock() == nullptr) return;
    PluginAnswers("p");
    a_->watch.Drain();
  };
  EXPECT_TRUE(Bind(*a_, "q"));
  EXPECT_GE(cluster_.now, release);
}

TEST_F(BinderTest, GivenGroupMember_WhenLockStays_ThenErrorSaysHowLongItWaited) {
  LockByPAndPlaceMemberQ();
  const Millis begin = cluster_.now;
  const base::Status bound = Bind(*a_, "q");
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().message, "timed out after 28s waiting for node n to be unlocked: node lock contention");
  EXPECT_GE(cluster_.now - begin, 28'000);
}

// Each that waits holds a thread of the server.
TEST_F(BinderTest, GivenAGroupMember_WhenAsManyWaitAsMay_ThenItIsRefusedAtOnce) {
  LockByPAndPlaceMemberQ();
  BinderOptions options = Scheduler::Options("a");
  options.most_waiting = 0;
  Binder binder(
      a_->books, a_->api, cluster_, a_->lease, [](const PodName&, const sched::Event&) {}, options);
  const Millis begin = cluster_.now;
  const base::Status bound = binder.Bind({"default", "pod-q", "q", "n"}, [] { return false; });
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("0 bind calls wait for their nodes already; "), std::string::npos);
  EXPECT_NE(bound.error().message.find("node lock contention"), std::string::npos) << bound.error().message;
  EXPECT_LT(cluster_.now - begin, 1'000);
}

// kube-scheduler asks us for pods that name a resource of ours even if they want none of it, and has us bind them.
TEST_F(BinderTest, GivenFilteredPodAskingNothing_ThenItIsBoundUnmarkedAnywhere) {
  cluster_.AddPod(sched::testing::PodOf("p", sched::testing::Wants(0, 4000)));
  EXPECT_FALSE(Place(*a_, "p"));
  ASSERT_TRUE(Bind(*a_, "p", "elsewhere"));
  EXPECT_EQ(Pod("p").node_name, "elsewhere");
  EXPECT_TRUE(Pod("p").annotations.empty());
  EXPECT_EQ(a_->api.calls, (std::map<std::string, int>{{"BIND", 1}}));
  EXPECT_EQ(a_->events, std::vector<std::string>{
                            "Normal pod-p BindingSucceed: Successfully binding node [elsewhere] to default/pod-p"});
  EXPECT_EQ(a_->charged(), 0U);
}

TEST_F(BinderTest, GivenPodAskingNothing_WhenBindErrorIsTold_ThenFilterRetries) {
  cluster_.AddPod(sched::testing::PodOf("p", {}));
  EXPECT_FALSE(Place(*a_, "p"));
  a_->api.fault = Once("BIND", Fault::kServerError);
  const base::Status bound = Bind(*a_, "p");
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().message, "bind: internal error");
  EXPECT_FALSE(Bind(*a_, "p")) << "each bind call follows a filter";
  EXPECT_FALSE(Place(*a_, "p"));
  EXPECT_TRUE(Bind(*a_, "p"));
}

TEST_F(BinderTest, GivenPodAskingNothing_WhenBindNeverComes_ThenItIsForgotten) {
  cluster_.AddPod(sched::testing::PodOf("p", {}));
  EXPECT_FALSE(Place(*a_, "p"));
  cluster_.now += 301'000;
  a_->keeper.RunOnce();
  EXPECT_FALSE(Bind(*a_, "p"));
}

TEST_F(BinderTest, GivenGoneNode_WhenPodIsBound_ThenErrorNamesItAndChargeGoes) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  a_->books.Locked([](State& state) { state.NodeGone("n"); });
  EXPECT_FALSE(Bind(*a_, "p"));
  EXPECT_EQ(a_->events.back(), "Warning pod-p BindingFailed: failed to get node n");
  EXPECT_EQ(a_->charged(), 0U);
}

TEST_F(BinderTest, GivenRefusedBinding_ThenChargeAndLockAreGivenBack) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  cluster_.RemovePod("default", "pod-p");
  ASSERT_FALSE(Bind(*a_, "p"));
  EXPECT_EQ(a_->charged(), 0U);
  EXPECT_EQ(Lock(), nullptr);
}

TEST_F(BinderTest, GivenRefusedPod_WhenAnotherIsNotBound_ThenItsRoomIsShown) {
  const auto room = [&] { return a_->books.Locked([](State& state) { return state.TakeRoom(); }); };
  AddPod("p", 12'000);
  AddPod("q", 12'000);
  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_FALSE(Place(*a_, "q"));
  a_->api.fault = Once("BIND", Fault::kRefusedBefore);
  ASSERT_FALSE(Bind(*a_, "p"));
  while (a_->charged() != 0) a_->binder.Settle();
  EXPECT_EQ(room(), "n");

  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_FALSE(Place(*a_, "q"));
  ASSERT_FALSE(Bind(*a_, "p", "c")) << "placed elsewhere";
  EXPECT_EQ(room(), "n");
  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_FALSE(Place(*a_, "q"));
  ASSERT_TRUE(Place(*a_, "p")) << "asked once more: no room was made";
  EXPECT_EQ(room(), std::nullopt);
}

TEST_F(BinderTest, GivenFullAnnotations_WhenGrantIsTooMuch_ThenPodIsNotBound) {
  for (const std::size_t others : {std::size_t{261'000}, std::size_t{262'000}}) {
    const std::string uid = std::to_string(others);
    device::Pod pod = sched::testing::PodOf(uid, sched::testing::Wants(1, 16));
    pod.annotations["theirs"] = std::string(others, 'x');
    cluster_.AddPod(pod);
    ASSERT_TRUE(Place(*a_, uid, "c"));
    const base::Status bound = Bind(*a_, uid, "c");
    EXPECT_EQ(bound.has_value(), others == 261'000);
    EXPECT_EQ(Pod(uid).node_name.empty(), others == 262'000);
    if (!bound) {
      EXPECT_NE(bound.error().message.find("more than the API server's 262144"), std::string::npos);
    }
  }
  EXPECT_EQ(a_->charged(), 1U);
}

TEST_F(BinderTest, GivenAChangedPod_WhenBound_ThenItIsReadAgainAndBound) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  cluster_.PodChanged(*cluster_.FindPod("default", "pod-p"));
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(a_->api.calls["BIND"], 2);
}

TEST_F(BinderTest, GivenSameBindTwice_WhenFirstSucceeds_ThenSecondDoesToo) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_TRUE(Bind(*a_, "p"));
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(a_->api.calls["BIND"], 1);
}

TEST_F(BinderTest, GivenRestartBetweenFilterAndBind_ThenOnlyNextTrySucceeds) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  Scheduler restarted(cluster_, "a2");
  const base::Status bound = Bind(restarted, "p");
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("placed again"), std::string::npos);
  ASSERT_TRUE(Place(restarted, "p"));
  EXPECT_TRUE(Bind(restarted, "p"));
}

TEST_F(BinderTest, GivenABindThatNeverComes_WhenItsTimeIsOver_ThenTheChargeGoes) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  cluster_.now += 299'000;
  a_->keeper.RunOnce();
  EXPECT_EQ(a_->charged(), 1U);
  cluster_.now += 1'000;
  a_->keeper.RunOnce();
  EXPECT_EQ(a_->charged(), 0U);
  EXPECT_FALSE(Bind(*a_, "p"));
}

// It came and went while the watch was down: no list shows it afterwards.
TEST_F(BinderTest, GivenPodNoWatchShows_WhenOver_ThenChargeGoesAndNodeIsFree) {
  for (const char* node : {"n", "c"}) {
    AddPod("p");
    ASSERT_TRUE(Place(*a_, "p", node));
    ASSERT_TRUE(Bind(*a_, "p", node));
    cluster_.now += 11'000;
    a_->keeper.RunOnce();
    EXPECT_EQ(a_->charged(), 1U) << "it is there";
    cluster_.RemovePod("default", "pod-p");
    a_->watch.Relist();
    cluster_.now += 11'000;
    a_->keeper.RunOnce();
    EXPECT_EQ(a_->charged(), 0U) << node;
    a_->books.Read(
        [&](const State& state) { EXPECT_TRUE(state.nodes().find(node)->second.in_flight.empty()) << node; });
  }
}

TEST_F(BinderTest, GivenPodTheWatchShows_WhenTimePasses_ThenNobodyAsksForIt) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_TRUE(Bind(*a_, "p"));
  a_->watch.Drain();
  AddPod("q", 4000);
  ASSERT_TRUE(Place(*a_, "q", "c"));
  ASSERT_TRUE(Bind(*a_, "q", "c"));
  a_->watch.Drain();
  const int asked = a_->api.calls["GET pod"];
  cluster_.now += 60'000;
  a_->keeper.RunOnce();
  EXPECT_EQ(a_->api.calls["GET pod"], asked);
}

TEST_F(BinderTest, GivenOlderViewOfPod_WhenItArrivesAfterBind_ThenChargeStays) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  cluster_.PodChanged(*cluster_.FindPod("default", "pod-p"));  // not bound yet
  ASSERT_TRUE(Bind(*a_, "p"));
  a_->watch.Step();
  EXPECT_EQ(a_->charged(), 1U);
  a_->watch.Drain();
  EXPECT_EQ(a_->charged(), 1U);
}

TEST_F(BinderTest, GivenTwoSchedulersOneCard_WhenFirstUnseen_ThenBindLooksFirst) {
  AddPod("p", 10000);
  AddPod("q", 10000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  ASSERT_TRUE(Place(*b_, "q", "c"));
  ASSERT_TRUE(Bind(*a_, "p", "c"));
  const base::Status bound = Bind(*b_, "q", "c");  // B's watch has shown nothing
  ASSERT_FALSE(bound);
  EXPECT_EQ(b_->api.calls["LIST pods"], 1);
  EXPECT_TRUE(cluster_.violations.empty());
  b_->watch.Drain();
  EXPECT_EQ(b_->charged(), 1U) << "P's alone";
}

TEST_F(BinderTest, GivenDeathBeforeBind_WhenPatienceEnds_ThenRevokedAndNodeFree) {
  AddPod("p", 10000);
  AddPod("q", 10000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  std::function<void()> late;
  a_->api.fault = [](const std::string& call) { return call == "PATCH node" ? Fault::kNone : Fault::kDelayed; };
  a_->api.delay = [&](std::function<void()> write) { late = late ? late : std::move(write); };
  EXPECT_FALSE(Bind(*a_, "p", "c"));  // neither its Binding nor its question arrives

  ASSERT_TRUE(Place(*b_, "q", "c"));
  EXPECT_FALSE(Bind(*b_, "q", "c")) << "its Binding may be on its way";
  cluster_.now += 61'000;
  ASSERT_TRUE(Place(*b_, "q", "c"));
  EXPECT_TRUE(Bind(*b_, "q", "c"));
  late();
  EXPECT_EQ(Pod("p").node_name, "");
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(BinderTest, GivenTwoSchedulers_WhenBothBindPod_ThenOneDoesOtherKeepsOff) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_TRUE(Place(*b_, "p", "c"));
  ASSERT_TRUE(Bind(*a_, "p"));
  EXPECT_FALSE(Bind(*b_, "p", "c"));
  EXPECT_EQ(Pod("p").node_name, "n");
  EXPECT_NE(Lock(), nullptr) << "A's lock is A's";
  b_->watch.Drain();
  EXPECT_EQ(b_->charged(), 1U);
}

TEST_F(BinderTest, GivenAnotherBoundOurPod_WhenLearntDuringBind_ThenChargeStays) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  ASSERT_TRUE(Place(*b_, "p"));
  a_->books.Locked([](State& state) { state.FindPending("p")->stage = Pending::Stage::kBinding; });
  ASSERT_TRUE(Bind(*b_, "p"));
  a_->books.Locked([&](State& state) {
    state.PodBorrowed(Pod("p"), cluster_.now / 1000);
    EXPECT_FALSE(state.StillFits("p", cluster_.now / 1000));
    state.Drop("p");
  });
  EXPECT_EQ(a_->charged(), 1U);
}

TEST_F(BinderTest, GivenNodeChangedByOthers_WhenBound_ThenCardsAreChosenAnew) {
  cluster_.AddNode("two", sched::testing::Cards("two", 2, 16000), true);
  a_->watch.Drain();
  AddPod("p", 16000);
  ASSERT_TRUE(Place(*a_, "p", "two"));
  const std::string chosen = a_->books.Read(
      [](const State& state) { return state.pendings().find("p")->second.allocation.grants[0].second[0][0].uuid; });
  device::Pod foreign = sched::testing::PodOf("f", sched::testing::Wants(1, 16000));
  foreign.node_name = "two";
  foreign.annotations = {{device::kAssignedNode, "two"},
                         {"hami.io/vgpu-devices-allocated", chosen + ",NVIDIA,16000,0:;"}};
  cluster_.AddPod(foreign);
  a_->watch.Drain();
  ASSERT_TRUE(Bind(*a_, "p", "two"));
  EXPECT_EQ(a_->binder.counters().asked_again, 1U);
  EXPECT_TRUE(cluster_.violations.empty());
  EXPECT_EQ(Pod("p").annotations.find("hami.io/vgpu-devices-allocated")->second.find(chosen), std::string::npos);
}

TEST_F(BinderTest, GivenNodeMadeAnew_WhenPodOfBeforeIsBound_ThenItGetsNewCard) {
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p"));
  a_->books.Locked([](State& state) { state.NodeGone("n"); });
  cluster_.nodes.erase("n");
  cluster_.AddNode("n", sched::testing::Cards("other", 1, 16000), false);
  a_->watch.Drain();
  ASSERT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(Pod("p").annotations.find("hami.io/vgpu-devices-allocated")->second, "other-0,NVIDIA,4000,0:;");
}

TEST_F(BinderTest, GivenGoneNodes_WhenTheirPodsGoToo_ThenNothingIsKeptOfThem) {
  const auto kept = [&] { return a_->books.Read([](const State& state) { return state.nodes().size(); }); };
  const std::size_t before = kept();
  for (const bool bound : {false, true}) {
    for (const char* phase : {"allocating", "success"}) {
      const std::string node = std::string("gone-") + (bound ? "bound-" : "") + phase;
      device::Pod pod = sched::testing::PodOf(node, sched::testing::Wants(1, 16));
      pod.annotations = {{device::kAssignedNode, node},
                         {device::kBindPhase, phase},
                         {"hami.io/vgpu-devices-allocated", "x,NVIDIA,16,0:;"}};
      if (bound) pod.node_name = node;
      a_->books.Locked([&](State& state) {
        state.PodSeen(pod, cluster_.now / 1000);
        state.PodGone(pod.uid);
      });
      EXPECT_EQ(kept(), before) << node;
    }
  }
  cluster_.AddNode("short", sched::testing::Cards("short", 1, 16000), false);
  a_->watch.Drain();
  AddPod("p");
  ASSERT_TRUE(Place(*a_, "p", "short"));
  ASSERT_TRUE(Bind(*a_, "p", "short"));
  a_->watch.Drain();
  a_->books.Locked([](State& state) {
    state.NodeGone("short");
    state.PodGone("p");
  });
  EXPECT_EQ(kept(), before);
}

// HAMi's scheduler beside ours: what the lock alone protects, in both directions.
TEST_F(BinderTest, GivenLockOfHamisScheduler_ThenOursWaitsUntilItIsReleased) {
  AddPod("theirs");
  AddPod("ours");
  (void)cluster_.PatchNode("n", "",
                           {{device::kNodeLock, FormatLock(cluster_.now - 1000, 8 * 3600, "default", "pod-theirs")}});
  a_->watch.Drain();
  ASSERT_TRUE(Place(*a_, "ours"));
  const base::Status bound = Bind(*a_, "ours");
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().message, "node n has been locked within 5m0s: node lock contention");
  ASSERT_NE(Lock(), nullptr);
  EXPECT_EQ(ParseLock(*Lock())->pod, "pod-theirs") << "not ours to take";
  (void)cluster_.PatchNode("n", "", {{device::kNodeLock, std::nullopt}});
  a_->watch.Drain();
  ASSERT_TRUE(Place(*a_, "ours"));
  EXPECT_TRUE(Bind(*a_, "ours"));
  EXPECT_EQ(ParseLock(*Lock())->pod, "pod-ours") << "which HAMi's scheduler finds taken";
}

// It writes the pod's annotations at filter, long before it binds: they count from then on.
TEST_F(BinderTest, GivenHamisDecision_WhenSeenFirst_ThenNothingIsGivenTwice) {
  device::Pod theirs = sched::testing::PodOf("theirs", sched::testing::Wants(1, 10000));
  theirs.annotations = {{device::kAssignedNode, "n"},
                        {device::kAssignedTime, std::to_string(cluster_.now / 1000)},
                        {"hami.io/vgpu-devices-allocated", "n-0,NVIDIA,10000,0:;"}};
  cluster_.AddPod(theirs);
  AddPod("ours", 10000);
  a_->watch.Drain();
  EXPECT_FALSE(Place(*a_, "ours"));
}

TEST_F(BinderTest, GivenHamisDecision_WhenSeenAfterFilter_ThenOurBindGivesWay) {
  AddPod("ours", 10000);
  ASSERT_TRUE(Place(*a_, "ours"));
  device::Pod theirs = sched::testing::PodOf("theirs", sched::testing::Wants(1, 10000));
  theirs.annotations = {{device::kAssignedNode, "n"},
                        {device::kAssignedTime, std::to_string(cluster_.now / 1000)},
                        {"hami.io/vgpu-devices-allocated", "n-0,NVIDIA,10000,0:;"}};
  cluster_.AddPod(theirs);
  a_->watch.Drain();
  EXPECT_FALSE(Bind(*a_, "ours"));
  EXPECT_EQ(Pod("ours").node_name, "");
  EXPECT_EQ(Lock(), nullptr);
}

TEST_F(BinderTest, GivenABindThatWaits_WhenTheClockIsSet_ThenItWaitsAsLong) {
  for (const Millis set : {-3'600'000, 3'600'000}) {
    const std::string uid = set < 0 ? "back" : "on";
    AddPod("p-" + uid);
    AddPod("q-" + uid, 1000);
    ASSERT_TRUE(Place(*a_, "p-" + uid));
    a_->books.Locked([](State& state) { state.NodeAt("n").patching = true; });
    cluster_.yield = [&] { cluster_.clock_set = set; };
    const Millis begin = cluster_.now;
    EXPECT_FALSE(Bind(*a_, "p-" + uid));
    EXPECT_NEAR(static_cast<double>(cluster_.now - begin), 2000, 100) << uid;
    cluster_.yield = nullptr;
    cluster_.clock_set = 0;
  }
}

TEST_F(BinderTest, GivenAwaitedTicket_WhenClockIsSetBack_ThenPatienceStillEnds) {
  AddPod("p");
  AddPod("q");
  ASSERT_TRUE(Place(*b_, "p"));
  b_->api.fault = [](const std::string& call) {
    return call == "BIND" || call == "PATCH pod" ? Fault::kRefusedBefore : Fault::kNone;
  };
  EXPECT_FALSE(Bind(*b_, "p"));
  a_->watch.Drain();
  ASSERT_TRUE(Place(*a_, "q"));
  EXPECT_FALSE(Bind(*a_, "q"));
  cluster_.clock_set = -3'600'000;
  cluster_.now += 5000;
  ASSERT_TRUE(Place(*a_, "q"));
  EXPECT_TRUE(Bind(*a_, "q"));
}

}  // namespace
}  // namespace hami::scheduler
