// SPDX-License-Identifier: Apache-2.0

#include "monitor/monitor.h"

#include <sys/resource.h>

#include "monitor/testing/world.h"

namespace hami::monitor {
namespace {

TEST_F(MonitorTest, GivenAppInitAndSidecarRegions_ThenAllContainersAreShown) {
  AddPod("web", Granted());
  for (const char* container : {"main", "proxy", "setup"}) AddRegion("web", container);
  Tick();
  ASSERT_EQ(Last()->containers.size(), 3U);
  EXPECT_EQ(Last()->containers[0].container, "main");
  EXPECT_EQ(Last()->containers[1].container, "proxy");
  EXPECT_EQ(Last()->containers[2].container, "setup");
  EXPECT_EQ(Last()->containers[0].region.devices.at(0).limit, 4096 * kMiB);
}

TEST_F(MonitorTest, GivenADirectoryOfAnUnknownPodOrContainer_ThenItIsNotShown) {
  AddPod("web", Granted());
  AddRegion("web", "ghost");
  AddRegion("other", "main");
  Tick();
  EXPECT_THAT(Last()->containers, IsEmpty());
}

TEST_F(MonitorTest, GivenUnreadableRegion_ThenItsProblemIsShownAndOthersAsEver) {
  AddPod("web", Granted());
  AddRegion("web", "main");
  RawFile(AddRegion("web", "proxy")).Set<std::uint32_t>(4, 9);
  Tick();
  ASSERT_EQ(Last()->containers.size(), 2U);
  EXPECT_EQ(Last()->containers[0].problem, "");
  EXPECT_EQ(Last()->containers[1].problem, "unsupported");
}

TEST_F(MonitorTest, GivenVanishedRegion_ThenContainerGoesAndThoseItStoppedGoOn) {
  AddPod("high", Granted());
  AddPod("low", Granted());
  const std::string high = AddRegion("high", "main", 0);
  const std::string low = AddRegion("low", "main", 1);
  Tick();
  ASSERT_EQ(Get<std::int32_t>(low, kRecentAt), -1);
  fs::remove(high);
  Tick();
  ASSERT_EQ(Last()->containers.size(), 1U);
  EXPECT_EQ(Last()->containers[0].pod, "low");
  EXPECT_EQ(Get<std::int32_t>(low, kRecentAt), 0);
  fs::remove_all(FolderOf("low", "main"));
  Tick();
  EXPECT_THAT(Last()->containers, IsEmpty());
}

// Nothing may be held per container: a node of many would run out of descriptors.
TEST_F(MonitorTest, GivenThousandContainersFewDescriptors_ThenAllShownAllRemoved) {
  for (int i = 0; i < 1000; ++i) {
    const std::string pod = "p" + std::to_string(i);
    AddPod(pod, Granted());
    AddRegion(pod, "main");
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  Tick();
  EXPECT_EQ(Last()->containers.size(), 1000U);
  for (const ContainerPicture& container : Last()->containers) EXPECT_EQ(container.problem, "") << container.pod;
  pods_.pods.clear();
  Tick();
  Tick(seconds(300));
  for (int i = 0; i < 3; ++i) Tick();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(Last()->self.directories_removed, 1000U);
  EXPECT_TRUE(fs::is_empty(temp_ / "containers"));
}

TEST_F(MonitorTest, GivenUnlistableFolder_ThenNothingIsLostAndNextRoundGoesOn) {
  AddPod("web", Granted(R"({"main": {"memory": "2Gi"}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  ASSERT_EQ(Get<std::uint64_t>(path, kLimitAt), 2048 * kMiB);
  fs::rename(temp_ / "containers", temp_ / "away");
  RawFile(temp_ / "containers").Resize(1);
  pods_.pods.clear();
  AddPod("web", Granted());  // and nobody could bring the grant back meanwhile
  Tick(seconds(400));
  EXPECT_EQ(Last()->self.ticks, 2U);
  EXPECT_THAT(Last()->self.folder_problem, HasSubstr("can not open " + temp_.path() + "/containers"));
  fs::remove(temp_ / "containers");
  fs::rename(temp_ / "away", temp_ / "containers");
  Tick();
  EXPECT_EQ(Last()->containers.size(), 1U);
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 4096 * kMiB);
  EXPECT_EQ(Last()->self.folder_problem, "");
}

// C17: a tenant that writes another UUID every second would make a series of each.
TEST_F(MonitorTest, GivenUuidUnknownToSchedulerAndDriver_ThenItIsNotShown) {
  AddPod("web", {});
  AddRegion("web", "main");
  Tick();
  EXPECT_EQ(Last()->containers.at(0).region.devices.at(0).uuid, "unknown");
  GpusPicture gpus;
  gpus.gpus.emplace_back().device.uuid = kUuid;
  gpus_ = std::make_shared<const GpusPicture>(gpus);
  Tick();
  EXPECT_EQ(Last()->containers.at(0).region.devices.at(0).uuid, kUuid);
}

TEST_F(MonitorTest, GivenImportantLaunch_ThenOtherStoppedInRegionAndTimeCounted) {
  AddPod("high", Granted());
  AddPod("low", Granted());
  const std::string high = AddRegion("high", "main", 0);
  const std::string low = AddRegion("low", "main", 1);
  Tick();
  EXPECT_EQ(Get<std::int32_t>(low, kRecentAt), -1);
  EXPECT_EQ(Get<std::int32_t>(low, kSwitchAt), 1);
  EXPECT_EQ(Get<std::int32_t>(high, kRecentAt), 1);
  EXPECT_EQ(Get<std::int32_t>(high, kSwitchAt), 0);
  Tick(seconds(1));
  EXPECT_TRUE(Last()->containers.at(1).blocked);
  Tick(seconds(2));
  Tick(seconds(1));
  EXPECT_EQ(Get<std::int32_t>(low, kRecentAt), 0);
  EXPECT_FALSE(Last()->containers.at(1).blocked);
  EXPECT_DOUBLE_EQ(Last()->containers.at(1).blocked_seconds, 3);
}

TEST_F(MonitorTest, GivenMonitorStops_ThenNoContainerStaysStoppedOrUnlimited) {
  AddPod("high", Granted());
  AddPod("low", Granted());
  const std::string high = AddRegion("high", "main", 0);
  const std::string low = AddRegion("low", "main", 1);
  Tick();
  TheMonitor().Release();
  EXPECT_EQ(Get<std::int32_t>(low, kRecentAt), 0);
  EXPECT_EQ(Get<std::int32_t>(high, kSwitchAt), 1);
}

TEST_F(MonitorTest, GivenFeedbackIsOff_ThenNothingIsWritten) {
  config_.feedback = false;
  AddPod("high", Granted());
  AddPod("low", Granted());
  AddRegion("high", "main", 0);
  const std::string low = AddRegion("low", "main", 1);
  Tick();
  TheMonitor().Release();
  EXPECT_EQ(Get<std::int32_t>(low, kRecentAt), 2);
  EXPECT_EQ(Last()->self.writes, 0U);
}

TEST_F(MonitorTest, GivenTheDriverSeesAProcessOfARegion_ThenItCountsAsBusy) {
  AddPod("high", Granted());
  AddPod("low", Granted());
  const std::string high = AddRegion("high", "main", 0);
  const RawFile file(high);
  file.Set<std::int32_t>(kRecentAt, 0);
  file.Set<std::int32_t>(2'008'896, 1);
  file.Set<std::int32_t>(region::SlotAt(0), 5);
  file.Set<std::int32_t>(region::SlotAt(0) + 4, 4242);
  file.Set<std::int32_t>(region::SlotAt(0) + 1928, 1);
  const std::string low = AddRegion("low", "main", 1);
  RawFile(low).Set<std::int32_t>(kRecentAt, 0);
  Tick();
  EXPECT_EQ(Get<std::int32_t>(low, kRecentAt), 0);
  GpusPicture gpus;
  gpus.answering = true;
  gpus.taken = now_.steady;
  gpus.gpus.emplace_back().processes = {{4242, 1, 90, 0, 0, 0}};
  gpus_ = std::make_shared<const GpusPicture>(gpus);
  Tick();
  EXPECT_EQ(Get<std::int32_t>(low, kRecentAt), -1);
}

// HAMi's library tells the utilisation of its processes in the region, ours does not.
TEST_F(MonitorTest, GivenDriverTellsUtilization_ThenUsedWhereRegionTellsNone) {
  AddPod("ours", Granted());
  AddPod("hamis", Granted());
  for (const char* pod : {"ours", "hamis"}) {
    const RawFile file(AddRegion(pod, "main"));
    file.Set<std::int32_t>(2'008'896, 2);
    for (int i = 0; i < 2; ++i) {
      const std::int32_t pid = (pod[0] == 'o' ? 4242 : 5252) + i;
      file.Set<std::int32_t>(region::SlotAt(i), 5);
      file.Set<std::int32_t>(region::SlotAt(i) + 4, pid);
      file.Set<std::int32_t>(region::SlotAt(i) + 1928, 1);
    }
  }
  RawFile(FolderOf("hamis", "main") + "/r.cache").Set<std::uint64_t>(region::SlotAt(0) + 1160 + 16, 33);
  GpusPicture gpus;
  gpus.answering = true;
  gpus.taken = now_.steady;
  GpuPicture& gpu = gpus.gpus.emplace_back();
  gpu.device.uuid = kUuid;
  gpu.processes = {{4242, 1, 40, 0, 0, 0}, {4243, 1, 5, 0, 0, 0}, {5252, 1, 90, 0, 0, 0}, {9999, 1, 3, 0, 0, 0}};
  gpus.gpus.emplace_back(gpu).device.uuid = "GPU-1";
  gpus_ = std::make_shared<const GpusPicture>(gpus);
  Tick();
  EXPECT_EQ(Last()->containers.at(0).region.devices.at(0).sm_percent, 33U);
  EXPECT_EQ(Last()->containers.at(1).region.devices.at(0).sm_percent, 45U);
  Tick(seconds(60));
  EXPECT_EQ(Last()->containers.at(1).region.devices.at(0).sm_percent, 0U) << "the driver has not answered since";
}

// Zero is what a program looks like that hangs; somebody would be paged for it.
TEST_F(MonitorTest, GivenSilentDriver_ThenUtilizationIsShownOnlyIfRegionTellsIt) {
  AddPod("ours", Granted());
  AddPod("hamis", Granted());
  AddRegion("hamis", "main");
  fs::create_directories(FolderOf("ours", "main"));
  const std::string ours = FolderOf("ours", "main") + "/r.cache";
  region::Config region = region::TestConfig();
  kUuid.copy(region.devices[0].uuid, sizeof region.devices[0].uuid - 1);
  ASSERT_EQ(region::Create(ours.c_str(), region, nullptr), region::Status::kOk);
  const auto shown = [&](const std::string& pod) {
    const std::string page = RenderMetrics(*Last(), *gpus_, {true, true}, {0, now_.steady, 0});
    const std::string series = "{namespace=\"team\",pod=\"" + pod + "\"";
    const std::string old = "{podnamespace=\"team\",podname=\"" + pod + "\"";
    const bool is = page.find("hami_container_device_utilization_ratio" + series) != std::string::npos;
    EXPECT_EQ(page.find("Device_utilization_desc_of_container" + old) != std::string::npos, is);
    return is;
  };
  Tick();
  EXPECT_FALSE(shown("ours")) << "nobody looked yet";
  EXPECT_TRUE(shown("hamis"));
  GpusPicture gpus;
  gpus.answering = true;
  gpus.taken = now_.steady;
  GpuPicture& gpu = gpus.gpus.emplace_back();
  gpu.device.uuid = kUuid;
  gpu.processes.emplace();
  gpus_ = std::make_shared<const GpusPicture>(gpus);
  Tick();
  EXPECT_TRUE(shown("ours"));
  Tick(seconds(15));
  EXPECT_FALSE(shown("ours")) << "no look since";
  gpus.interval = std::chrono::seconds(30);
  gpus_ = std::make_shared<const GpusPicture>(gpus);
  Tick();
  EXPECT_TRUE(shown("ours")) << "there was none to be since";
  gpus.gpus[0].processes.reset();
  gpus_ = std::make_shared<const GpusPicture>(gpus);
  Tick();
  EXPECT_FALSE(shown("ours")) << "a query that failed";
  gpus.gpus[0].processes.emplace();
  gpus.answering = false;
  gpus_ = std::make_shared<const GpusPicture>(gpus);
  Tick();
  EXPECT_FALSE(shown("ours"));
  EXPECT_TRUE(shown("hamis"));
}

TEST_F(MonitorTest, GivenFolderUnlistableForAWhile_ThenBlockedAndToldStillKnown) {
  AddPod("high", Granted());
  AddPod("low", Granted(R"({"main": {"memory": "5Gi"}})"));
  const std::string high = AddRegion("high", "main", 0);
  const std::string low = AddRegion("low", "main", 1);
  AddRegion("gone", "main");
  Tick();
  RawFile(high).Set<std::int32_t>(kRecentAt, 2);
  Tick();
  ASSERT_TRUE(Last()->containers.at(1).blocked);
  ASSERT_EQ(events_.size(), 1U);
  fs::rename(temp_ / "containers", temp_ / "away");
  RawFile(temp_ / "containers").Resize(1);
  Tick();
  fs::remove(temp_ / "containers");
  fs::rename(temp_ / "away", temp_ / "containers");
  Tick();
  EXPECT_TRUE(Last()->containers.at(1).blocked) << "the other has been quiet for one round";
  EXPECT_DOUBLE_EQ(Last()->containers.at(1).blocked_seconds, 3);
  EXPECT_EQ(events_.size(), 1U);
  Tick(seconds(297));
  EXPECT_FALSE(fs::exists(FolderOf("gone", "main"))) << "unwanted for 300 s";
}

TEST_F(MonitorTest, GivenGonePod_ThenDirectoryGoesAfterResyncTimeAndNotSooner) {
  AddPod("web", Granted());
  AddRegion("web", "main");
  Tick();
  pods_.pods.clear();
  Tick();
  Tick(seconds(299));
  EXPECT_TRUE(fs::exists(FolderOf("web", "main")));
  Tick(seconds(1));
  EXPECT_FALSE(fs::exists(FolderOf("web", "main")));
  EXPECT_TRUE(fs::is_empty(temp_ / "containers"));
  EXPECT_EQ(Last()->self.directories_removed, 1U);
}

TEST_F(MonitorTest, GivenClocksSet_ThenNoEarlyRemovalAndBlockedTimeBySteadyClock) {
  AddPod("high", Granted());
  AddPod("low", Granted());
  const std::string high = AddRegion("high", "main", 0);
  AddRegion("low", "main", 1);
  AddRegion("gone", "main");
  Tick();
  ASSERT_TRUE(Last()->containers.at(1).blocked);
  now_.wall += std::chrono::hours(24 * 365);
  RawFile(high).Set<std::int32_t>(kRecentAt, 2);
  Tick();
  EXPECT_DOUBLE_EQ(Last()->containers.at(1).blocked_seconds, 1);
  now_.wall -= std::chrono::hours(2 * 24 * 365);
  RawFile(high).Set<std::int32_t>(kRecentAt, 2);
  Tick();
  EXPECT_DOUBLE_EQ(Last()->containers.at(1).blocked_seconds, 2);
  EXPECT_TRUE(Last()->containers.at(1).blocked);
  EXPECT_TRUE(fs::exists(FolderOf("gone", "main")));
}

TEST_F(MonitorTest, GivenPodsThatAreNotKnownYet_ThenNothingIsRemoved) {
  AddRegion("web", "main");
  pods_.known = false;
  Tick();
  Tick(seconds(3600));
  Tick(seconds(3600));
  EXPECT_TRUE(fs::exists(FolderOf("web", "main")));
}

TEST_F(MonitorTest, GivenGonePodWithLivingProcess_ThenDirectoryStaysUntilItDies) {
  fs::create_directories(FolderOf("web", "main"));
  const std::string path = FolderOf("web", "main") + "/r.cache";
  const region::Signal ready, go;
  const pid_t pid = region::Spawn([&] {
    static region::Attachment attachment;
    if (region::Attach(&attachment, path.c_str(), region::TestConfig()) != region::Status::kOk) return 1;
    ready.Raise();
    go.Await();
    return 0;
  });
  ready.Await();
  Tick();
  Tick(seconds(86'400));
  EXPECT_TRUE(fs::exists(path));
  go.Raise();
  region::Join(pid);
  Tick();
  EXPECT_FALSE(fs::exists(FolderOf("web", "main")));
}

TEST_F(MonitorTest, GivenFilesThatAreNobodys_ThenTheyStay) {
  fs::create_directories(temp_ / "containers/notes");
  RawFile(temp_ / "containers/uid-x_main").Resize(1);
  Tick();
  Tick(seconds(86'400));
  Tick(seconds(86'400));
  EXPECT_TRUE(fs::exists(temp_ / "containers/notes"));
  EXPECT_TRUE(fs::exists(temp_ / "containers/uid-x_main"));
}

TEST_F(MonitorTest, GivenAMigPod_ThenItsInstancesAreShownAlthoughItHasNoRegion) {
  AddPod(
      "mig",
      {{"hami.io/vgpu-mig-allocations",
        R"([{"containerIndex":2,"deviceIndex":0,"gpuUUID":"GPU-0","profile":"1g.5gb","placement":{"start":0,"size":1},"migUUID":"MIG-1","gpuInstanceID":7,"computeInstanceID":0},)"
        R"({"containerIndex":9,"deviceIndex":0,"gpuUUID":"GPU-0","profile":"1g.5gb","placement":{"start":1,"size":1},"migUUID":"MIG-2","gpuInstanceID":8,"computeInstanceID":0},)"
        R"({"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-0","profile":"1g.5gb","placement":{"start":2,"size":1}}])"}});
  Tick();
  ASSERT_EQ(Last()->migs.size(), 1U) << "realised ones of containers that exist";
  EXPECT_EQ(Last()->migs[0].container, "main");
  EXPECT_EQ(Last()->migs[0].reservation.mig_uuid, "MIG-1");
}

}  // namespace
}  // namespace hami::monitor
