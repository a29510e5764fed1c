// SPDX-License-Identifier: Apache-2.0

#include "plugin/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugin/card_metrics.h"
#include "plugin/cdi.h"
#include "plugin/device_list.h"
#include "plugin/modes.h"
#include "plugin/mps_mode.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::Pair;

class ResponseTest : public ::testing::Test {
 protected:
  ResponseTest() {
    record_.owner = {"default", "a", "uid-a"};
    record_.container_name = "c0";
    record_.grant = {ShareOf(0, 1000, 30)};
    record_.folder = "containers/uid-a_c0";
    record_.cache = "01.cache";
    record_.library = "/usr/local/vgpu/libvgpu.so.hami-cpp-1";
    settings_.options = &options_;
    settings_.node_paths = {"/dev/nvidiactl"};
  }
  Response Make() {
    auto response = MakeResponse(record_, cards_, settings_);
    EXPECT_TRUE(response) << response.error().message;
    return response ? *response : Response();
  }

  Options options_;
  Cards cards_ = MakeTestCards(2);
  Record record_;
  ResponseSettings settings_;
};

TEST_F(ResponseTest, GivenOneShare_ThenEnvironmentAndMountsAreHamisAndOurs) {
  cards_.settings.log_level = "1";
  const Response response = Make();
  const std::map<std::string, std::string> expected = {
      {"NVIDIA_VISIBLE_DEVICES", CardName(0)},
      {"CUDA_DEVICE_MEMORY_LIMIT_0", "1000m"},
      {"CUDA_DEVICE_SM_LIMIT", "30"},
      {"CUDA_DEVICE_SM_LIMIT_0", "30"},
      {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/usr/local/vgpu/01.cache"},
      {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
      {"HAMI_DEVICE_LIMITS", CardName(0) + "=1000m:30"},
      {"LIBCUDA_LOG_LEVEL", "1"},
  };
  EXPECT_EQ(response.environment, expected);
  EXPECT_THAT(response.mounts,
              ElementsAre(Mount{"/usr/local/vgpu", "/usr/local/vgpu/containers/uid-a_c0", false},
                          Mount{"/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/libvgpu.so.hami-cpp-1", true},
                          Mount{"/tmp/vgpulock", "/tmp/vgpulock", false},
                          Mount{"/etc/ld.so.preload", "/usr/local/vgpu/ld.so.preload", true}));
  EXPECT_THAT(response.devices, IsEmpty());
  EXPECT_THAT(response.annotations, IsEmpty());
}

TEST_F(ResponseTest, ShareFile_ThenItIsMountedBesideTheLibraryAndReadOnly) {
  record_.share_file = true;
  const Response response = Make();
  ASSERT_EQ(response.mounts.size(), 5u);
  EXPECT_EQ(response.mounts[0].container_path, "/usr/local/vgpu") << "what is mounted in it comes after it";
  EXPECT_EQ(response.mounts[2],
            (Mount{"/usr/local/vgpu/share.env", "/usr/local/vgpu/containers/uid-a_c0/share.env", true}));
}

TEST_F(ResponseTest, InModeMpsTheContainerIsAClientOfItsGpusDaemon) {
  settings_.mps = MpsShare{"/run/hami-cpp/mps/GPU/pipe", "/run/hami-cpp/mps/shm"};
  const Response response = Make();
  EXPECT_EQ(response.environment.at("CUDA_MPS_PIPE_DIRECTORY"), "/tmp/nvidia-mps");
  EXPECT_EQ(response.environment.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=1000M");
  EXPECT_EQ(response.environment.at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "30");
  EXPECT_EQ(response.environment.at("GPU_CORE_UTILIZATION_POLICY"), "disable") << "libvgpu keeps to memory";
  EXPECT_EQ(response.environment.at("CUDA_DEVICE_MEMORY_LIMIT_0"), "1000m");
  EXPECT_THAT(response.mounts, Contains(Mount{"/tmp/nvidia-mps", "/run/hami-cpp/mps/GPU/pipe", false}));
  EXPECT_THAT(response.mounts, Contains(Mount{"/dev/shm", "/run/hami-cpp/mps/shm", false}));
  record_.grant = {ShareOf(0, 1000, 0)};
  EXPECT_FALSE(Make().environment.contains("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) << "no limit of time";
}

TEST(MpsModeTest, TheDaemonAllowsWhatItsLargestContainerMayUse) {
  const Cards cards = MakeTestCards(2);
  Records records(3);
  records[0].grant = {ShareOf(0, 1000, 25)};
  records[1].grant = {ShareOf(0, 3000, 10)};
  records[2].grant = {ShareOf(1, 999'999, 0)};
  const auto limits = DaemonLimits(records, cards);
  EXPECT_EQ(limits.at(CardName(0)), (mps::Limits{25, 3000}));
  EXPECT_EQ(limits.at(CardName(1)), (mps::Limits{100, 81920})) << "no more than there is";
}

TEST(MpsModeTest, SeveralGpusOrNoControlProgramAreRefused) {
  Options options;
  options.mps_control = "no-such-mps-control";
  MpsMode mode(options, {});
  Record record;
  record.grant = {ShareOf(0, 1000), ShareOf(1, 1000)};
  const auto two = mode.Serve(record, MakeTestCards(2));
  ASSERT_FALSE(two);
  EXPECT_THAT(two.error().message, HasSubstr("has 2 GPUs"));
  record.grant = {ShareOf(0, 1000)};
  const auto none = mode.Serve(record, MakeTestCards(2));
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("no-such-mps-control is not in $PATH"));
}

TEST(MpsModeTest, MetricsTellTheDaemonsState) {
  mps::Memory memory;
  memory.state = mps::State::kFaulted;
  memory.servers = {{1, mps::ServerStatus::kFault, {2, 3}}};
  memory.restarts = 4;
  const std::string page = RenderMpsMetrics("n", {{"GPU-1", memory}});
  EXPECT_THAT(page, HasSubstr("hami_mps_daemon_state{node=\"n\",device_uuid=\"GPU-1\",state=\"faulted\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("hami_mps_clients{node=\"n\",device_uuid=\"GPU-1\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("hami_mps_daemon_restarts_total{node=\"n\",device_uuid=\"GPU-1\"} 4\n"));
  EXPECT_EQ(RenderMpsMetrics("n", {}), "");
}

// A7
TEST_F(ResponseTest, GivenGrantInOtherOrder_WhenAnswered_ThenLimitsAreInBusOrder) {
  record_.grant = {ShareOf(1, 2000, 20), ShareOf(0, 1000, 10)};
  const Response response = Make();
  EXPECT_EQ(response.environment.at("CUDA_DEVICE_MEMORY_LIMIT_0"), "1000m");
  EXPECT_EQ(response.environment.at("CUDA_DEVICE_MEMORY_LIMIT_1"), "2000m");
  EXPECT_EQ(response.environment.at("CUDA_DEVICE_SM_LIMIT_0"), "10");
  EXPECT_EQ(response.environment.at("CUDA_DEVICE_SM_LIMIT_1"), "20");
  EXPECT_EQ(response.environment.at("HAMI_DEVICE_LIMITS"), CardName(0) + "=1000m:10," + CardName(1) + "=2000m:20");
}

// A7
TEST_F(ResponseTest, GivenGrantWithoutMemory_WhenAnswered_ThenRefusedAsNoLimit) {
  record_.grant = {ShareOf(0, 0)};
  const auto response = MakeResponse(record_, cards_, settings_);
  ASSERT_FALSE(response);
  EXPECT_THAT(response.error().message, HasSubstr("no memory"));
}

TEST_F(ResponseTest, GivenCommonAreas_ThenOnlyOwnCardsAreasAreMountedReadOnly) {
  settings_.common_areas = {CardName(0), CardName(1)};
  const std::string inside = "/run/hami-cpp/gpu-time/", outside = "/usr/local/vgpu/gpu-time/";
  const Response one = Make();
  EXPECT_EQ(one.environment.at("HAMI_COMMON_AREA"), "/run/hami-cpp/gpu-time");
  EXPECT_EQ(one.mounts.back(), (Mount{inside + CardName(0), outside + CardName(0), true}));
  EXPECT_EQ(one.mounts.size(), 5u);
  record_.grant = {ShareOf(1, 2000), ShareOf(0, 1000)};
  const Response both = Make();
  EXPECT_EQ(both.mounts.size(), 6u);
  EXPECT_THAT(both.mounts, Contains(Mount{inside + CardName(1), outside + CardName(1), true}));
}

TEST_F(ResponseTest, GivenCardWithoutCommonArea_WhenAnswered_ThenNoneIsMentioned) {
  settings_.common_areas = {CardName(1)};
  const Response response = Make();
  EXPECT_FALSE(response.environment.contains("HAMI_COMMON_AREA"));
  EXPECT_EQ(response.mounts.size(), 4u);
}

TEST_F(ResponseTest, GivenTwoSharesOfOneGpuWhenAnsweredThenTheyAddUp) {
  record_.grant = {ShareOf(0, 1000, 60), ShareOf(0, 500, 60)};
  EXPECT_EQ(Make().environment.at("CUDA_DEVICE_MEMORY_LIMIT_0"), "1500m");
  EXPECT_EQ(Make().environment.at("CUDA_DEVICE_SM_LIMIT"), "100");
}

TEST_F(ResponseTest, GivenNodeSettingsWhenAnsweredThenTheyShow) {
  cards_.settings.memory_scaling = 1.5;
  cards_.settings.disable_core_limit = true;
  const Response response = Make();
  EXPECT_EQ(response.environment.at("CUDA_OVERSUBSCRIBE"), "true");
  EXPECT_EQ(response.environment.at("GPU_CORE_UTILIZATION_POLICY"), "disable");
}

TEST_F(ResponseTest, GivenIndicesAsNamesWhenAnsweredThenTheyAreUsed) {
  options_.id_strategy = IdStrategy::kIndex;
  record_.grant = {ShareOf(1, 1000)};
  EXPECT_EQ(Make().environment.at("NVIDIA_VISIBLE_DEVICES"), "1");
}

TEST_F(ResponseTest, GivenVolumeMountsWhenAnsweredThenEachDeviceIsAMountOfNull) {
  options_.list_strategies = {ListStrategy::kVolumeMounts};
  settings_.imex_channels = {0};
  const Response response = Make();
  EXPECT_EQ(response.environment.at("NVIDIA_VISIBLE_DEVICES"), "/var/run/nvidia-container-devices");
  EXPECT_THAT(response.mounts, Contains(Mount{"/var/run/nvidia-container-devices/" + CardName(0), "/dev/null", false}));
  EXPECT_THAT(response.mounts, Contains(Mount{"/var/run/nvidia-container-devices/imex/0", "/dev/null", false}));
}

TEST_F(ResponseTest, GivenCdiByAnnotation_ThenNamesMatchSpecsAndKeyStaysTheSame) {
  options_.list_strategies = {ListStrategy::kCdiAnnotations};
  options_.gdrcopy = true;
  settings_.cdi_modes = {"gdrcopy"};
  const Response response = Make();
  EXPECT_THAT(response.annotations,
              ElementsAre(Pair("cdi.k8s.io/nvidia-device-plugin_01", "k8s.device-plugin.nvidia.com/gpu=" + CardName(0) +
                                                                         ",k8s.device-plugin.nvidia.com/gdrcopy=all")));
  EXPECT_THAT(response.environment, Not(Contains(Pair("NVIDIA_VISIBLE_DEVICES", ::testing::_))));
  EXPECT_EQ(response.environment.at("NVIDIA_GDRCOPY"), "enabled") << "in every strategy";
}

TEST_F(ResponseTest, GivenCdiByFieldWhenAnsweredThenTheNamesAreInTheField) {
  options_.list_strategies = {ListStrategy::kCdiCri};
  EXPECT_THAT(Make().cdi_devices, ElementsAre("k8s.device-plugin.nvidia.com/gpu=" + CardName(0)));
}

TEST_F(ResponseTest, GivenDeviceNodes_WhenPassed_ThenTheyComeFromDeviceRoot) {
  options_.pass_device_specs = true;
  options_.dev_root = "/run/nvidia/driver/";
  EXPECT_THAT(Make().devices, ElementsAre(DeviceNode{"/dev/nvidiactl", "/run/nvidia/driver/dev/nvidiactl", "rw"},
                                          DeviceNode{"/dev/nvidia0", "/run/nvidia/driver/dev/nvidia0", "rw"}));
}

TEST_F(ResponseTest, GivenImexChannel_WhenAbsent_ThenLeftOutOrErrorAsWasSaid) {
  options_.imex_channels = {0};
  EXPECT_FALSE(Make().environment.contains("NVIDIA_IMEX_CHANNELS"));
  options_.imex_required = true;
  const auto refused = MakeResponse(record_, cards_, settings_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("IMEX"));
  settings_.imex_channels = {0};
  EXPECT_EQ(Make().environment.at("NVIDIA_IMEX_CHANNELS"), "0");
}

TEST_F(ResponseTest, GivenEveryModeWhenAnsweredThenTheRuntimeIsToldOfEach) {
  options_.gdrcopy = options_.gds = options_.mofed = true;
  const Response response = Make();
  for (const char* name : {"NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"}) {
    EXPECT_EQ(response.environment.at(name), "enabled") << name;
  }
}

// A9: a tenant switches its limits off where the operator does not want that.
TEST_F(ResponseTest, GivenNamespaceMayNotDisableControl_ThenLibraryStaysAndIsTold) {
  const Mount preload = {"/etc/ld.so.preload", "/usr/local/vgpu/ld.so.preload", true};
  const Mount sign = {"/.hami-cpp-control", "/usr/local/vgpu/ld.so.preload", true};
  record_.preload = false;
  EXPECT_THAT(Make().mounts, Not(Contains(::testing::AnyOf(preload, sign)))) << "everybody may, as with HAMi";
  options_.disable_control_in = {"kube-*"};
  EXPECT_THAT(Make().mounts, IsSupersetOf({preload, sign}));
  options_.disable_control_in = {"kube-*", "def*"};
  EXPECT_THAT(Make().mounts, Not(Contains(::testing::AnyOf(preload, sign))));
  record_.assumed = true;
  EXPECT_THAT(Make().mounts, IsSupersetOf({preload, sign})) << "another namespace's pod may be the one";
  record_.alike = true;
  EXPECT_THAT(Make().mounts, Not(Contains(sign))) << "no, whoever it is";
}

TEST_F(ResponseTest, GivenALicenseWhenAnsweredThenItIsMounted) {
  settings_.has_license = true;
  EXPECT_THAT(Make().mounts, Contains(Mount{"/tmp/license", "/usr/local/vgpu/license", true}));
}

TEST(CdiTest, GivenCards_WhenSpecsAreMade_ThenUuidAndIndexNameEveryDevice) {
  Options options;
  options.imex_channels = {0};
  options.gds = true;
  DriverFiles files;
  files.control_nodes = {"/dev/nvidiactl"};
  files.libraries = {{"/usr/lib64/libcuda.so.580.1", "/usr/lib64/libcuda.so.580.1"}};
  files.gds_nodes = {"/dev/nvidia-fs0"};
  const auto specs = MakeCdiSpecs(MakeTestCards(2), files, options);
  ASSERT_EQ(specs.size(), 3u);
  EXPECT_EQ(specs[0].FileName(), "k8s.device-plugin.nvidia.com-gpu.json");
  const auto gpu = base::ParseJson(specs[0].text)->as_object();
  EXPECT_EQ(gpu.at("kind").as_string(), "k8s.device-plugin.nvidia.com/gpu");
  std::vector<std::string> names;
  for (const auto& device : gpu.at("devices").as_array()) names.emplace_back(device.at("name").as_string().c_str());
  EXPECT_THAT(names, ElementsAre(CardName(0), "0", CardName(1), "1", "all"));
  const auto& edits = gpu.at("containerEdits").as_object();
  EXPECT_EQ(edits.at("deviceNodes").at(0).at("path").as_string(), "/dev/nvidiactl");
  EXPECT_EQ(edits.at("mounts").at(0).at("hostPath").as_string(), "/usr/lib64/libcuda.so.580.1");
  EXPECT_EQ(edits.at("hooks").at(0).at("path").as_string(), "/usr/bin/nvidia-ctk");
  EXPECT_EQ(edits.at("hooks").at(0).at("args").at(2).as_string(), "create-symlinks");
  EXPECT_EQ(specs[1].device_class, "imex-channel");
  EXPECT_EQ(specs[2].device_class, "gds");
}

TEST(CdiTest, GivenModeWithoutDeviceNodes_WhenSpecsAreMade_ThenItHasNone) {
  Options options;
  options.mofed = true;
  EXPECT_EQ(MakeCdiSpecs(MakeTestCards(1), {}, options).size(), 1u);
}

TEST(DeviceListTest, GivenUnhealthyCard_ThenAllAndOnlyItsSlotsAreUnhealthy) {
  Cards cards = MakeTestCards(2, 2);
  cards.cards[1].healthy = false;
  cards.cards[1].numa_node = 1;
  EXPECT_THAT(ListSlots(cards),
              ElementsAre(SlotState{SlotId(CardName(0), 0), true, {}}, SlotState{SlotId(CardName(0), 1), true, {}},
                          SlotState{SlotId(CardName(1), 0), false, {}}, SlotState{SlotId(CardName(1), 1), false, {}}));
  cards.settings.numa_topology = true;
  EXPECT_EQ(ListSlots(cards)[3].numa_node, 1);
}

TEST(CardMetricsTest, GivenACardInTroubleWhenScrapedThenItSaysWhy) {
  Cards cards = MakeTestCards(2);
  cards.cards[1].healthy = false;
  cards.cards[1].trouble = "XID 48 (double-bit ECC error)";
  const std::string page = RenderCardMetrics("node-1", cards);
  EXPECT_THAT(page, HasSubstr("{node=\"node-1\",device_uuid=\"" + CardName(0) + "\",reason=\"\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(CardName(1) + "\",reason=\"XID 48 (double-bit ECC error)\"} 0\n"));
}

TEST(DeviceListTest, GivenAResourceWhenItsSocketIsNamedThenItIsHamisName) {
  EXPECT_EQ(SocketName("nvidia.com/gpu"), "nvidia-gpu.sock");
}

// MIG devices that were there before: two on the first GPU.
class PartsTest : public ResponseTest {
 protected:
  PartsTest() {
    for (unsigned i = 0; i < 2; ++i) {
      Card card = cards_.cards[0];
      card.uuid = "MIG-" + std::to_string(i);
      card.minor = 0;
      card.slots = 1;
      card.physical_memory = card.memory = 9984;
      card.part = MigPart{CardName(0), "1g.10gb", i, 7 + i, 0};
      parts_.push_back(std::move(card));
    }
    settings_.mig_minors =
        "config 1\ngpu0/gi7/access 66\ngpu0/gi7/ci0/access 67\ngpu0/gi8/access 75\ngpu0/gi8/ci0/access 76\n";
    options_.pass_device_specs = true;
  }
  static std::vector<std::string> Nodes(const Response& response) {
    std::vector<std::string> paths;
    for (const DeviceNode& node : response.devices) paths.push_back(node.container_path);
    return paths;
  }
  std::vector<Card> parts_;
};

TEST_F(PartsTest, Mixed_IsToBeSeenAndNothingElse) {
  cards_.parts = parts_;
  options_.list_strategies = {ListStrategy::kEnvvar, ListStrategy::kCdiCri};
  const auto response = MakePartResponse({"MIG-1", "MIG-0"}, cards_, settings_);
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_THAT(response->environment, ElementsAre(Pair("NVIDIA_VISIBLE_DEVICES", "MIG-1,MIG-0")));
  EXPECT_THAT(response->mounts, IsEmpty()) << "no scheduler granted anything";
  EXPECT_THAT(response->cdi_devices, ElementsAre(CdiName("gpu", "MIG-1"), CdiName("gpu", "MIG-0")));
  EXPECT_THAT(Nodes(*response), ElementsAre("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap75",
                                            "/dev/nvidia-caps/nvidia-cap76", "/dev/nvidia-caps/nvidia-cap66",
                                            "/dev/nvidia-caps/nvidia-cap67"));
  options_.id_strategy = IdStrategy::kIndex;
  EXPECT_EQ(MakePartResponse({"MIG-1"}, cards_, settings_)->environment.at("NVIDIA_VISIBLE_DEVICES"), "0:1");
}

TEST_F(PartsTest, Mixed_DeviceThatIsGoneIsRefused) {
  cards_.parts = parts_;
  EXPECT_THAT(RenderCardMetrics("n", cards_), HasSubstr("device_uuid=\"MIG-1\",reason=\"\"} 1"));
  EXPECT_THAT(MakePartResponse({"MIG-0", "MIG-9"}, cards_, settings_).error().message,
              HasSubstr("MIG-9 is no MIG device"));
  EXPECT_FALSE(MakePartResponse({}, cards_, settings_));
  settings_.mig_minors.clear();
  EXPECT_THAT(MakePartResponse({"MIG-0"}, cards_, settings_).error().message, HasSubstr("has no capability of MIG-0"));
}

// What the CDI file cannot say of an instance, nobody else says: the container would start and see no device.
TEST_F(PartsTest, CdiAlone_CapabilityThatIsMissingIsRefused) {
  cards_.parts = parts_;
  options_.pass_device_specs = false;
  for (const ListStrategy strategy : {ListStrategy::kCdiCri, ListStrategy::kCdiAnnotations}) {
    options_.list_strategies = {strategy};
    EXPECT_TRUE(MakePartResponse({"MIG-0"}, cards_, settings_));
  }
  const std::string minors = std::exchange(settings_.mig_minors, {});
  EXPECT_THAT(MakePartResponse({"MIG-0"}, cards_, settings_).error().message, HasSubstr("has no capability of MIG-0"));
  cards_.cards = parts_;
  record_.grant = {{"MIG-1", cards_.cards[1].type, 5000, 30}};
  EXPECT_THAT(MakeResponse(record_, cards_, settings_).error().message, HasSubstr("has no capability of MIG-1"));
  options_.list_strategies = {ListStrategy::kEnvvar, ListStrategy::kCdiCri};
  EXPECT_TRUE(MakePartResponse({"MIG-0"}, cards_, settings_)) << "the runtime finds it by its name";
  settings_.mig_minors = minors;
  options_.list_strategies = {ListStrategy::kCdiCri};
  cards_.parts[0].minor.reset();
  EXPECT_THAT(MakePartResponse({"MIG-0"}, cards_, settings_).error().message, HasSubstr("/dev/nvidia<N>"));
}

TEST_F(PartsTest, Single_IsAShareLikeAnyOther) {
  cards_.cards = parts_;
  record_.grant = {{"MIG-1", cards_.cards[1].type, 5000, 30}};
  settings_.common_areas = {"MIG-1", CardName(0)};
  const Response response = Make();
  EXPECT_EQ(response.environment.at("NVIDIA_VISIBLE_DEVICES"), "MIG-1");
  EXPECT_EQ(response.environment.at("HAMI_DEVICE_LIMITS"), "MIG-1=5000m:0") << "the hardware keeps its part of the SMs";
  EXPECT_FALSE(response.environment.contains("HAMI_COMMON_AREA"));
  EXPECT_THAT(Nodes(response), ElementsAre("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap75",
                                           "/dev/nvidia-caps/nvidia-cap76"));
}

TEST_F(PartsTest, Cdi_NamesEachByUuidAndIndex) {
  for (const bool single : {false, true}) {
    Cards cards = MakeTestCards(1);
    cards.cards.clear();
    (single ? cards.cards : cards.parts) = parts_;
    const auto instances = CdiInstancesOf({}, cards, settings_.mig_minors);
    const auto specs = MakeCdiSpecs(cards, {}, options_, instances);
    ASSERT_EQ(specs.size(), 1U);
    const std::string& text = specs[0].text;
    for (const char* part : {"\"MIG-0\"", "\"0:1\"", "/dev/nvidia0", "nvidia-cap75"})
      EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(text, Not(HasSubstr(CardName(0))));
  }
}

}  // namespace
}  // namespace hami::plugin
