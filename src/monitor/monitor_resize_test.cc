// SPDX-License-Identifier: Apache-2.0

#include "monitor/testing/world.h"

namespace hami::monitor {
namespace {

TEST_F(MonitorTest, GivenResizeOfContainerWithoutRegion_ThenOnlyWaitingIsShown) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi"}})"));
  fs::create_directories(FolderOf("web", "main"));
  Tick();
  const std::string page = RenderMetrics(*Last(), *gpus_, {true, true}, {0, now_.steady, 0});
  EXPECT_THAT(page,
              testing::ContainsRegex("hami_container_resize_state\\{[^}]*pod=\"web\"[^}]*state=\"waiting\"\\} 1"));
  for (const char* name : {"hami_container_processes{", "hami_container_priority{", "hami_container_region_problem{"}) {
    EXPECT_THAT(page, testing::Not(HasSubstr(name)));
  }
}

TEST_F(MonitorTest, GivenResizeWithinGrant_ThenRegionHoldsItAndItIsToldOnce) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi", "cores": 20}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 2048 * kMiB);
  EXPECT_EQ(Get<std::uint64_t>(path, kSmLimitAt), 20U);
  Tick();
  EXPECT_EQ(Last()->containers.at(0).resize, "applied");
  EXPECT_THAT(events_, ElementsAre("web: Resized: container main: GPU 0: 2 GiB, 20 % of the cores"));
}

TEST_F(MonitorTest, GivenALimitThatATenantSetsBack_ThenItIsSetAgain) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi"}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  RawFile(path).Set<std::uint64_t>(kLimitAt, 4096 * kMiB);
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 2048 * kMiB);
  EXPECT_EQ(events_.size(), 1U) << "a tenant can not make events";
}

TEST_F(MonitorTest, GivenResizeBeyondGrant_ThenRefusedOnceAndNothingIsWritten) {
  AddPod("web", Granted(R"({"main": {"memory": "5Gi"}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 4096 * kMiB);
  EXPECT_EQ(Last()->containers.at(0).resize, "refused");
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_THAT(events_[0], HasSubstr("ResizeRefused: container main: 5 GiB are more than the 4 GiB"));
}

TEST_F(MonitorTest, GivenAnnotationNotUnderstood_ThenItIsRefusedWithReason) {
  AddPod("web", Granted(R"({"mian": {"memory": "2Gi"}})"));
  AddRegion("web", "main");
  Tick();
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_THAT(events_[0], HasSubstr("no container named 'mian'"));
}

TEST_F(MonitorTest, GivenTheAnnotationIsTakenAway_ThenTheGrantIsTheLimitAgain) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi", "cores": 20}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  pods_.pods.clear();
  AddPod("web", Granted());
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 4096 * kMiB);
  EXPECT_EQ(Get<std::uint64_t>(path, kSmLimitAt), 30U);
  Tick();
  EXPECT_EQ(Last()->containers.at(0).resize, "");
}

TEST_F(MonitorTest, GivenAnnotationRemovedWhileDown_ThenNextMonitorRestoresGrant) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi", "cores": 20}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  ASSERT_EQ(Get<std::uint64_t>(path, kLimitAt), 2048 * kMiB);
  monitor_.reset();
  pods_.pods.clear();
  AddPod("web", Granted());
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 4096 * kMiB);
  EXPECT_EQ(Get<std::uint64_t>(path, kSmLimitAt), 30U);
  // From then on it is nobody's business again, for the next monitor, too.
  monitor_.reset();
  RawFile(path).Set<std::uint64_t>(kLimitAt, 1024 * kMiB);
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 1024 * kMiB);
}

TEST_F(MonitorTest, GivenRegionAway_WhenGrantReturns_ThenGrantedAgainOnceThere) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi"}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  pods_.pods.clear();
  AddPod("web", Granted());
  fs::rename(path, path + ".away");  // no program's file for a while
  Tick();
  fs::rename(path + ".away", path);
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 4096 * kMiB);
}

TEST_F(MonitorTest, GivenDirectoryGone_ThenNewOneOfItsNameIsNotTakenForResized) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi"}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  fs::remove_all(FolderOf("web", "main"));
  Tick();
  pods_.pods.clear();
  AddPod("web", Granted());
  AddRegion("web", "main");
  RawFile(path).Set<std::uint64_t>(kLimitAt, 1024 * kMiB);  // the pod asks for less than it was granted
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 1024 * kMiB);
}

TEST_F(MonitorTest, GivenContainerWithoutAnnotation_ThenItsLimitsAreLeftAlone) {
  AddPod("web", Granted());
  const std::string path = AddRegion("web", "main");
  RawFile(path).Set<std::uint64_t>(kLimitAt, 7);
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 7U);
}

}  // namespace
}  // namespace hami::monitor
