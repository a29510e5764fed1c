// SPDX-License-Identifier: Apache-2.0

#include "monitor/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace hami::monitor {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kNow = 1'800'000'000;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
const auto kSteady = std::chrono::steady_clock::time_point(std::chrono::hours(1));

ContainerPicture Train() {
  ContainerPicture container{"team", "train-0", "main", {}, {}, true, 12.5, "applied"};
  container.region.ours = true;
  container.region.priority = 1;
  container.region.last_kernel_time = kNow - 7;
  container.region.living = 2;
  DeviceUse use;
  use.uuid = "GPU-5ef1b8a0-0000-4000-8000-000000000001";
  use.limit = 4 * kGiB;
  use.sm_limit = 30;
  use.used = kGiB;
  use.context = 300;
  use.module = 20;
  use.data = 4000;
  use.offset = 5;
  use.sm_percent = 41;
  use.peak = 2 * kGiB;
  use.refusals = 3;
  use.gpu_ns = 1'500'000'000;
  use.throttled_ns = 250'000'000;
  use.spilled_bytes = 4096;
  container.region.devices = {use, {}};
  return container;
}

Picture Sample() {
  Picture picture;
  picture.node = "node-1";
  picture.containers.push_back(Train());
  ContainerPicture hami{"team", "web", "side", {}, {}, false, 0, ""};
  DeviceUse use;
  use.uuid = "GPU-5ef1b8a0-0000-4000-8000-000000000001";
  use.used = 77;
  hami.region.devices = {use};
  picture.containers.push_back(hami);
  picture.containers.push_back({"team", "web", "broken", {}, "unsupported", false, 0, ""});
  device::MigReservation mig;
  mig.device = 1;
  mig.gpu_uuid = "GPU-2";
  mig.profile = "1g.5gb";
  mig.mig_uuid = "MIG-3";
  mig.gpu_instance = 7;
  mig.compute_instance = 0;
  picture.migs.push_back({"team", "mig-pod", "main", mig});
  picture.self = {9, 0.25, 4, 1, 2, true};
  return picture;
}

GpusPicture Gpus() {
  GpusPicture gpus;
  gpus.taken = kSteady - std::chrono::seconds(2);
  gpus.answering = true;
  GpuPicture gpu;
  gpu.device.uuid = "GPU-5ef1b8a0-0000-4000-8000-000000000001";
  gpu.device.name = "NVIDIA H100 80GB HBM3";
  gpu.telemetry.memory = nvml::Memory{80 * kGiB, 3 * kGiB, 77 * kGiB, std::nullopt};
  gpu.telemetry.gpu_percent = 55;
  gpu.telemetry.memory_percent = 12;
  gpu.telemetry.temperature_celsius = 61;
  gpu.telemetry.power_milliwatts = 350'500;
  gpu.telemetry.energy_millijoules = 1500;
  gpu.telemetry.pcie.generation = 5;
  gpu.telemetry.health.remapped = nvml::RemappedRows{1, 0, true, false};
  gpu.links.push_back({0, true, nvml::LinkPeer::kSwitch, "0000:0a:00.0"});
  gpu.links.push_back({1, false, nvml::LinkPeer::kUnknown, ""});
  gpu.xids[79] = 1;
  gpu.pcie = {2048, 1024};
  gpu.held = {{11, nvml::ProcessKind::kCompute, 2 * kGiB, {}, {}},
              {12, nvml::ProcessKind::kCompute, kGiB, {}, {}},
              {13, nvml::ProcessKind::kMps, {}, {}, {}}};
  gpus.gpus.push_back(gpu);
  return gpus;
}

std::string Render(const MetricsStyle& style, const GpusPicture& gpus = Gpus(), const Picture& picture = Sample()) {
  return RenderMetrics(picture, gpus, style, {kNow, kSteady});
}

// Set HAMI_UPDATE_GOLDEN to write the files anew after a change that is meant.
void CompareWithGolden(const std::string& name, std::string text) {
  const std::string build = "hami_build_info{";
  const std::size_t labels = text.find(build) + build.size();
  ASSERT_GE(labels, build.size());
  text.replace(labels, text.find('}', labels) - labels, "...");
  const std::string path = std::string(HAMI_GOLDEN) + "/" + name;
  if (std::getenv("HAMI_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

TEST(Metrics, GivenANode_WhenScraped_ThenThePageIsTheGoldenOne) {
  CompareWithGolden("metrics.txt", Render({false, true}));
}

TEST(Metrics, GivenLegacyFlag_WhenScraped_ThenOldNamesStandBesideNew) {
  CompareWithGolden("metrics_legacy.txt", Render({true, true}));
}

// V5
TEST(Metrics, GivenProperLabels_ThenEveryGpuMetricHasNodeAndVendorOnce) {
  const std::string page = Render({false, false});
  EXPECT_THAT(page, HasSubstr("hami_host_gpu_memory_controller_utilization_ratio{node=\"node-1\",device_index=\"0\","));
  EXPECT_THAT(page, HasSubstr("device_type=\"NVIDIA H100 80GB HBM3\""));
  EXPECT_THAT(page, Not(HasSubstr("NVIDIA-NVIDIA")));
  EXPECT_THAT(Render({false, true}), HasSubstr("device_type=\"NVIDIA-NVIDIA H100 80GB HBM3\""))
      << "as HAMi's dashboards expect";
}

// Seen from another pid namespace than the host's.
TEST(Metrics, GivenProcessesOfUnknownPid_ThenUtilizationIsNotShownAsZero) {
  Picture picture = Sample();
  picture.containers[0].region.devices[0].nameless = 2;
  const std::string page = Render({true, true}, Gpus(), picture);
  EXPECT_THAT(page, Not(HasSubstr("hami_container_device_utilization_ratio{namespace=\"team\",pod=\"train-0\"")));
  EXPECT_THAT(page, Not(HasSubstr("Device_utilization_desc_of_container{podnamespace=\"team\",podname=\"train-0\"")));
  EXPECT_THAT(page, HasSubstr("hami_container_device_utilization_ratio{namespace=\"team\",pod=\"web\""));
  EXPECT_THAT(page, testing::ContainsRegex("hami_vgpu_processes_without_pid\\{[^}]*pod=\"train-0\"[^}]*\\} 2\n"));
}

// V6: each change of a figure in a label begins a new series.
TEST(Metrics, GivenLabelsAsTheyShouldBe_ThenNoFigureIsALabel) {
  EXPECT_THAT(Render({true, false}), Not(HasSubstr("context=")));
  EXPECT_THAT(Render({true, true}), HasSubstr("context=\"300\",module=\"20\",data=\"4000\",offset=\"5\"")) << "as HAMi";
  EXPECT_THAT(Render({false, true}), Not(HasSubstr("context=")));
}

// V8: one query that fails takes nothing else along.
TEST(Metrics, GivenAFigureTheDriverDoesNotGive_ThenOnlyThatOneIsMissing) {
  GpusPicture gpus = Gpus();
  gpus.gpus[0].telemetry.gpu_percent.reset();
  const std::string page = Render({false, true}, gpus);
  EXPECT_THAT(page, Not(HasSubstr("hami_host_gpu_utilization_ratio{")));
  EXPECT_THAT(page, HasSubstr("hami_host_gpu_memory_controller_utilization_ratio{"));
  EXPECT_THAT(page, HasSubstr("hami_host_gpu_memory_used_bytes{"));
  gpus.gpus[0].telemetry.memory.reset();
  EXPECT_THAT(Render({false, true}, gpus), HasSubstr("hami_host_gpu_temperature_celsius{")) << "unified memory";
}

TEST(Metrics, GivenProcessesOnAGpu_ThenTheyAreCountedByKindAndNoneIsALabel) {
  const std::string page = Render({false, false});
  EXPECT_THAT(page, testing::ContainsRegex("hami_host_gpu_processes\\{[^}]*kind=\"compute\"\\} 2\n"));
  EXPECT_THAT(page,
              testing::ContainsRegex("hami_host_gpu_process_memory_bytes\\{[^}]*kind=\"compute\"\\} 3221225472\n"));
  EXPECT_THAT(page, testing::ContainsRegex("hami_host_gpu_pcie_transmit_bytes_per_second\\{[^}]*\\} 2097152\n"));
  GpusPicture silent = Gpus();
  silent.gpus[0].held.reset();
  EXPECT_THAT(Render({false, false}, silent), Not(HasSubstr("hami_host_gpu_processes{"))) << "not known is not none";
}

TEST(Metrics, MigDevices_HaveFiguresOfTheirOwn) {
  GpusPicture gpus = Gpus();
  GpuPicture& gpu = gpus.gpus[0];
  gpu.device.mig_devices = {
      {0, "MIG-3", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 7, 0, nvml::Memory{10 * kGiB, kGiB, 9 * kGiB, {}}},
      {1, "MIG-4", "NVIDIA H100 80GB HBM3 MIG 2g.20gb+me", 8, 0, std::nullopt}};
  gpu.held = {{11, nvml::ProcessKind::kCompute, kGiB / 2, 7, 0},
              {12, nvml::ProcessKind::kCompute, kGiB, 8, 0},
              {13, nvml::ProcessKind::kMps, kGiB, {}, {}}};
  gpu.mig_xids["MIG-3"][94] = 2;
  const std::string page = Render({}, gpus);
  const std::string gpu_label = R"(device_uuid="GPU-5ef1b8a0-0000-4000-8000-000000000001",)";
  const std::string one =
      R"({node="node-1",device_index="0",)" + gpu_label +
      R"(mig_uuid="MIG-3",profile="1g.10gb",gpu_instance_id="7",compute_instance_id="0",zone="vGPU")";
  EXPECT_THAT(page, HasSubstr("hami_host_mig_memory_used_bytes" + one + "} 1073741824\n"));
  EXPECT_THAT(page, HasSubstr("hami_host_mig_memory_total_bytes" + one + "} 10737418240\n"));
  EXPECT_THAT(page, HasSubstr("hami_host_mig_processes" + one + "} 1\n"));
  EXPECT_THAT(page, HasSubstr("hami_host_mig_process_memory_bytes" + one + "} 536870912\n"));
  EXPECT_THAT(page, HasSubstr("hami_host_mig_xid_errors_total" + one + ",xid=\"94\"} 2\n"));
  EXPECT_THAT(page, HasSubstr(R"(mig_uuid="MIG-4",profile="2g.20gb+me",)"));
  EXPECT_THAT(page, HasSubstr(R"(hami_container_mig_memory_used_bytes{namespace="team",pod="mig-pod",container="main",)"
                              R"(vdevice_index="1",device_uuid="GPU-2",mig_uuid="MIG-3",zone="vGPU"} 1073741824)"));
  gpus.taken -= std::chrono::hours(1);
  EXPECT_THAT(Render({}, gpus), Not(HasSubstr("_mig_memory")));
}

TEST(Metrics, GivenFiguresOfGpusThatAreTooOld_ThenOnlyTheirAgeIsShown) {
  GpusPicture gpus = Gpus();
  gpus.taken = kSteady - std::chrono::seconds(120);
  const std::string page = Render({false, true}, gpus);
  EXPECT_THAT(page, Not(HasSubstr("hami_host_gpu_")));
  EXPECT_THAT(page, HasSubstr("hami_monitor_gpu_sample_age_seconds{node=\"node-1\",zone=\"vGPU\"} 120\n"));
  EXPECT_THAT(page, HasSubstr("hami_vgpu_memory_used_bytes{"));
  gpus.interval = std::chrono::seconds(60);
  EXPECT_THAT(Render({false, true}, gpus), HasSubstr("hami_host_gpu_")) << "the next ones are to come now";
}

TEST(Metrics, GivenAGpuThatIsLostOrBeyondRepair_ThenItIsNotHealthy) {
  const auto healthy = [](const GpusPicture& gpus) {
    return Render({false, false}, gpus)
               .find(
                   "hami_host_gpu_healthy{node=\"node-1\",device_index=\"0\",device_uuid=\"GPU-5ef1b8a0-0000-4000-8000-"
                   "000000000001\",device_type=\"NVIDIA H100 80GB HBM3\",zone=\"vGPU\"} 1") != std::string::npos;
  };
  EXPECT_TRUE(healthy(Gpus()));
  GpusPicture lost = Gpus();
  lost.gpus[0].telemetry.condition = nvml::Condition::kLost;
  EXPECT_FALSE(healthy(lost));
  GpusPicture worn = Gpus();
  worn.gpus[0].telemetry.health.remapped->failed = true;
  EXPECT_FALSE(healthy(worn));
}

TEST(Metrics, GivenLongUuidOrNone_ThenLabelIsItsFirst40BytesOrNoSample) {
  Picture picture = Sample();
  picture.containers.resize(1);
  picture.migs.clear();
  const std::string uuid(40, 'u');
  picture.containers[0].region.devices[0].uuid = uuid + "vvv";
  const std::string page = Render({false, true}, Gpus(), picture);
  EXPECT_THAT(page, HasSubstr("vdevice_index=\"0\",device_uuid=\"" + uuid + "\""));
  EXPECT_THAT(page, Not(HasSubstr("vdevice_index=\"1\"")));
}

TEST(Metrics, GivenClockThatWentBack_ThenTimeSinceLastKernelIsZero) {
  Picture picture = Sample();
  picture.containers[0].region.last_kernel_time = kNow + 100;
  EXPECT_THAT(Render({false, true}, Gpus(), picture),
              testing::ContainsRegex("last_kernel_elapsed_seconds\\{[^}]*\\} 0\n"));
}

TEST(Metrics, GivenHamisOwnRegion_ThenFiguresItLacksAreNotShownAsZero) {
  Picture picture = Sample();
  picture.containers.erase(picture.containers.begin());
  const std::string page = Render({false, true}, Gpus(), picture);
  EXPECT_THAT(page, Not(HasSubstr("hami_vgpu_memory_refusals_total")));
  EXPECT_THAT(page, Not(HasSubstr("last_kernel_elapsed_seconds")));
}

}  // namespace
}  // namespace hami::monitor
