// SPDX-License-Identifier: Apache-2.0
//
// The built hami-monitor on a simulated node: real programs under the real library, a real HTTP API server, real
// scrapes.

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "base/strings.h"
#include "device/use_report.h"
#include "net/server.h"
#include "region/testing/region.h"
#include "test/monitor/node.h"

namespace hami::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kMiB = 1 << 20;

TEST_F(Node, GivenContainer_WhenScraped_ThenItsFiguresAndTheGpusAreThere) {
  AddPod("train", 4096, 30);
  const Process guest = StartGuest("train", {"1024"}, 4096, 30);
  StartMonitor();
  ASSERT_TRUE(Eventually([&] {
    return Metric({"hami_vgpu_memory_used_bytes{", "pod=\"train\""}).value_or(0) >= 1024 * kMiB;
  })) << Get("/metrics").body;
  EXPECT_EQ(Metric({"hami_vgpu_memory_limit_bytes{", "namespace=\"team\"", "container=\"main\"",
                    "device_uuid=\"" + uuid_ + "\""}),
            4096 * kMiB);
  EXPECT_EQ(Metric({"hami_container_processes{", "pod=\"train\""}), 1);
  EXPECT_EQ(Metric({"hami_vgpu_core_limit_ratio{", "pod=\"train\""}), 30);
  ASSERT_TRUE(Eventually([&] {
    return Metric({"hami_host_gpu_memory_used_bytes{", uuid_}).value_or(0) >= 1024 * kMiB;
  })) << Get("/metrics").body;
  EXPECT_EQ(Metric({"hami_host_gpu_healthy{", uuid_}), 1);
  EXPECT_GT(Metric({"hami_host_gpu_temperature_celsius{", uuid_}).value_or(0), 0);
  EXPECT_EQ(Metric({"hami_monitor_nvml_up{"}), 1);
  const auto use = device::ReadUse(Get("/v1/use").body);
  ASSERT_TRUE(use) << use.error().message;
  const auto own = std::find_if(use->shares.begin(), use->shares.end(),
                                [&](const device::ShareUse& share) { return share.uuid == uuid_; });
  ASSERT_NE(own, use->shares.end()) << Get("/v1/use").body;
  EXPECT_EQ(own->pod, "train");
  EXPECT_EQ(own->limit, 4096);
  EXPECT_GE(own->used, 1024);
  EXPECT_EQ(own->core_limit, 30);
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/elsewhere").status, 404);
  EXPECT_THAT(Get("/metrics").body, Not(HasSubstr("vGPU_device_memory_usage_in_bytes")));
}

TEST_F(Node, GivenSignalsEndingOtherPrograms_WhenSent_ThenMonitorGoesOn) {
  StartMonitor();
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) ASSERT_EQ(::kill(monitor_.pid, signal), 0);
  ASSERT_TRUE(Eventually([&] { return monitor_.err().find("SIGHUP: the log file") != std::string::npos; }));
  EXPECT_EQ(Get("/healthz").status, 200);
  ASSERT_EQ(::kill(monitor_.pid, SIGTERM), 0);
  EXPECT_EQ(Wait(monitor_), 0) << monitor_.err();
}

TEST_F(Node, GivenNoRoomForTheHelp_WhenAsked_ThenTheStatusTells) {
  for (const char* question : {"--help", "--version"}) {
    const Process asked = Start({"/bin/sh", "-c", base::Concat({HAMI_MONITOR, " ", question, " >/dev/full"})}, {});
    EXPECT_EQ(Wait(asked), 1) << question;
    EXPECT_THAT(asked.err(), HasSubstr("can not write"));
  }
}

TEST_F(Node, GivenAnErrorThatTheDriverReports_ThenItIsCountedByItsNumber) {
  StartMonitor();
  ASSERT_TRUE(Eventually([&] { return Metric({"hami_monitor_nvml_up{"}) == 1; }));
  const Process injector = StartGuest("nobody", {"inject", "xid device=0 code=48"}, 1, 0);
  EXPECT_TRUE(Eventually([&] {
    return Metric({"hami_host_gpu_xid_errors_total{", uuid_, "xid=\"48\""}) == 1;
  })) << injector.err()
      << Get("/metrics").body;
}

TEST_F(Node, GivenAGpuThatFellOffTheBus_ThenItIsNotHealthyAndTheOtherIs) {
  ASSERT_TRUE(std::filesystem::remove(folder_ + "/machine.conf"));
  ASSERT_TRUE(base::WriteNewFile(folder_ + "/machine.conf", "gpus 2xH100\nlost device=1\n", 0600));
  StartMonitor();
  EXPECT_TRUE(Eventually([&] {
    return Metric({"hami_host_gpu_healthy{", "device_index=\"1\""}) == 0;
  })) << Get("/metrics").body;
  EXPECT_EQ(Metric({"hami_host_gpu_healthy{", "device_index=\"0\""}), 1);
  EXPECT_TRUE(Metric({"hami_host_gpu_temperature_celsius{", "device_index=\"0\""}));
}

// V4: HAMi caches all pods of the cluster on every node.
TEST_F(Node, GivenPodsOfOtherNodes_ThenTheMonitorNeverHearsOfThem) {
  AddPod("here", 4096, 0);
  AddPod("there", 4096, 0, "node-2");
  for (const char* pod : {"here", "there"}) {
    std::filesystem::create_directories(ContainerFolder(pod));
    ASSERT_EQ(region::Create((ContainerFolder(pod) + "/a.cache").c_str(), region::TestConfig()), region::Status::kOk);
  }
  StartMonitor();
  ASSERT_TRUE(Eventually([&] { return Metric({"hami_container_processes{", "pod=\"here\""}).has_value(); }));
  EXPECT_FALSE(Metric({"pod=\"there\""}));
  EXPECT_EQ(api_->Asked("PATCH") + api_->Asked("PUT"), 0U) << "it reads pods and writes events";
  EXPECT_LE(api_->Asked("GET"), 1U) << "it asks for its own node, once";
}

TEST_F(Node, GivenTwoPriorities_WhenBothLaunch_ThenLesserStopsAndGoesOn) {
  AddPod("high", 4096, 0);
  AddPod("low", 4096, 0);
  Process high = StartGuest("high", {"64", "spin"}, 4096, 0, {{"CUDA_TASK_PRIORITY", "0"}});
  Process low = StartGuest("low", {"64", "spin"}, 4096, 0, {{"CUDA_TASK_PRIORITY", "1"}});
  StartMonitor();
  ASSERT_TRUE(Eventually([&] { return Metric({"hami_container_blocked{", "pod=\"low\""}) == 1; })) << monitor_.err();
  const auto blocked_for = [&] { return Metric({"hami_container_blocked_seconds_total{", "pod=\"low\""}).value_or(0); };
  ASSERT_TRUE(Eventually([&] { return blocked_for() > 0.5; })) << "so that what was queued has ended";
  const std::size_t stopped_at = low.out().size();
  const std::size_t high_at = high.out().size();
  const double since = blocked_for();
  ASSERT_TRUE(Eventually([&] { return blocked_for() > since + 1; }));
  EXPECT_EQ(low.out().size(), stopped_at);
  EXPECT_GT(high.out().size(), high_at);
  high.input.Reset();
  EXPECT_EQ(Wait(high), 0);
  EXPECT_TRUE(Eventually([&] { return low.out().size() > stopped_at + 1; })) << Get("/metrics").body;
}

// V7: a library that looks at the limit first never sees that it was told to stop.
TEST_F(Node, GivenLimitLifted_WhenMoreImportantOneLaunches_ThenItStops) {
  AddPod("high", 4096, 0);
  AddPod("low", 4096, 30);
  const Process low = StartGuest("low", {"64", "spin"}, 4096, 30, {{"CUDA_TASK_PRIORITY", "1"}});
  StartMonitor();
  const region::RawFile region(ContainerFolder("low") + "/8d0f.cache");
  ASSERT_TRUE(Eventually([&] { return region.Get<std::int32_t>(2'008'900) == 0; })) << "alone, so without its limit";
  const Process high = StartGuest("high", {"64", "spin"}, 4096, 0, {{"CUDA_TASK_PRIORITY", "0"}});
  const auto blocked_for = [&] { return Metric({"hami_container_blocked_seconds_total{", "pod=\"low\""}).value_or(0); };
  ASSERT_TRUE(Eventually([&] { return blocked_for() > 0.5; })) << "so that what was queued has ended";
  const std::size_t stopped_at = low.out().size();
  ASSERT_TRUE(Eventually([&] { return blocked_for() > 1.5; }));
  EXPECT_EQ(low.out().size(), stopped_at);
}

TEST_F(Node, GivenStoppedContainer_WhenMonitorIsTerminated_ThenItGoesOn) {
  AddPod("high", 4096, 0);
  AddPod("low", 4096, 0);
  const Process high = StartGuest("high", {"64", "spin"}, 4096, 0, {{"CUDA_TASK_PRIORITY", "0"}});
  const Process low = StartGuest("low", {"64", "spin"}, 4096, 0, {{"CUDA_TASK_PRIORITY", "1"}});
  StartMonitor();
  ASSERT_TRUE(Eventually([&] {
    return Metric({"hami_container_blocked_seconds_total{", "pod=\"low\""}).value_or(0) > 0.5;
  }));
  const std::size_t stopped_at = low.out().size();
  ASSERT_EQ(::kill(monitor_.pid, SIGTERM), 0);
  EXPECT_EQ(Wait(monitor_), 0) << monitor_.err();
  EXPECT_TRUE(Eventually([&] { return low.out().size() > stopped_at + 1; }));
}

TEST_F(Node, GivenMoreGpuTimeWantedThanAllowed_ThenTimeAndWaitingCounted) {
  AddPod("train", 4096, 2);
  const Process guest = StartGuest("train", {"64", "spin"}, 4096, 2);
  StartMonitor({"--feedback=false"});  // which would lift the limit of a program that is alone
  EXPECT_TRUE(Eventually([&] {
    return Metric({"hami_vgpu_throttled_seconds_total{", "pod=\"train\""}).value_or(0) > 0.1;
  })) << Get("/metrics").body;
  EXPECT_GT(Metric({"hami_vgpu_gpu_seconds_total{", "pod=\"train\""}).value_or(0), 0);
  EXPECT_LE(Metric({"hami_container_last_kernel_elapsed_seconds{", "pod=\"train\""}).value_or(99), 10);
}

TEST_F(Node, GivenMoreMemoryThanGpu_WhenSpillingAllowed_ThenSpillCounted) {
  AddPod("train", 100'000, 0);
  const Process guest = StartGuest("train", {"90000"}, 100'000, 0, {{"CUDA_OVERSUBSCRIBE", "true"}});
  StartMonitor();
  EXPECT_TRUE(Eventually([&] {
    return Metric({"hami_vgpu_memory_spilled_bytes_total{", "pod=\"train\""}).value_or(0) >= 90'000 * kMiB;
  })) << Get("/metrics").body;
}

TEST_F(Node, GivenResizeAnnotation_WhenRunning_ThenLimitChangesWithEvent) {
  AddPod("train", 4096, 30);
  const Process guest = StartGuest("train", {"64"}, 4096, 30);
  StartMonitor();
  Annotate("train", "hami-cpp/resize", R"({"main": {"memory": "2Gi", "cores": 20}})");
  ASSERT_TRUE(Eventually([&] {
    return Metric({"hami_vgpu_memory_limit_bytes{", "pod=\"train\""}) == 2048 * kMiB;
  })) << monitor_.err();
  EXPECT_EQ(Metric({"hami_vgpu_core_limit_ratio{", "pod=\"train\""}), 20);
  EXPECT_EQ(Metric({"hami_container_resize_state{", "state=\"applied\""}), 1);
  const auto told = [&](const std::string& reason) {
    for (const auto& event : api_->All(kube::kEvents)) {
      if (event.at("reason").as_string() == reason) return event.at("involvedObject").at("name").as_string() == "train";
    }
    return false;
  };
  EXPECT_TRUE(Eventually([&] { return told("Resized"); }));
  Annotate("train", "hami-cpp/resize", R"({"main": {"memory": "5Gi"}})");
  EXPECT_TRUE(Eventually([&] { return told("ResizeRefused"); }));
  // What its role has to allow, and no more.
  const std::set<std::string> allowed = {"create events", "get nodes", "list pods", "patch events", "watch pods"};
  for (const std::string& permission : api_->Permissions()) EXPECT_TRUE(allowed.contains(permission)) << permission;
  EXPECT_EQ(api_->watching(), 1);
  EXPECT_EQ(Metric({"hami_vgpu_memory_limit_bytes{", "pod=\"train\""}), 2048 * kMiB);
}

TEST_F(Node, GivenHostileFilesOfOthers_ThenHonestContainerServedAsEver) {
  for (const char* pod : {"honest", "shrunk", "fifo", "link", "flood"}) {
    AddPod(pod, 4096, 0);
    std::filesystem::create_directories(ContainerFolder(pod));
  }
  region::MakeHamiFile(ContainerFolder("honest") + "/a.cache");
  region::MakeHamiFile(ContainerFolder("shrunk") + "/a.cache");
  region::MakeHamiFile(ContainerFolder("flood") + "/z.cache");
  ASSERT_EQ(::mkfifo((ContainerFolder("fifo") + "/a.cache").c_str(), 0666), 0);
  std::filesystem::create_symlink("/proc/self/mem", ContainerFolder("link") + "/a.cache");
  for (int i = 0; i < 200; ++i)
    region::RawFile(ContainerFolder("flood") + "/" + std::to_string(i) + ".cache").Resize(i);
  StartMonitor();
  region::RawFile(ContainerFolder("shrunk") + "/a.cache").Resize(4096);
  ASSERT_TRUE(Eventually([&] {
    return Metric({"hami_container_region_problem{", "pod=\"shrunk\""}) == 1;
  })) << Get("/metrics").body;
  EXPECT_EQ(Metric({"hami_container_processes{", "pod=\"honest\""}), 0);
  EXPECT_EQ(Metric({"hami_container_region_problem{", "pod=\"fifo\"", "problem=\"corrupt\""}), 1);
  EXPECT_EQ(Metric({"hami_container_region_problem{", "pod=\"link\"", "problem=\"corrupt\""}), 1);
  EXPECT_EQ(Get("/healthz").status, 200);
}

// V8: HAMi asks the driver in each scrape.
TEST_F(Node, GivenDriverHangs_ThenScrapesAndRoundsGoOnAndItEndsWhenTold) {
  AddPod("train", 4096, 0);
  std::filesystem::create_directories(ContainerFolder("train"));
  region::MakeHamiFile(ContainerFolder("train") + "/a.cache");
  StartMonitor();
  ASSERT_TRUE(Eventually([&] { return Metric({"hami_monitor_nvml_up{"}) == 1; }));
  const Process injector =
      StartGuest("nobody", {"inject", "fault call=nvmlDeviceGetTemperature* delay_ms=600000"}, 1, 0);
  ASSERT_TRUE(Eventually([&] { return Metric({"hami_monitor_gpu_sample_age_seconds{"}).value_or(0) > 3; }));
  const double ticks = Metric({"hami_monitor_ticks_total{"}).value_or(0);
  EXPECT_TRUE(Eventually([&] { return Metric({"hami_monitor_ticks_total{"}).value_or(0) > ticks + 2; }));
  EXPECT_TRUE(Metric({"hami_container_processes{", "pod=\"train\""}));
  EXPECT_TRUE(Metric({"hami_host_gpu_memory_used_bytes{", uuid_})) << "as it was; how old it is stands beside it";
  EXPECT_EQ(Get("/healthz").status, 200);
  ASSERT_EQ(::kill(monitor_.pid, SIGTERM), 0);
  EXPECT_EQ(Wait(monitor_), 0) << monitor_.err();
}

TEST_F(Node, GivenUnknownPods_ThenAliveButNotReadyAndNoContainerShown) {
  kube::FakeFault refusal;
  refusal.path_part = "/pods";
  refusal.times = 1'000'000;
  refusal.status = 503;
  api_->Add(refusal);
  AddPod("train", 4096, 0);
  std::filesystem::create_directories(ContainerFolder("train"));
  region::MakeHamiFile(ContainerFolder("train") + "/a.cache");
  StartServing();
  ASSERT_TRUE(Eventually([&] { return Metric({"hami_monitor_ticks_total{"}).value_or(0) > 3; }));
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Metric({"hami_monitor_pods_known{"}), 0);
  EXPECT_FALSE(Metric({"pod=\"train\""}));
}

TEST_F(Node, GivenApiServerGoesAway_ThenKnownIsServedAndNothingRemoved) {
  AddPod("train", 4096, 0);
  std::filesystem::create_directories(ContainerFolder("train"));
  region::MakeHamiFile(ContainerFolder("train") + "/a.cache");
  StartMonitor();
  api_.reset();
  const double before = Metric({"hami_monitor_ticks_total{"}).value_or(0);
  ASSERT_TRUE(Eventually([&] { return Metric({"hami_monitor_ticks_total{"}).value_or(0) > before + 5; }));
  EXPECT_TRUE(Metric({"hami_container_processes{", "pod=\"train\""}));
  EXPECT_EQ(Get("/readyz").status, 200);
}

// V9: HAMi logs that its listener failed and goes on without metrics, and ends with 0 when it can not go on.
TEST_F(Node, GivenAnAddressInUse_ThenTheProgramSaysSoAndFails) {
  const auto other = net::Server::Start({}, [](const net::Request&) { return net::Response(); });
  ASSERT_TRUE(other);
  const Process monitor = StartMonitorOnly({"--metrics-bind-address=127.0.0.1:" + std::to_string((*other)->port())});
  EXPECT_EQ(Wait(monitor), 1);
  EXPECT_THAT(monitor.err(), HasSubstr("can not serve metrics"));
}

TEST_F(Node, GivenNoNodeNameOrNoKubeconfig_ThenTheProgramSaysSoAndFails) {
  const Process nameless = StartMonitorOnly({}, {{"NODE_NAME", ""}});
  EXPECT_EQ(Wait(nameless), 2);
  EXPECT_THAT(nameless.err(), HasSubstr("NODE_NAME is not set"));
  const Process homeless = StartMonitorOnly({"--kubeconfig=" + folder_ + "/nothing"});
  EXPECT_EQ(Wait(homeless), 1);
}

// A node of another name has no pods, which looks like one that has nothing to do.
TEST_F(Node, WrongNodeName_IsSaidAndNotReady) {
  api_->Remove(kube::kNodes, "", "node-1");
  StartServing({});
  ASSERT_TRUE(Eventually([&] { return Get("/readyz").body.find("there is no node node-1") != std::string::npos; }))
      << Get("/readyz").body;
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_THAT(monitor_.err(), HasSubstr("set NODE_NAME from spec.nodeName"));
  api_->Put(kube::kNodes, {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "node-1"}}}});
  EXPECT_TRUE(Eventually([&] { return Get("/readyz").status == 200; })) << Get("/readyz").body;
}

}  // namespace
}  // namespace hami::test
