// SPDX-License-Identifier: Apache-2.0

#include "monitor/feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace hami::monitor {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kNow = 1'800'000'000;

// A node of tasks whose regions take the orders, as the shell would write them.
class FeedbackTest : public testing::Test {
 protected:
  Task& Add(const std::string& key, std::int32_t priority, std::vector<std::string> devices = {"GPU-0"}) {
    Task task;
    task.key = key;
    task.devices = std::move(devices);
    task.priority = priority;
    return tasks_.emplace(key, task).first->second;
  }
  // What a launching library writes, ours or any that keeps the protocol.
  void Launch(const std::string& key) {
    Task& task = tasks_.at(key);
    if (task.recent_kernel >= 0) task.recent_kernel = 2;
    task.last_kernel_time = static_cast<std::uint64_t>(now_);
  }
  // The end of what was launched long ago.
  void Rest(const std::string& key) { tasks_.at(key).last_kernel_time = 0; }

  void Step() {
    std::vector<Task> tasks;
    for (const auto& [key, task] : tasks_) tasks.push_back(task);
    const std::vector<Orders> orders = feedback_.Step(tasks, now_);
    ASSERT_EQ(orders.size(), tasks.size());
    orders_.clear();
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      Task& task = tasks_.at(tasks[i].key);
      if (orders[i].recent_kernel) task.recent_kernel = *orders[i].recent_kernel;
      if (orders[i].utilization_switch) task.utilization_switch = *orders[i].utilization_switch;
      orders_[tasks[i].key] = orders[i];
    }
    ++now_;
  }
  bool Blocked(const std::string& key) { return tasks_.at(key).recent_kernel < 0; }
  bool Limited(const std::string& key) { return tasks_.at(key).utilization_switch == 1; }

  Feedback feedback_{milliseconds(1000)};
  std::map<std::string, Task> tasks_;
  std::map<std::string, Orders> orders_;
  std::int64_t now_ = kNow;
};

TEST_F(FeedbackTest, GivenSharedGpu_WhenImportantLaunches_ThenOtherStopsSameTick) {
  Add("high", 0);
  Add("low", 1);
  Launch("high");
  Launch("low");
  Step();
  EXPECT_FALSE(Blocked("high"));
  EXPECT_TRUE(Blocked("low"));
  EXPECT_TRUE(orders_["low"].blocked);
}

TEST_F(FeedbackTest, GivenStoppedTask_WhenOtherRests_ThenGoesOnAfterTwoQuietTicks) {
  Add("high", 0);
  Add("low", 1);
  Launch("high");
  Step();
  ASSERT_TRUE(Blocked("low"));
  Rest("high");
  Step();
  EXPECT_TRUE(Blocked("low")) << "one quiet tick may be a pause between two batches";
  Step();
  EXPECT_FALSE(Blocked("low"));
  EXPECT_EQ(tasks_["low"].recent_kernel, 0);
}

TEST_F(FeedbackTest, GivenImportantTaskPausingEveryOtherTick_ThenOtherNotReleased) {
  Add("high", 0);
  Add("low", 1);
  for (int i = 0; i < 10; ++i) {
    if (i % 2 == 0)
      Launch("high");
    else
      Rest("high");
    Step();
    EXPECT_TRUE(Blocked("low")) << i;
  }
}

// V7: since March 2026 HAMi's library neither sets recent_kernel without a limit nor once its limit is switched off, so
// a monitor that looks at recent_kernel alone never sees such a task.
TEST_F(FeedbackTest, GivenNoRecentKernel_WhenLaunchTimeIsTold_ThenItStopsOthers) {
  Task& high = Add("high", 0);
  Add("low", 1);
  high.recent_kernel = 0;
  high.last_kernel_time = kNow;
  Step();
  EXPECT_TRUE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenSilentLibrary_WhenDriverSeesItBusy_ThenItStopsOthers) {
  Task& high = Add("high", 0);
  Add("low", 1);
  high.seen_busy = true;
  Step();
  EXPECT_TRUE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenTwoTasksOfOnePriority_WhenBothRun_ThenBothStayLimited) {
  Task& a = Add("a", 1);
  Task& b = Add("b", 1);
  for (int i = 0; i < 20; ++i) {
    a.last_kernel_time = b.last_kernel_time = static_cast<std::uint64_t>(now_);  // but never recent_kernel: V7 again
    Step();
    EXPECT_TRUE(Limited("a") && Limited("b")) << i;
  }
}

TEST_F(FeedbackTest, GivenTaskAloneOnGpu_ThenItsLimitIsLiftedUntilAnotherBegins) {
  Add("a", 1);
  for (int i = 0; i < 5; ++i) {
    Launch("a");
    Step();
    EXPECT_FALSE(Limited("a"));
  }
  Add("b", 1);
  Launch("a");
  Launch("b");
  Step();
  EXPECT_TRUE(Limited("a"));
  EXPECT_TRUE(Limited("b"));
}

// V7: without its limit a task is as visible, and as easily stopped, as with it.
TEST_F(FeedbackTest, GivenLiftedLimit_WhenMoreImportantBegins_ThenStopsSameTick) {
  Add("low", 1);
  for (int i = 0; i < 5; ++i) {
    Launch("low");
    Step();
  }
  ASSERT_FALSE(Limited("low"));
  Add("high", 0);
  Launch("low");
  Launch("high");
  Step();
  EXPECT_TRUE(Blocked("low"));
  EXPECT_TRUE(Limited("low"));
}

TEST_F(FeedbackTest, GivenRestingTask_WhenEqualRuns_ThenLimitedBeforeFirstLaunch) {
  Add("runs", 1);
  Task& rests = Add("rests", 1);
  rests.utilization_switch = 0;
  Launch("runs");
  Step();
  EXPECT_TRUE(Limited("rests"));
  EXPECT_FALSE(Limited("runs"));
}

TEST_F(FeedbackTest, GivenTasksOnDifferentGpus_ThenTheyDoNotConcernEachOther) {
  Add("high", 0, {"GPU-0"});
  Add("low", 1, {"GPU-1"});
  Launch("high");
  Launch("low");
  Step();
  EXPECT_FALSE(Blocked("low"));
  EXPECT_FALSE(Limited("low"));
}

TEST_F(FeedbackTest, GivenTaskOnTwoGpus_WhenMoreImportantIsOnOne_ThenItStops) {
  Add("high", 0, {"GPU-1"});
  Add("low", 1, {"GPU-0", "GPU-1"});
  Launch("high");
  Step();
  EXPECT_TRUE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenADeviceWithoutAUuid_ThenItIsNobodysDevice) {
  Add("high", 0, {""});
  Add("low", 1, {""});
  Launch("high");
  Step();
  EXPECT_FALSE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenAUuidTwiceInOneRegion_ThenTheTaskIsNotItsOwnCompany) {
  Add("a", 1, {"GPU-0", "GPU-0"});
  Launch("a");
  Step();
  EXPECT_FALSE(Limited("a"));
}

TEST_F(FeedbackTest, GivenNegativePriority_ThenItNeitherStopsNorIsStopped) {
  Add("odd", -3);
  Add("normal", 0);
  Launch("odd");
  Launch("normal");
  Step();
  EXPECT_FALSE(Blocked("odd"));
  EXPECT_FALSE(Blocked("normal"));
}

TEST_F(FeedbackTest, GivenAStoppedTask_ThenWhatItLaunchedBeforeDoesNotStopOthers) {
  Add("high", 0, {"GPU-0"});
  Add("middle", 1, {"GPU-0", "GPU-1"});
  Add("low", 2, {"GPU-1"});
  for (int i = 0; i < 4; ++i) {
    Launch("high");
    if (i == 0) Launch("middle");
    Launch("low");
    Step();
  }
  EXPECT_TRUE(Blocked("middle"));
  EXPECT_FALSE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenATaskThatDisappears_ThenThoseItStoppedGoOnAtOnce) {
  Add("high", 0);
  Add("low", 1);
  Launch("high");
  Step();
  ASSERT_TRUE(Blocked("low"));
  tasks_.erase("high");
  Step();
  EXPECT_FALSE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenEarlierMonitorsStop_WhenNoneOutranks_ThenReleasedAtOnce) {
  Add("low", 1).recent_kernel = -1;
  Step();
  EXPECT_FALSE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenNothingChanges_ThenNothingIsWritten) {
  Add("a", 1);
  Task& b = Add("b", 1);
  b.recent_kernel = 0;
  Step();
  Step();
  Step();
  for (const auto& [key, orders] : orders_) {
    EXPECT_FALSE(orders.recent_kernel) << key;
    EXPECT_FALSE(orders.utilization_switch) << key;
  }
}

TEST_F(FeedbackTest, GivenALaunch_ThenItIsCountedDownToNothingInTwoTicks) {
  Add("a", 1);
  Launch("a");
  Rest("a");
  Step();
  EXPECT_EQ(tasks_["a"].recent_kernel, 1);
  Step();
  EXPECT_EQ(tasks_["a"].recent_kernel, 0);
}

TEST_F(FeedbackTest, GivenWordsNobodyShouldWrite_ThenTheyAreBroughtBackIntoRange) {
  Task& huge = Add("huge", 1);
  huge.recent_kernel = 2'000'000'000;
  Task& deep = Add("deep", 1, {"GPU-7"});
  deep.recent_kernel = -77;
  Task& future = Add("future", 0, {"GPU-0"});
  future.last_kernel_time = UINT64_MAX;
  future.utilization_switch = 44;
  Step();
  EXPECT_EQ(tasks_["huge"].recent_kernel, 1);
  EXPECT_EQ(tasks_["deep"].recent_kernel, 0);
  EXPECT_EQ(tasks_["future"].utilization_switch, 0);
}

TEST_F(FeedbackTest, GivenATimeFarAhead_ThenItIsNoSignOfLife) {
  Add("liar", 0).last_kernel_time = static_cast<std::uint64_t>(kNow) + 3600;
  Add("low", 1);
  Step();
  EXPECT_FALSE(Blocked("low"));
}

TEST_F(FeedbackTest, GivenALongTick_ThenLaunchesOfTheLastTwoTicksCount) {
  Feedback slow{milliseconds(5000)};
  Task high;
  high.key = "high";
  high.devices = {"GPU-0"};
  high.priority = 0;
  Task low = high;
  low.key = "low";
  low.priority = 1;
  high.last_kernel_time = kNow - 10;
  EXPECT_TRUE(slow.Step({high, low}, kNow)[1].blocked);
  high.last_kernel_time = kNow - 11;
  Feedback fresh{milliseconds(5000)};
  EXPECT_FALSE(fresh.Step({high, low}, kNow)[1].blocked);
}

TEST(FeedbackRelease, GivenTheMonitorGoes_ThenNobodyIsLeftStoppedOrUnlimited) {
  Task task;
  task.recent_kernel = -1;
  task.utilization_switch = 0;
  EXPECT_EQ(Feedback::Release(task).recent_kernel, 0);
  EXPECT_EQ(Feedback::Release(task).utilization_switch, 1);
  task.recent_kernel = 2;
  task.utilization_switch = 1;
  EXPECT_FALSE(Feedback::Release(task).recent_kernel);
  EXPECT_FALSE(Feedback::Release(task).utilization_switch);
}

}  // namespace
}  // namespace hami::monitor
