// SPDX-License-Identifier: Apache-2.0
//
// What the books keep while calls are under way, and until it is known what became of them.

#include "scheduler/books.h"

#include "scheduler/testing/binder.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::Fault;

class BooksTest : public BinderTest {
 protected:
  // The clock is set forward, or a call takes that long.
  void MinutesPass() {
    cluster_.now += 400'000;
    const auto yield = std::exchange(cluster_.yield, nullptr);
    a_->keeper.RunOnce();
    cluster_.yield = yield;
  }
  bool IsBound(const std::string& uid, const std::string& node = "n") {
    return a_->books.Read([&](const State& state) { return state.IsBoundTo(uid, node); });
  }
  // Its Binding is posted, and neither that is answered nor any question.
  void BindUnanswered(const std::string& uid, const std::string& node, Fault fault) {
    AddPod(uid, 12'000);
    ASSERT_TRUE(Place(*a_, uid, node));
    a_->api.fault = [fault](const std::string& call) {
      if (call == "BIND") return fault;
      return call == "PATCH pod" ? Fault::kRefusedBefore : Fault::kNone;
    };
    ASSERT_FALSE(Bind(*a_, uid, node));
    ASSERT_TRUE(a_->binder.Unsettled());
  }
};

TEST_F(BooksTest, GivenBindingOnItsWay_WhenChargeTimePasses_ThenItsShareStays) {
  AddPod("p", 12'000);
  AddPod("q", 12'000);
  ASSERT_TRUE(Place(*a_, "p"));
  a_->api.fault = [&](const std::string& call) {
    if (call != "BIND") return Fault::kNone;
    MinutesPass();
    EXPECT_EQ(a_->charged(), 1U);
    EXPECT_FALSE(Place(*a_, "q"));
    return Fault::kNone;
  };
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_TRUE(IsBound("p"));
}

// Versions begin anew from the backup's, and everything after that is told with them.
TEST_F(BooksTest, GivenRestoredServer_WhenNodesAreOlder_ThenTheyAreBelieved) {
  const auto view_of = [&](const char* version) {
    NodeView view = cluster_.nodes["n"];
    view.version = version;
    return view;
  };
  a_->books.Locked([&](State& state) {
    EXPECT_TRUE(state.NodeSeen(view_of("500000")));
    EXPECT_FALSE(state.NodeSeen(view_of("20"))) << "what comes late changes nothing";
    EXPECT_TRUE(state.NodeSeen(view_of("20"), true));
    EXPECT_TRUE(state.NodeSeen(view_of("21")));
    EXPECT_FALSE(state.KnowsNode("n", "22"));
  });
}

TEST_F(BooksTest, GivenBindingDecidedAnew_WhenChargeTimePasses_ThenChargeStays) {
  AddPod("p", 12'000);
  ASSERT_TRUE(Place(*a_, "p"));
  device::Pod other = sched::testing::PodOf("other", sched::testing::Wants(1, 100));
  other.annotations = {{device::kAssignedNode, "n"}, {"hami.io/vgpu-devices-allocated", "n-0,NVIDIA,100,0:;"}};
  other.node_name = "n";
  cluster_.AddPod(other);
  a_->watch.Drain();
  a_->api.fault = [&](const std::string& call) {
    if (call == "BIND") MinutesPass();
    return Fault::kNone;
  };
  EXPECT_TRUE(Bind(*a_, "p"));
  EXPECT_EQ(a_->binder.counters().asked_again, 1U);
  EXPECT_TRUE(IsBound("p"));
}

TEST_F(BooksTest, GivenBindWaitingForNode_WhenChargeTimePasses_ThenChargeStays) {
  LockByPAndPlaceMemberQ();
  int waited = 0;
  cluster_.yield = [&] {
    if (waited++ > 0) return;
    MinutesPass();
    EXPECT_EQ(a_->charged(), 2U);
  };
  (void)Bind(*a_, "q");
  EXPECT_GT(waited, 0);
}

TEST_F(BooksTest, GivenNobodyToAsk_WhenChargeTimePasses_ThenItAndQuestionStay) {
  for (const Fault fault : {Fault::kAnswerLost, Fault::kRefusedBefore}) {
    const std::string uid = fault == Fault::kAnswerLost ? "bound" : "lost";
    const std::string node = fault == Fault::kAnswerLost ? "c" : "n";
    BindUnanswered(uid, node, fault);
    const std::size_t charged = a_->charged();
    MinutesPass();
    EXPECT_EQ(a_->charged(), charged) << uid;
    EXPECT_TRUE(a_->binder.Unsettled()) << "the lease is not given away meanwhile";
    AddPod("next-" + uid, 12'000);
    EXPECT_FALSE(Place(*a_, "next-" + uid, node));
    a_->api.fault = nullptr;
    a_->keeper.RunOnce();
    EXPECT_FALSE(a_->binder.Unsettled());
    EXPECT_EQ(IsBound(uid, node), fault == Fault::kAnswerLost);
    EXPECT_EQ(a_->charged(), charged - (fault == Fault::kAnswerLost ? 0 : 1));
  }
  EXPECT_EQ(Lock(), nullptr);
}

TEST_F(BooksTest, GivenDeniedPod_WhenOthersAreUnknown_ThenTheyAreStillSettled) {
  BindUnanswered("p", "n", Fault::kAnswerLost);
  BindUnanswered("q", "c", Fault::kAnswerLost);
  a_->api.fault = Once("PATCH pod", Fault::kDenied);
  a_->binder.Settle();
  EXPECT_NE(IsBound("p"), IsBound("q", "c"));
  EXPECT_TRUE(a_->binder.Unsettled());
  a_->binder.Settle();
  EXPECT_TRUE(IsBound("p") && IsBound("q", "c"));
  EXPECT_FALSE(a_->binder.Unsettled());
}

TEST_F(BooksTest, GivenNobodyToAsk_WhenSeveralAreUnknown_ThenRoundEndsAtFirst) {
  BindUnanswered("p", "n", Fault::kAnswerLost);
  BindUnanswered("q", "c", Fault::kAnswerLost);
  const int before = a_->api.calls["PATCH pod"];
  a_->binder.Settle();
  EXPECT_EQ(a_->api.calls["PATCH pod"], before + 1);
}

TEST_F(BooksTest, GivenEndedBorrowedPods_WhenOneIsDenied_ThenTheOtherGoes) {
  for (const char* node : {"n", "c"}) {
    AddPod(node);
    ASSERT_TRUE(Place(*a_, node, node));
    ASSERT_TRUE(Bind(*a_, node, node));
    cluster_.RemovePod("default", std::string("pod-") + node);
  }
  cluster_.now += 11'000;
  a_->api.fault = Once("GET pod", Fault::kDenied);
  a_->binder.Settle();
  EXPECT_EQ(a_->charged(), 1U);
  a_->binder.Settle();
  EXPECT_EQ(a_->charged(), 0U);
}

TEST_F(BooksTest, GivenNodeWrite_WhenAnsweredAfterNodesEnd_ThenNodeStaysGone) {
  const auto exists = [&] {
    return a_->books.Read([](const State& state) {
      const auto found = state.nodes().find("n");
      return found != state.nodes().end() && found->second.exists;
    });
  };
  for (const bool release : {false, true}) {
    AddPod(release ? "p" : "q");
    ASSERT_TRUE(Place(*a_, release ? "p" : "q"));
    if (release) a_->api.fault = Once("BIND", Fault::kRefusedBefore);
    bool locked = false;
    cluster_.yield = [&] {
      if (exists() && (release ? locked && Lock() == nullptr : Lock() != nullptr)) {
        a_->books.Locked([](State& state) { state.NodeGone("n"); });
      }
      locked = locked || Lock() != nullptr;
    };
    EXPECT_FALSE(Bind(*a_, release ? "p" : "q"));
    EXPECT_FALSE(exists()) << release;
    EXPECT_EQ(a_->charged(), 0U);
    cluster_.yield = nullptr;
    cluster_.nodes["n"].annotations.erase(device::kNodeLock);
    cluster_.nodes["n"].annotations.erase(kBindTicket);
    cluster_.NodeChanged(cluster_.nodes["n"]);
    a_->watch.Relist();
  }
}

TEST_F(BooksTest, GivenFencingPod_WhenItMoves_ThenRoomIsShownWhereItWas) {
  // Another scheduler placed it. (A text that cannot be read would close nothing: the pod runs nowhere yet.)
  device::Pod fence = sched::testing::PodOf("fence", sched::testing::Wants(1, 16000));
  fence.annotations = {{device::kAssignedNode, "n"}, {"hami.io/vgpu-devices-allocated", "n-0,NVIDIA,16000,0:;"}};
  AddPod("p");
  a_->books.Locked([&](State& state) { state.PodSeen(fence, cluster_.now / 1000); });
  ASSERT_FALSE(Place(*a_, "p"));
  a_->books.Locked([&](State& state) {
    fence.annotations[device::kAssignedNode] = "c";
    state.PodSeen(fence, cluster_.now / 1000);
    EXPECT_EQ(state.TakeRoom(), "n");
  });
}

TEST_F(BooksTest, HowLongAPluginIsWaitedForIsByOurOwnClock) {
  const device::UnixSeconds begin = cluster_.now / 1000;
  AddPod("p");
  device::Pod pod = Pod("p");
  pod.node_name = "n";
  for (const char* time : {"0", "1700000000", "1700009999", "9223372036854775807", "-5"}) {
    pod.annotations = {{device::kAssignedNode, "n"},
                       {device::kBindPhase, device::kPhaseAllocating},
                       {device::kBindTime, time},
                       {"hami.io/vgpu-devices-allocated", "n-0,NVIDIA,1000,0:;"}};
    a_->books.Locked([&](State& state) {
      state.PodSeen(pod, cluster_.now / 1000);
      EXPECT_EQ(state.NodeAt("n").in_flight.at("p").since, begin) << time;
    });
    cluster_.now += 7000;
  }
}

TEST_F(BooksTest, APhaseThatWentAwayAndComesBackHoldsNobodyUp) {
  AddPod("p");
  device::Pod pod = Pod("p");
  pod.node_name = "n";
  pod.annotations = {{device::kAssignedNode, "n"}, {"hami.io/vgpu-devices-allocated", "n-0,NVIDIA,1000,0:;"}};
  a_->books.Locked([&](State& state) {
    for (const bool allocating : {true, false, true}) {
      pod.annotations[device::kBindPhase] = allocating ? device::kPhaseAllocating : "";
      state.PodSeen(pod, cluster_.now / 1000);
    }
    EXPECT_TRUE(state.NodeAt("n").in_flight.empty());
  });
}

TEST_F(BooksTest, GivenShownPods_WhenReadPastTheWatch_ThenTheyAreNotAskedFor) {
  AddPod("p");
  AddPod("q");
  ASSERT_TRUE(Place(*a_, "p") && Bind(*a_, "p"));
  b_->watch.Drain();
  PluginAnswers("p");
  a_->watch.Drain();
  ASSERT_TRUE(Place(*a_, "q") && Bind(*a_, "q"));  // not shown to b
  const auto borrowed = [&](testing::Scheduler& scheduler) {
    return scheduler.books.Locked([&](State& state) {
      state.PodBorrowed(Pod("p"), cluster_.now / 1000);
      state.PodBorrowed(Pod("q"), cluster_.now / 1000);
      state.PodBorrowed(Pod("q"), cluster_.now / 1000);
      std::vector<std::string> uids;
      for (const auto& [uid, pod] : state.borrowed()) uids.push_back(uid);
      return uids;
    });
  };
  EXPECT_EQ(borrowed(*b_), std::vector<std::string>{"q"});
  EXPECT_EQ(borrowed(*a_), std::vector<std::string>{"q"}) << "bound here, and the watch has not shown that";
  a_->watch.Drain();
  EXPECT_TRUE(borrowed(*a_).empty());
}

TEST_F(BooksTest, GivenRoomThatCouldNotBeShown_WhenServerIsBack_ThenItIsShown) {
  AddPod("p", 16'000);
  AddPod("q", 16'000);
  ASSERT_TRUE(Place(*a_, "p") && Bind(*a_, "p"));
  a_->watch.Drain();
  ASSERT_FALSE(Place(*a_, "q"));
  cluster_.RemovePod("default", "pod-p");
  a_->watch.Drain();
  a_->api.fault = Once("PATCH node", Fault::kServerError);
  a_->keeper.RunOnce();
  const int before = a_->api.calls["PATCH node"];
  a_->keeper.RunOnce();
  EXPECT_EQ(a_->api.calls["PATCH node"], before) << "not every round";
  for (int i = 0; i < 20; ++i) {
    cluster_.now += 500;
    a_->keeper.RunOnce();
  }
  EXPECT_EQ(a_->api.calls["PATCH node"], before + 1) << "once it is shown, it is";
  EXPECT_FALSE(device::TextAt(cluster_.nodes["n"].annotations, kRoomMade).empty());
}

// Another scheduler's pod took what was decided.
TEST_F(BooksTest, GivenRefusedPod_WhenBindGivesUpWhatFitsNoMore_ThenItIsRoom) {
  AddPod("big", 12'000);
  AddPod("other", 8000);
  AddPod("small", 8000);
  ASSERT_TRUE(Place(*a_, "big"));
  ASSERT_TRUE(Place(*b_, "other") && Bind(*b_, "other"));
  PluginAnswers("other");
  ASSERT_FALSE(Place(*a_, "small"));
  a_->watch.Drain();
  EXPECT_FALSE(Bind(*a_, "big"));
  EXPECT_EQ(a_->books.Locked([](State& state) { return state.TakeRoom(); }), "n");
}

TEST_F(BooksTest, GivenRefusedPod_WhenPlacedOneMovesOrFitsNoMore_ThenItIsRoom) {
  const auto room = [&] { return a_->books.Locked([](State& state) { return state.TakeRoom(); }); };
  AddPod("p", 16'000);
  AddPod("q", 16'000);
  ASSERT_TRUE(Place(*a_, "p", "n"));
  EXPECT_FALSE(Place(*a_, "q", "n"));
  ASSERT_TRUE(Place(*a_, "p", "n"));
  EXPECT_EQ(room(), std::nullopt) << "it came back to where it was";
  ASSERT_TRUE(Place(*a_, "p", "c"));
  EXPECT_EQ(room(), "n");
  ASSERT_TRUE(Place(*a_, "q", "n"));
  AddPod("r", 16'000);
  EXPECT_FALSE(Place(*a_, "r", "n"));
  EXPECT_FALSE(Place(*a_, "q", "c"));
  EXPECT_EQ(room(), "n");
}

}  // namespace
}  // namespace hami::scheduler
