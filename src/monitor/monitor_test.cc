// SPDX-License-Identifier: Apache-2.0

#include "monitor/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "monitor/metrics.h"
#include "region/region_test_util.h"

namespace hami::monitor {
namespace {

namespace fs = std::filesystem;
using region::MakeHamiFile;
using region::RawFile;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kSwitchAt = 2'008'900;
constexpr std::int64_t kRecentAt = 2'008'904;
constexpr std::int64_t kPriorityAt = 2'008'908;
constexpr std::int64_t kLimitAt = 1600;
constexpr std::int64_t kSmLimitAt = 1728;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
const std::string kUuid = "GPU-0";

class MonitorTest : public testing::Test {
 protected:
  MonitorTest() { fs::create_directories(temp_ / "containers"); }

  Monitor::Outside Outside() {
    return {[this] { return pods_; }, [this] { return gpus_; },
            [this](const kube::Pod& pod, kube::EventType, std::string_view reason, std::string_view message) {
              events_.push_back(pod.metadata.name + ": " + std::string(reason) + ": " + std::string(message));
            }};
  }
  Monitor& TheMonitor() {
    if (!monitor_) monitor_ = std::make_unique<Monitor>(config_, Outside());
    return *monitor_;
  }
  void Tick(seconds after = seconds(1)) {
    now_.wall += after;
    now_.steady += after;
    TheMonitor().Tick(now_);
  }
  std::shared_ptr<const Picture> Last() { return TheMonitor().Last(); }

  kube::Pod& AddPod(const std::string& name, kube::StringMap annotations = {}) {
    auto pod = std::make_shared<kube::Pod>();
    pod->metadata.ns = "team";
    pod->metadata.name = name;
    pod->metadata.uid = "uid-" + name;
    pod->metadata.annotations = std::move(annotations);
    kube::Container init;
    init.name = "setup";
    kube::Container sidecar;
    sidecar.name = "proxy";
    sidecar.restart_always = true;
    pod->init_containers = {init, sidecar};
    kube::Container main;
    main.name = "main";
    pod->containers = {main};
    pods_.pods.push_back(pod);
    return *pod;
  }
  static kube::StringMap Granted(const std::string& resize = "") {
    kube::StringMap annotations{{"hami.io/vgpu-devices-allocated", ";;" + kUuid + ",NVIDIA,4096,30:;"}};
    if (!resize.empty()) annotations["hami-cpp/resize"] = resize;
    return annotations;
  }
  std::string FolderOf(const std::string& pod, const std::string& container) const {
    return temp_.path() + "/containers/uid-" + pod + "_" + container;
  }
  // A region as HAMi's library leaves it, on one GPU.
  std::string AddRegion(const std::string& pod, const std::string& container, std::int32_t priority = 1) {
    fs::create_directories(FolderOf(pod, container));
    const std::string path = FolderOf(pod, container) + "/r.cache";
    MakeHamiFile(path);
    const RawFile file(path);
    file.Set<std::uint64_t>(56, 1);
    for (std::size_t i = 0; i < kUuid.size(); ++i) file.Set<char>(64 + static_cast<std::int64_t>(i), kUuid[i]);
    file.Set<std::int32_t>(kPriorityAt, priority);
    file.Set<std::uint64_t>(kLimitAt, 4096 * kMiB);
    file.Set<std::uint64_t>(kSmLimitAt, 30);
    CatchUp();
    return path;
  }
  // A directory's time of change is the machine's and can not be set: however long it took to make, the test's clock is
  // not behind it.
  void CatchUp() {
    const auto behind = std::max(std::chrono::system_clock::now() - now_.wall, std::chrono::system_clock::duration(0));
    now_.wall += behind;
    now_.steady += behind;
  }
  template <typename T>
  static T Get(const std::string& path, std::int64_t offset) {
    return RawFile(path).Get<T>(offset);
  }

  const region::TempFolder temp_;
  Pods pods_{true, {}};
  std::shared_ptr<const GpusPicture> gpus_ = std::make_shared<const GpusPicture>();
  std::vector<std::string> events_;
  Monitor::Config config_{"node-1", temp_.path(), std::chrono::milliseconds(1000), seconds(300), true, true};
  Now now_{std::chrono::system_clock::now(), std::chrono::steady_clock::now()};
  std::unique_ptr<Monitor> monitor_;
};

TEST_F(MonitorTest, GivenAppInitAndSidecarContainers_WhenTheyHaveRegions_ThenAllAreShown) {
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

TEST_F(MonitorTest, GivenARegionThatCanNotBeRead_ThenTheContainerIsShownWithItsProblemAndTheOthersAsEver) {
  AddPod("web", Granted());
  AddRegion("web", "main");
  RawFile(AddRegion("web", "proxy")).Set<std::uint32_t>(4, 9);
  Tick();
  ASSERT_EQ(Last()->containers.size(), 2U);
  EXPECT_EQ(Last()->containers[0].problem, "");
  EXPECT_EQ(Last()->containers[1].problem, "unsupported");
}

TEST_F(MonitorTest, GivenARegionThatVanishes_ThenItsContainerIsShownNoMoreAndThoseItStoppedGoOn) {
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
TEST_F(MonitorTest, GivenAThousandContainersAndFewDescriptors_ThenAllAreShownAndAllAreRemovedInTheEnd) {
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

TEST_F(MonitorTest, GivenAFolderThatCanNotBeListed_ThenNothingIsForgottenOrRemovedAndTheNextRoundGoesOn) {
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
TEST_F(MonitorTest, GivenAUuidThatNeitherTheSchedulerNorTheDriverKnows_ThenItIsNotShown) {
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

TEST_F(MonitorTest, GivenAnImportantContainerThatLaunches_ThenTheOtherIsStoppedInItsRegionAndTheTimeIsCounted) {
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

TEST_F(MonitorTest, GivenTheMonitorStops_ThenNoContainerIsLeftStoppedOrWithoutItsLimit) {
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
TEST_F(MonitorTest, GivenWhatTheDriverTellsOfProcesses_ThenItIsTheUtilizationOfThoseThatDoNotTellItThemselves) {
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
TEST_F(MonitorTest, GivenADriverThatDoesNotAnswer_ThenTheUtilizationIsNotShownUnlessTheRegionTellsIt) {
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

TEST_F(MonitorTest, GivenAResizeOfAContainerWithoutARegion_ThenItIsShownAsWaitingAndNothingElseIs) {
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

TEST_F(MonitorTest, GivenAFolderThatCanNotBeListedForAWhile_ThenWhoIsBlockedAndWhatWasToldAreStillKnown) {
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

TEST_F(MonitorTest, GivenAResizeWithinTheGrant_ThenTheRegionHoldsItAndItIsToldOnce) {
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

TEST_F(MonitorTest, GivenAResizeBeyondTheGrant_ThenItIsRefusedOnceAndNothingIsWritten) {
  AddPod("web", Granted(R"({"main": {"memory": "5Gi"}})"));
  const std::string path = AddRegion("web", "main");
  Tick();
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 4096 * kMiB);
  EXPECT_EQ(Last()->containers.at(0).resize, "refused");
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_THAT(events_[0], HasSubstr("ResizeRefused: container main: 5 GiB are more than the 4 GiB"));
}

TEST_F(MonitorTest, GivenAnAnnotationThatIsNotUnderstood_ThenItIsRefusedWithTheReason) {
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

TEST_F(MonitorTest, GivenTheAnnotationIsTakenAwayWhileNoMonitorRuns_ThenTheNextOneBringsTheGrantBack) {
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

TEST_F(MonitorTest, GivenARegionThatIsAwayWhenTheGrantComesBack_ThenItIsGrantedAgainOnceItIsThere) {
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

TEST_F(MonitorTest, GivenAContainerWhoseDirectoryIsGone_ThenANewOneOfItsNameIsNotTakenForResized) {
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

TEST_F(MonitorTest, GivenAContainerWithoutAnAnnotation_ThenItsLimitsAreNobodysBusiness) {
  AddPod("web", Granted());
  const std::string path = AddRegion("web", "main");
  RawFile(path).Set<std::uint64_t>(kLimitAt, 7);
  Tick();
  EXPECT_EQ(Get<std::uint64_t>(path, kLimitAt), 7U);
}

TEST_F(MonitorTest, GivenAPodThatIsGone_ThenItsDirectoryGoesAfterTheResyncTimeAndNotSooner) {
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

TEST_F(MonitorTest, GivenClocksThatAreSet_ThenADirectoryGoesNoSoonerAndBlockedTimeIsThatOfTheSteadyClock) {
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

TEST_F(MonitorTest, GivenAPodThatIsGoneButAProcessThatLives_ThenItsDirectoryStaysUntilItDies) {
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
