// SPDX-License-Identifier: Apache-2.0
//
// CPU and memory of nodes in the books, which the fragmentation policy goes by: what pods request counts where they
// are, from their placement to their end.

#include <gtest/gtest.h>

#include "sched/testing/samples.h"
#include "scheduler/books.h"

namespace hami::scheduler {
namespace {

namespace st = sched::testing;

class BooksHostTest : public ::testing::Test {
 protected:
  explicit BooksHostTest(const char* policy = "fragmentation")
      : vendors_(st::NvidiaOnly()), state_(vendors_, {policy, policy}, 300, {}) {
    for (const char* name : {"a", "b"}) {
      NodeView view;
      view.name = name;
      view.version = "1";
      view.allocatable = {{"cpu", view.name == "a" ? "8" : "64"}, {"memory", "1Gi"}};
      state_.NodeSeen(view);
      state_.CardsSeen(state_.NodeAt(name), 0, st::Cards(name, 2));
    }
  }

  static device::Pod PodOf(const std::string& uid, const char* cpu, int gpus = 1) {
    device::Container container = gpus > 0 ? st::Wants(gpus, 4000) : device::Container();
    container.requests["cpu"] = cpu;
    return st::PodOf(uid, container);
  }
  sched::Decision Place(const device::Pod& pod, std::vector<std::string_view> names = {"a", "b"}) {
    return state_.Place({pod, "1", false}, names, 1000, false);
  }
  std::int64_t FreeCpu(const char* node) { return state_.hosts.Room(node).free.cpu; }

  device::Vendors vendors_;
  State state_;
};

TEST_F(BooksHostTest, APodWithoutAGpuTakesCpuUntilItsEnd) {
  device::Pod pod = PodOf("p", "3", 0);
  pod.node_name = "a";
  state_.PodSeen(pod, 1'700'000'000);
  EXPECT_EQ(FreeCpu("a"), 5000);
  pod.terminated = true;
  state_.PodSeen(pod, 1'700'000'000);
  EXPECT_EQ(FreeCpu("a"), 8000);
  pod.terminated = false;
  state_.PodSeen(pod, 1'700'000'000);
  state_.PodGone("p");
  EXPECT_EQ(FreeCpu("a"), 8000);
}

TEST_F(BooksHostTest, APlacedPodTakesCpuUntilItIsDropped) {
  ASSERT_EQ(Place(PodOf("p", "3"), {"a"}).node, "a");
  EXPECT_EQ(FreeCpu("a"), 5000);
  state_.GiveUp("p");
  EXPECT_EQ(FreeCpu("a"), 8000);
}

TEST_F(BooksHostTest, APlacementThatExpiresGivesItsCpuBack) {
  ASSERT_EQ(Place(PodOf("p", "3"), {"a"}).node, "a");
  state_.Expire(1300);
  EXPECT_EQ(FreeCpu("a"), 8000);
}

TEST_F(BooksHostTest, APodIsNotPutWhereItLeavesCardsWithoutCpu) {
  device::Pod filler = PodOf("filler", "2", 0);
  filler.node_name = "a";
  state_.PodSeen(filler, 1'700'000'000);
  state_.filter.workload().Fix({{{0, {1, 4000, device::kPercentUnset, 0}}, {}, {2000, 0}, 1}});
  // Six of a's CPUs would leave its cards without any; b has more CPUs than its cards have room for such pods.
  EXPECT_EQ(Place(PodOf("p", "6")).node, "b");
}

TEST_F(BooksHostTest, APodThatWaitsIsLearntFromBeforeItsTurn) {
  state_.PodSeen(PodOf("p", "3"), 1'700'000'000);
  ASSERT_EQ(state_.filter.workload().Current().classes.size(), 1u);
  EXPECT_EQ(state_.filter.workload().Current().classes.front().ask.request.memory, 4000);
  EXPECT_EQ(FreeCpu("a"), 8000);
}

class WithoutTheDefault : public BooksHostTest {
 protected:
  WithoutTheDefault() : BooksHostTest("binpack") {}
};

TEST_F(WithoutTheDefault, NothingIsKeptOfHosts) {
  device::Pod pod = PodOf("p", "3", 0);
  pod.node_name = "a";
  state_.PodSeen(pod, 1'700'000'000);
  EXPECT_FALSE(state_.hosts.Room("a").known);
}

}  // namespace
}  // namespace hami::scheduler
