// SPDX-License-Identifier: Apache-2.0
//
// A pod that waits for a whole card, and the pod on that card that ends: kube-scheduler asks for the one that waits
// when its own watch shows the end, ours may show it before or after, and the scheduler may be started anew at any
// point. Whatever the order, the pod is placed within the next rounds of the keeper.

#include <algorithm>

#include "device/lists.h"
#include "scheduler/testing/binder.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::Scheduler;

// Steps: F kube-scheduler asks, W our watch shows the end, K a round of the keeper, R another scheduler takes over.
class RoomTest : public BinderTest, public ::testing::WithParamInterface<std::string> {
 protected:
  std::string Shown() { return std::string(device::TextAt(cluster_.nodes["n"].annotations, kRoomMade)); }
  void Ask() { placed_ = placed_ || Place(*scheduler_, "waits"); }
  // A changed node makes kube-scheduler ask for all that wait.
  void Round() {
    cluster_.now += 500;
    const std::string before = Shown();
    scheduler_->keeper.RunOnce();
    if (Shown() != before) Ask();
  }
  void Step(char step) {
    if (step == 'F') Ask();
    if (step == 'W') scheduler_->watch.Drain();
    if (step == 'K') Round();
    if (step != 'R') return;
    scheduler_ = std::make_unique<Scheduler>(cluster_, "next");
    scheduler_->watch.Relist();
    placed_ = false;  // what was decided and not bound is forgotten; kube-scheduler asks when the bind call fails
  }

  std::unique_ptr<Scheduler> scheduler_;
  bool placed_ = false;
};

TEST_P(RoomTest, WhoeverSeesTheEndFirstThePodThatWaitsIsPlaced) {
  scheduler_ = std::move(a_);
  AddPod("ends", 16'000);
  AddPod("waits", 16'000);
  ASSERT_TRUE(Place(*scheduler_, "ends") && Bind(*scheduler_, "ends"));
  PluginAnswers("ends");
  scheduler_->watch.Drain();
  scheduler_->keeper.RunOnce();
  ASSERT_FALSE(Place(*scheduler_, "waits"));
  cluster_.RemovePod("default", "pod-ends");
  for (const char step : GetParam()) Step(step);
  for (int i = 0; i < 4 && !placed_; ++i) {
    scheduler_->watch.Drain();
    Round();
  }
  EXPECT_TRUE(placed_);
}

std::vector<std::string> Orders() {
  std::vector<std::string> orders;
  for (std::string steps : {"FKW", "FFKKW", "FKRW", "FFKRW"}) {
    std::sort(steps.begin(), steps.end());
    do {
      orders.push_back(steps);
    } while (std::next_permutation(steps.begin(), steps.end()));
  }
  return orders;
}

INSTANTIATE_TEST_SUITE_P(Order, RoomTest, ::testing::ValuesIn(Orders()), [](const auto& order) { return order.param; });

}  // namespace
}  // namespace hami::scheduler
