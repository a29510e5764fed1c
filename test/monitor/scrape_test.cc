// SPDX-License-Identifier: Apache-2.0
//
// A whole scrape of the built hami-monitor, with everything there that makes a metric, against the list of what
// dashboards and alerts ask for (test/golden/monitor/families.txt), and what they would show.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/strings.h"
#include "region/testing/region.h"
#include "test/monitor/node.h"

namespace hami::test {
namespace {

constexpr double kMiB = 1 << 20;

// "name type label,label", as in the list.
using Families = std::set<std::string>;

// Names in front of `="…"`; quotes may be escaped in a value.
std::set<std::string> LabelNames(const std::string& labels) {
  std::set<std::string> names;
  std::size_t at = 0;
  while (at < labels.size()) {
    const std::size_t equals = labels.find("=\"", at);
    if (equals == std::string::npos) break;
    names.insert(labels.substr(at, equals - at));
    std::size_t end = equals + 2;
    while (end < labels.size() && labels[end] != '"') end += labels[end] == '\\' ? 2U : 1U;
    at = end + 2;  // behind `",`
  }
  return names;
}

// What PAGE consists of. A sample without a type, or a series that is there twice, is a failure.
Families FamiliesOf(const std::string& page) {
  Families families;
  std::map<std::string, std::string> types;
  std::set<std::string> series;
  for (const std::string& line : base::Split(page, '\n')) {
    if (line.starts_with("# TYPE ")) {
      const auto words = base::Split(line, ' ');
      types[words.at(2)] = words.at(3);
    }
    if (line.empty() || line.starts_with('#')) continue;
    const std::string name = line.substr(0, line.find_first_of("{ "));
    const std::size_t open = line.find('{');
    const std::size_t close = line.rfind('}');
    EXPECT_TRUE(types.contains(name)) << line;
    EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
    std::string labels;
    for (const std::string& label : LabelNames(line.substr(open + 1, close - open - 1)))
      labels += (labels.empty() ? "" : ",") + label;
    families.insert(base::Concat({name, " ", types[name], " ", labels}));
  }
  return families;
}

// Those of the list that are one of WHOSE.
Families Listed(const std::set<std::string>& whose) {
  Families families;
  std::ifstream file(HAMI_FAMILIES);
  for (std::string line; std::getline(file, line);) {
    const std::size_t blank = line.find(' ');
    if (!line.starts_with('#') && whose.contains(line.substr(0, blank))) families.insert(line.substr(blank + 1));
  }
  return families;
}

class Scrape : public Node {
 protected:
  // Boards that together have every sensor; two containers under the library, one of them resized, one of MIG, one
  // whose region nobody understands; and, later, an error of a GPU.
  void SetUp() override {
    Node::SetUp();
    ASSERT_TRUE(std::filesystem::remove(folder_ + "/machine.conf"));
    ASSERT_TRUE(base::WriteNewFile(folder_ + "/machine.conf",
                                   "gpus 1xH100,1xT4,1xRTX4090\ndevice 0 uuid=" + uuid_ + "\n", 0600));
    AddPod("train", 4096, 30);
    AddPod("serve", 2048, 0);
    AddPod("mig", 1024, 0);
    AddPod("odd", 1024, 0);
    Annotate("train", "hami-cpp/resize", R"({"main": {"memory": "3Gi"}})");
    Annotate("mig", "hami.io/vgpu-mig-allocations",
             R"([{"containerIndex":0,"deviceIndex":1,"gpuUUID":"GPU-1","profile":"1g.10gb",)"
             R"("placement":{"start":0,"size":1},"migUUID":"MIG-1","gpuInstanceID":7,"computeInstanceID":0}])");
    std::filesystem::create_directories(ContainerFolder("odd"));
    region::MakeHamiFile(ContainerFolder("odd") + "/a.cache");
    region::RawFile(ContainerFolder("odd") + "/a.cache").Set<std::uint32_t>(4, 9);
    const Environment order{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}};  // the H100 is no. 0, although not the fastest
    guests_.push_back(StartGuest("train", {"1024", "spin"}, 4096, 30, order));
    guests_.push_back(StartGuest("serve", {"512"}, 2048, 0, order));
  }
  void ExpectWholePage(const std::set<std::string>& whose) {
    ASSERT_TRUE(Eventually([&] { return Metric({"hami_monitor_nvml_up{"}) == 1; }));
    guests_.push_back(StartGuest("nobody", {"inject", "xid device=0 code=31"}, 1, 0));
    const Families listed = Listed(whose);
    ASSERT_GE(listed.size(), 13U);
    Families shown;
    Eventually([&] { return (shown = FamiliesOf(Get("/metrics").body)) == listed; });
    for (const std::string& family : listed) EXPECT_TRUE(shown.contains(family)) << "missing: " << family;
    for (const std::string& family : shown) EXPECT_TRUE(listed.contains(family)) << "not listed: " << family;
  }

  std::vector<Process> guests_;
};

TEST_F(Scrape, GivenEveryMetric_ThenPageIsWhatHamisDashboardsAskForAndOurs) {
  StartMonitor({"--feedback=false"});
  ExpectWholePage({"hami", "ours"});
}

TEST_F(Scrape, GivenTheLegacyFlag_ThenTheOldNamesAreThereToo) {
  StartMonitor({"--feedback=false", "--legacy-metrics"});
  ExpectWholePage({"hami", "ours", "legacy"});
}

// Names and units: bytes are bytes, ratios are percentages, times are seconds.
TEST_F(Scrape, GivenTwoContainers_ThenHamisDashboardsShowWhatTheyDo) {
  StartMonitor({"--feedback=false", "--legacy-metrics"});
  const auto of = [this](const std::string& name, const std::string& pod) {
    return Metric({name + "{", "namespace=\"team\"", "pod=\"" + pod + "\"", "container=\"main\"", "vdevice_index=\"0\"",
                   "device_uuid=\"" + uuid_ + "\""})
        .value_or(-1);
  };
  ASSERT_TRUE(Eventually([&] { return of("hami_container_device_utilization_ratio", "train") > 0; }))
      << Get("/metrics").body;
  EXPECT_LE(of("hami_container_device_utilization_ratio", "train"), 100);
  EXPECT_EQ(of("hami_container_device_utilization_ratio", "serve"), 0);
  EXPECT_EQ(of("hami_vgpu_memory_buffer_bytes", "train"), 1024 * kMiB);
  EXPECT_EQ(of("hami_vgpu_memory_buffer_bytes", "serve"), 512 * kMiB);
  for (const char* pod : {"train", "serve"}) {
    const double parts = of("hami_vgpu_memory_context_bytes", pod) + of("hami_vgpu_memory_module_bytes", pod) +
                         of("hami_vgpu_memory_buffer_bytes", pod);
    EXPECT_EQ(of("hami_vgpu_memory_used_bytes", pod), parts);
    EXPECT_EQ(of("hami_container_device_memory_bytes", pod), parts);
    EXPECT_GT(of("hami_vgpu_memory_context_bytes", pod), 100 * kMiB);
    EXPECT_GT(of("hami_vgpu_memory_module_bytes", pod), 0);
    EXPECT_LT(of("hami_vgpu_memory_module_bytes", pod), kMiB);
  }
  // Its annotation is applied in one round, and shown by the next.
  EXPECT_TRUE(Eventually([&] { return of("hami_vgpu_memory_limit_bytes", "train") == 3072 * kMiB; }));
  EXPECT_EQ(of("hami_vgpu_memory_limit_bytes", "serve"), 2048 * kMiB);
  EXPECT_LE(of("hami_container_last_kernel_elapsed_seconds", "train"), 10);
  EXPECT_EQ(of("hami_container_last_kernel_elapsed_seconds", "serve"), -1) << "it never launched";
  const auto legacy = [this](const std::string& name) {
    return Metric({name + "{", "podnamespace=\"team\"", "podname=\"serve\"", "ctrname=\"main\"", "vdeviceid=\"0\""});
  };
  EXPECT_EQ(legacy("vGPU_device_memory_usage_in_bytes"), of("hami_vgpu_memory_used_bytes", "serve"));
  EXPECT_EQ(legacy("vGPU_device_memory_limit_in_bytes"), 2048 * kMiB);
  EXPECT_EQ(legacy("Device_memory_desc_of_container"), of("hami_vgpu_memory_used_bytes", "serve"));
  EXPECT_EQ(Metric({"hami_mig_device_info{", "mig_uuid=\"MIG-1\"", "profile=\"1g.10gb\"", "vdevice_index=\"1\"",
                    "gpu_instance_id=\"7\"", "compute_instance_id=\"0\""}),
            1);
  const auto host = [this](const std::string& name) {
    return Metric({name + "{", "device_index=\"0\"", "device_uuid=\"" + uuid_ + "\"",
                   "device_type=\"NVIDIA-NVIDIA H100 80GB HBM3\""})
        .value_or(-1);
  };
  EXPECT_TRUE(Eventually([&] { return host("hami_host_gpu_memory_used_bytes") >= 1536 * kMiB; }));
  EXPECT_TRUE(Eventually([&] { return host("hami_host_gpu_utilization_ratio") > 1; })) << "of 100";
  EXPECT_GE(host("hami_host_gpu_memory_controller_utilization_ratio"), 0);
}

}  // namespace
}  // namespace hami::test
