// SPDX-License-Identifier: Apache-2.0

#include "scheduler/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/strings.h"
#include "device/vendors/sections.h"
#include "sched/testing/samples.h"

namespace hami::scheduler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

class Collected : public net::BodyWriter {
 public:
  bool Write(std::string_view piece) override {
    text += piece;
    return true;
  }
  bool Alive() override { return true; }
  void Cut() override {}
  std::string text;
};

// One node with a card in use and a free one, one quota, one pod on a MIG instance.
class Scrape : public testing::Test {
 protected:
  Scrape() {
    ledger_.SetCards("node-1", 0, sched::testing::Cards("GPU", 2));
    device::Pod pod = sched::testing::PodOf("1", sched::testing::Wants(1, 3000, 30));
    pod.node_name = "node-1";
    pod.annotations["hami.io/vgpu-node"] = "node-1";
    pod.annotations["hami.io/vgpu-devices-allocated"] = "GPU-0,NVIDIA,3000,30:;";
    ledger_.UpsertPod(pod);
    ledger_.quotas().Set("default", "q", {{"limits.nvidia.com/gpumem", "8000"}});
  }
  std::string Text(bool legacy = false, std::vector<Reading> readings = {}) {
    Metrics metrics({[this](const std::function<void(const sched::Ledger&)>& use) { use(ledger_); },
                     [readings] { return readings; }, legacy});
    metrics.ObserveFilter(0.0003);
    metrics.CountAdmission("patched");
    Collected out;
    metrics.Write(out);
    return out.text;
  }
  // The samples of one metric.
  std::vector<std::string> Lines(const std::string& text, const std::string& name) {
    std::vector<std::string> lines;
    for (const std::string& line : base::Split(text, '\n')) {
      if (line.starts_with(name + "{")) lines.push_back(line.substr(name.size()));
    }
    return lines;
  }

  const device::Vendors vendors_ = sched::testing::NvidiaOnly();
  sched::Ledger ledger_{vendors_};
};

TEST_F(Scrape, EveryMetricOfTheClusterHasHamisNameAndLabels) {
  const std::string text = Text();
  const std::string card = R"({zone="vGPU",node="node-1",device_uuid="GPU-0",device_index="0")";
  const std::string free = R"({zone="vGPU",node="node-1",device_uuid="GPU-1",device_index="1")";
  const std::string type = R"(,device_type="NVIDIA-Tesla T4")";
  EXPECT_THAT(Lines(text, "hami_gpu_memory_limit_bytes"),
              ElementsAre(card + type + "} 17179869184", free + type + "} 17179869184"));
  EXPECT_THAT(Lines(text, "hami_gpu_core_limit_ratio"), ElementsAre(card + type + "} 100", free + type + "} 100"));
  EXPECT_THAT(Lines(text, "hami_gpu_memory_allocated_bytes"),
              ElementsAre(card + type + R"(,device_cores="30"} 3145728000)", free + type + R"(,device_cores="0"} 0)"));
  EXPECT_THAT(Lines(text, "hami_gpu_shared_count"), ElementsAre(card + type + "} 1", free + type + "} 0"));
  EXPECT_THAT(Lines(text, "hami_gpu_core_allocated_ratio"), ElementsAre(card + type + "} 30", free + type + "} 0"));
  EXPECT_THAT(Lines(text, "hami_node_gpu_overview"),
              ElementsAre(card + type + R"(,device_cores="30",device_memory_limit="16384"} 3145728000)",
                          free + type + R"(,device_cores="0",device_memory_limit="16384"} 0)"));
  EXPECT_THAT(Lines(text, "hami_node_gpu_memory_allocated_ratio"),
              ElementsAre(card + type + "} 0.18310546875", free + type + "} 0"));
  const std::string share =
      R"({zone="vGPU",namespace="default",node="node-1",pod="pod-1",container_index="0",device_uuid="GPU-0"} )";
  EXPECT_THAT(Lines(text, "hami_vgpu_memory_allocated_bytes"), ElementsAre(share + "3145728000"));
  EXPECT_THAT(Lines(text, "hami_vgpu_core_allocated_ratio"), ElementsAre(share + "30"));
  EXPECT_THAT(Lines(text, "hami_resource_quota_used"),
              IsSupersetOf({R"({zone="vGPU",namespace="default",quota_name="nvidia.com/gpumem",limit="8000"} 3000)"}));
  EXPECT_THAT(Lines(text, "hami_resource_quota_limit"),
              ElementsAre(R"({zone="vGPU",namespace="default",quota_name="nvidia.com/gpumem"} 8000)"));
  // A resource without a quota has a use, and no limit.
  EXPECT_THAT(Lines(text, "hami_resource_quota_used"),
              IsSupersetOf({R"({zone="vGPU",namespace="default",quota_name="nvidia.com/gpucores",limit="0"} 30)"}));
  EXPECT_THAT(
      Lines(text, "hami_build_info"),
      ElementsAre(testing::MatchesRegex("\\{version=\"[^\"]+\",revision=\"[^\"]+\",build_date=\"[^\"]+\","
                                        "go_version=\"\",compiler=\"[^\"]+\",platform=\"linux/[a-z0-9]+\"\\} 1")));
}

// AMD's cards count their units, and are asked for in percent.
TEST(ScrapeOfVendors, CoresAreInPercentWhateverACardCounts) {
  device::DeviceConfig config;
  config.others = {{"amd.resourceCountName", "amd.com/gpu"}, {"amd.resourceCoreName", "amd.com/gpucores"}};
  const device::Vendors vendors = device::MakeVendors(config, {});
  sched::Ledger ledger{vendors};
  device::NodeCards cards = sched::testing::Cards("GPU", 1);
  cards.devices[0].type = "AMD Instinct";
  cards.devices[0].cores = 304;
  ledger.SetCards("node-1", 1, cards);
  device::Pod pod = sched::testing::PodOf("1", {});
  pod.node_name = "node-1";
  pod.annotations["hami.io/vgpu-node"] = "node-1";
  pod.annotations["hami.io/amd-devices-allocated"] = "GPU-0,AMD Instinct,1000,100:;";
  ledger.UpsertPod(pod);
  const Metrics metrics({[&](const std::function<void(const sched::Ledger&)>& use) { use(ledger); }, {}, false});
  Collected out;
  metrics.Write(out);
  const std::string card =
      R"({zone="vGPU",node="node-1",device_uuid="GPU-0",device_index="0",device_type="AMD Instinct"} )";
  EXPECT_THAT(out.text, HasSubstr("hami_gpu_core_limit_ratio" + card + "100"));
  EXPECT_THAT(out.text, HasSubstr("hami_gpu_core_allocated_ratio" + card + "33"));
  EXPECT_THAT(out.text, HasSubstr(R"(quota_name="amd.com/gpucores",limit="0"} 33)"));
}

TEST_F(Scrape, OlderNamesAreThereOnlyWhenAskedFor) {
  EXPECT_THAT(Text(), Not(HasSubstr("GPUDeviceMemoryLimit")));
  const std::string text = Text(true);
  const std::string card = R"({zone="vGPU",nodeid="node-1",deviceuuid="GPU-0",deviceidx="0")";
  const std::string type = R"(,devicetype="NVIDIA-Tesla T4")";
  EXPECT_EQ(Lines(text, "GPUDeviceMemoryLimit").front(), card + type + "} 17179869184");
  EXPECT_EQ(Lines(text, "GPUDeviceCoreLimit").front(), card + type + "} 100");
  EXPECT_EQ(Lines(text, "GPUDeviceMemoryAllocated").front(), card + type + R"(,devicecores="30"} 3145728000)");
  EXPECT_EQ(Lines(text, "GPUDeviceSharedNum").front(), card + type + "} 1");
  EXPECT_EQ(Lines(text, "GPUDeviceCoreAllocated").front(), card + type + "} 30");
  EXPECT_EQ(Lines(text, "nodeGPUOverview").front(),
            card + type + R"(,devicecores="30",devicememorylimit="16384"} 3145728000)");
  EXPECT_EQ(Lines(text, "nodeGPUMemoryPercentage").front(), card + "} 0.18310546875");
  EXPECT_THAT(
      Lines(text, "QuotaUsed"),
      IsSupersetOf({R"({zone="vGPU",quotanamespace="default",quotaName="nvidia.com/gpumem",limit="8000"} 3000)"}));
  const std::string share =
      R"({zone="vGPU",podnamespace="default",nodename="node-1",podname="pod-1",containeridx="0",deviceuuid="GPU-0"} )";
  EXPECT_THAT(Lines(text, "vGPUMemoryAllocated"), ElementsAre(share + "3145728000"));
  EXPECT_THAT(Lines(text, "vGPUCoreAllocated"), ElementsAre(share + "30"));
}

TEST_F(Scrape, OnlyRealisedMigInstancesAreShown) {
  device::NodeCards cards = sched::testing::Cards("MIG", 1);
  cards.devices[0].mode = device::kModeMig;
  cards.devices[0].mig_profiles = {{"1g.6gb", 6144, 25, 1, {{0, 1}, {1, 1}}}};
  ledger_.SetCards("node-2", 0, cards);
  device::Pod pod = sched::testing::PodOf("2", sched::testing::Wants(1, 6000));
  pod.node_name = "node-2";
  pod.annotations["hami.io/vgpu-node"] = "node-2";
  pod.annotations["hami.io/vgpu-devices-allocated"] = "MIG-0,NVIDIA,6144,25:MIG-0,NVIDIA,6144,25:;";
  const std::string planned = R"({"containerIndex":0,"deviceIndex":1,"gpuUUID":"MIG-0","profile":"1g.6gb",)"
                              R"("placement":{"start":1,"size":1}})";
  pod.annotations["hami.io/vgpu-mig-allocations"] =
      R"([{"containerIndex":0,"deviceIndex":0,"gpuUUID":"MIG-0","profile":"1g.6gb","placement":{"start":0,"size":1},)"
      R"("migUUID":"MIG-x","gpuInstanceID":7,"computeInstanceID":0},)" +
      planned + "]";
  ledger_.UpsertPod(pod);
  const std::string text = Text(true);
  EXPECT_THAT(Lines(text, "hami_node_gpu_mig_instance_info"),
              ElementsAre(R"({zone="vGPU",node="node-2",device_uuid="MIG-0",device_index="0",mig_uuid="MIG-x",)"
                          R"(profile="1g.6gb",gpu_instance_id="7",compute_instance_id="0",placement_start="0",)"
                          R"(placement_size="1"} 1)"));
  EXPECT_THAT(Lines(text, "nodeGPUMigInstance"),
              ElementsAre(R"({zone="vGPU",nodeid="node-2",deviceuuid="MIG-0",deviceidx="0",migname="1g.6gb-7"} 1)"));
}

TEST_F(Scrape, WhatTheProgramDidStandsBesideTheCluster) {
  const std::string text =
      Text(false, {{"hami_scheduler_decisions_total", base::Exposition::Type::kCounter, "h", "outcome", "placed", 7},
                   {"hami_scheduler_decisions_total", base::Exposition::Type::kCounter, "h", "outcome", "no_fit", 2},
                   {"hami_scheduler_leader", base::Exposition::Type::kGauge, "h", "", "", 1}});
  EXPECT_THAT(text, HasSubstr("# TYPE hami_scheduler_decisions_total counter\n"
                              "hami_scheduler_decisions_total{zone=\"vGPU\",outcome=\"placed\"} 7\n"
                              "hami_scheduler_decisions_total{zone=\"vGPU\",outcome=\"no_fit\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("hami_scheduler_leader{zone=\"vGPU\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("hami_scheduler_filter_duration_seconds_count{zone=\"vGPU\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(R"(hami_scheduler_admissions_total{zone="vGPU",result="patched"} 1)"));
}

// A metric's lines may not be scattered, and its head may stand there once.
TEST_F(Scrape, TheLinesOfAMetricStandTogetherUnderOneHead) {
  std::vector<std::string> heads;
  std::string current;
  for (const std::string& line : base::Split(Text(true), '\n')) {
    if (line.starts_with("# TYPE ")) {
      current = base::Split(line, ' ')[2];
      EXPECT_EQ(std::count(heads.begin(), heads.end(), current), 0) << current;
      heads.push_back(current);
    } else if (!line.starts_with('#') && !line.empty()) {
      EXPECT_TRUE(line.starts_with(current)) << line;
    }
  }
  EXPECT_GT(heads.size(), 20U);
}

TEST_F(Scrape, TheBooksAreReadAFewNodesAtATime) {
  for (int i = 0; i < 100; ++i) ledger_.SetCards("n" + std::to_string(i), 0, sched::testing::Cards("G", 1));
  int reads = 0;
  const Picture picture = TakePicture([&](const std::function<void(const sched::Ledger&)>& use) {
    ++reads;
    use(ledger_);
  });
  EXPECT_EQ(picture.nodes.size(), 101U);
  EXPECT_GE(reads, 4);
}

}  // namespace
}  // namespace hami::scheduler
