// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/fd.h"
#include "base/strings.h"
#include "region/common_area.h"
#include "test/plugin/rig.h"

namespace hami::plugintest {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class PluginProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    rig_.StartPlugin();
    ASSERT_TRUE(rig_.WaitUntilRegistered()) << rig_.plugin().Log();
    cards_ = rig_.CardsOfNode();
    ASSERT_THAT(cards_, SizeIs(2)) << rig_.plugin().Log();
  }

  Rig rig_{"2xH100"};
  std::vector<std::string> cards_;
};

TEST(PluginStartTest, GivenNoLibrary_WhenItStarts_ThenEndsBeforeGpusAreToldOf) {
  Rig rig("1xH100");
  rig.StartPlugin({{"HAMI_LIBVGPU", "/nowhere/libvgpu.so"}});
  EXPECT_EQ(rig.plugin().Wait(plugin::kPatience), 1);
  EXPECT_THAT(rig.plugin().Log(), HasSubstr("/nowhere/libvgpu.so"));
  EXPECT_TRUE(rig.kubelet().registrations().empty());
  EXPECT_EQ(rig.NodeAnnotation("hami.io/node-nvidia-register"), "");
}

TEST(PluginStartTest, GivenNoRoomForTheHelpWhenItIsAskedForThenTheStatusTells) {
  plugin::TempFolder folder;
  for (const char* question : {"--help", "--version"}) {
    testcluster::Child child({"/bin/sh", "-c", base::Concat({HAMI_PLUGIN_PROGRAM, " ", question, " >/dev/full"})}, {},
                             folder.path() + "/log");
    EXPECT_EQ(child.Wait(plugin::kPatience), 1) << question;
    EXPECT_THAT(child.Log(), HasSubstr("can not write"));
  }
}

TEST(PluginStartTest, GivenDriverHangs_WhenStarted_ThenSaysSoIsAliveEndsWhenTold) {
  Rig rig("2xH100");
  rig.Inject("fault call=nvmlDeviceGetMemoryInfo delay_ms=120000");
  rig.StartPlugin();
  EXPECT_TRUE(Eventually([&] { return rig.plugin().Log().find("waiting for the GPU driver") != std::string::npos; }))
      << rig.plugin().Log();
  EXPECT_EQ(rig.Ask("/healthz").status, 200);
  EXPECT_EQ(rig.Ask("/readyz").status, 503);
  rig.plugin().Signal(SIGTERM);
  EXPECT_EQ(rig.plugin().Wait(plugin::kPatience), 0) << rig.plugin().Log();
}

// A node that is not there is nothing that a watch complains about.
TEST(PluginStartTest, WrongNodeName_IsSaidAndNotReady) {
  Rig rig("1xH100");
  rig.api().Remove(kube::kNodes, "", kNode);
  rig.StartPlugin();
  EXPECT_TRUE(Eventually([&] { return rig.plugin().Log().find("there is no node node-1") != std::string::npos; }))
      << rig.plugin().Log();
  EXPECT_THAT(rig.plugin().Log(), HasSubstr("set NODE_NAME from spec.nodeName"));
  EXPECT_TRUE(Eventually([&] { return rig.Ask("/readyz").body.find("there is no node") != std::string::npos; }))
      << rig.Ask("/readyz").body;
}

// A container whose list of libraries to preload is not there would have no limits: it is put back first.
TEST_F(PluginProgramTest, FilesOfTheNodeThatAreGone_AreThereForTheNextContainer) {
  const std::string list = rig_.hook() + "/vgpu/ld.so.preload";
  std::filesystem::remove(list);
  std::filesystem::create_directory(list);  // as a runtime does that is to mount what is not there
  rig_.BindPod("a", {cards_[0]}, 3000, true);
  plugin::PluginClient client(rig_.socket());
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(client.Allocate({cards_[0] + "-0"}, &response).ok()) << rig_.plugin().Log();
  EXPECT_TRUE(std::filesystem::is_regular_file(list));
  EXPECT_THAT(rig_.plugin().Log(), HasSubstr("it is put in place again"));
  // What cannot be put back is said, and nothing is given without it.
  std::filesystem::remove(list);
  std::filesystem::create_directories(list + "/somebody's");
  rig_.BindPod("b", {cards_[0]}, 3000, true);
  EXPECT_THAT(client.Allocate({cards_[0] + "-1"}, &response).error_message(), HasSubstr("not an empty one"));
}

// An update that starts the next one before this one ends: the kubelet goes over to it, and no grant is forgotten.
TEST_F(PluginProgramTest, SecondPluginOfTheNode_TakesOverWithASocketOfItsOwn) {
  rig_.BindPod("a", {cards_[0]}, 3000, true);
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(plugin::PluginClient(rig_.socket()).Allocate({cards_[0] + "-0"}, &response).ok());
  rig_.kubelet().AddHolding("default", "a", "main", "nvidia.com/gpu", {cards_[0] + "-0"});
  rig_.StartSecond();
  ASSERT_TRUE(rig_.kubelet().WaitForRegistrations(2)) << rig_.second().Log();
  const std::string endpoint = rig_.kubelet().registrations().back().endpoint();
  EXPECT_THAT(endpoint, ::testing::MatchesRegex("nvidia-gpu-[0-9a-f]+\\.sock"));
  EXPECT_THAT(rig_.second().Log(), HasSubstr("another device plugin serves nvidia.com/gpu"));
  const std::string socket = rig_.socket().substr(0, rig_.socket().rfind('/') + 1) + endpoint;
  rig_.BindPod("b", {cards_[1]}, 3000, true);
  ASSERT_TRUE(plugin::PluginClient(socket).Allocate({cards_[1] + "-0"}, &response).ok()) << rig_.second().Log();
  rig_.plugin().Signal(SIGTERM);
  EXPECT_EQ(rig_.plugin().Wait(plugin::kPatience), 0) << rig_.plugin().Log();
  const auto text = base::ReadFile(rig_.hook() + "/vgpu/allocations.json", 1 << 20);
  ASSERT_TRUE(text);
  const auto records = base::ParseJson(*text);
  ASSERT_TRUE(records);
  EXPECT_EQ(records->at("records").as_array().size(), 2u) << *text;
  EXPECT_TRUE(Eventually([&] { return rig_.NodeAnnotation("hami-cpp/concurrent-allocate") == "1"; }))
      << "it is the second one's, too";
}

TEST_F(PluginProgramTest, GivenPod_WhenAllocated_ThenItHasShareRegionAndOutcome) {
  plugin::SlotWatcher watcher(rig_.socket());
  EXPECT_THAT(watcher.Next(), SizeIs(20));
  rig_.BindPod("a", {cards_[1]}, 3000, true);
  plugin::PluginClient client(rig_.socket());
  v1beta1::AllocateResponse response;
  const auto writes = rig_.api().Asked("PATCH");
  const grpc::Status done = client.Allocate({cards_[1] + "-3"}, &response);
  ASSERT_TRUE(done.ok()) << done.error_message() << rig_.plugin().Log();
  EXPECT_LE(rig_.api().Asked("PATCH") - writes, 3u);
  const auto& one = response.container_responses(0);
  EXPECT_EQ(one.envs().at("NVIDIA_VISIBLE_DEVICES"), cards_[1]);
  EXPECT_EQ(one.envs().at("CUDA_DEVICE_MEMORY_LIMIT_0"), "3000m");
  EXPECT_EQ(rig_.PodAnnotation("a", "hami.io/bind-phase"), "success");
  EXPECT_EQ(rig_.PodAnnotation("a", "hami.io/vgpu-devices-to-allocate"), ";");
  EXPECT_TRUE(Eventually([&] { return rig_.NodeAnnotation("hami.io/mutex.lock").empty(); }));
  for (const auto& mount : one.mounts()) {
    if (mount.container_path() == "/tmp/vgpulock") continue;
    EXPECT_TRUE(std::filesystem::exists(mount.host_path())) << mount.host_path();
  }
  EXPECT_EQ(rig_.NodeAnnotation("hami-cpp/concurrent-allocate"), "1");
}

TEST_F(PluginProgramTest, GivenNode_WhenServing_ThenOnlyItsPodsAndItselfAreWatchedOnce) {
  rig_.BindPod("a", {cards_[0]}, 3000, true);
  plugin::PluginClient client(rig_.socket());
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(client.Allocate({cards_[0] + "-0"}, &response).ok());
  ASSERT_TRUE(Eventually([&] { return rig_.NodeAnnotation("hami.io/mutex.lock").empty(); }));
  EXPECT_EQ(rig_.api().watching(), 2);
  // What its role has to allow, and no more.
  const std::set<std::string> allowed = {"create events", "get pods",   "list nodes",  "list pods", "patch events",
                                         "patch nodes",   "patch pods", "watch nodes", "watch pods"};
  for (const std::string& permission : rig_.api().Permissions()) {
    EXPECT_TRUE(allowed.contains(permission)) << permission;
  }
}

TEST_F(PluginProgramTest, GivenAnEndedStartWhenAskedThenItIsReadyAndTellsOfItsCards) {
  EXPECT_TRUE(Eventually([&] { return rig_.Ask("/readyz").status == 200; })) << rig_.Ask("/readyz").body;
  EXPECT_EQ(rig_.Ask("/healthz").body, "ok\n");
  const std::string page = rig_.Ask("/metrics").body;
  for (const std::string& card : cards_) {
    EXPECT_THAT(
        page, HasSubstr("hami_device_plugin_gpu_healthy{node=\"node-1\",device_uuid=\"" + card + "\",reason=\"\"} 1"));
  }
  EXPECT_EQ(rig_.Ask("/nowhere").status, 404);
}

TEST_F(PluginProgramTest, GivenAKubeletThatIsGoneWhenAskedThenItIsNotReadyButAlive) {
  ASSERT_TRUE(Eventually([&] { return rig_.Ask("/readyz").status == 200; }));
  rig_.StopKubelet();
  EXPECT_TRUE(Eventually([&] { return rig_.Ask("/readyz").status == 503; })) << rig_.plugin().Log();
  EXPECT_EQ(rig_.Ask("/healthz").status, 200);
}

TEST_F(PluginProgramTest, GivenXid_WhenInjected_ThenSlotsMetricAndAnnotationSaySo) {
  plugin::SlotWatcher watcher(rig_.socket());
  EXPECT_THAT(watcher.Next(), Each(EndsWith(" Healthy")));
  rig_.Inject("xid device=0 code=79");
  const auto now = watcher.Next();
  EXPECT_EQ(std::count_if(now.begin(), now.end(), [](const auto& slot) { return slot.ends_with(" Unhealthy"); }), 10);
  EXPECT_TRUE(Eventually([&] {
    return rig_.NodeAnnotation("hami-cpp/gpu-health").find("XID 79") != std::string::npos &&
           rig_.Ask("/metrics").body.find("XID 79") != std::string::npos;
  })) << rig_.plugin().Log();
}

TEST_F(PluginProgramTest, GivenShare_WhenPluginKilled_ThenCommonAreaWholeAndNextFound) {
  rig_.BindPod("a", {cards_[1]}, 3000, true);
  plugin::PluginClient client(rig_.socket());
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(client.Allocate({cards_[1] + "-3"}, &response).ok());
  const auto& one = response.container_responses(0);
  const std::string inside = one.envs().at("HAMI_COMMON_AREA") + "/" + cards_[1];
  std::string outside;
  for (const auto& mount : one.mounts()) {
    if (mount.container_path() == inside && mount.read_only()) outside = mount.host_path() + "/area";
    EXPECT_EQ(mount.container_path().find(cards_[0]), std::string::npos) << "another GPU's";
  }
  // Containers wait for an answer for 20 ms, and ask again later.
  region::CommonFile area;
  const auto opened = [&](region::CommonFile& file) {
    file = region::OpenCommonArea(outside.c_str());
    return file.area != nullptr;
  };
  ASSERT_TRUE(Eventually([&] { return opened(area); }));
  rig_.KillPlugin();
  EXPECT_TRUE(region::CommonIsWhole(area, outside.c_str()));
  EXPECT_EQ(area.area->magic, region::kCommonMagic);
  rig_.StartPlugin();
  EXPECT_TRUE(Eventually([&] { return !region::CommonIsWhole(area, outside.c_str()); }));
  region::CommonFile next;
  EXPECT_TRUE(Eventually([&] { return opened(next); }));
}

TEST_F(PluginProgramTest, GivenLikePods_WhenKubeletNamesTheOther_ThenBooksFollow) {
  rig_.BindPod("a", {cards_[0]}, 3000, false);
  rig_.BindPod("b", {cards_[1]}, 3000, false);
  plugin::PluginClient client(rig_.socket());
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(client.Allocate({cards_[0] + "-0"}, &response).ok());
  rig_.kubelet().AddHolding("default", "b", "main", "nvidia.com/gpu", {cards_[0] + "-0"});
  EXPECT_TRUE(Eventually([&] {
    return rig_.PodAnnotation("b", "hami.io/vgpu-devices-allocated").find(cards_[0]) != std::string::npos &&
           rig_.PodAnnotation("a", "hami.io/vgpu-devices-allocated").find(cards_[1]) != std::string::npos &&
           rig_.PodAnnotation("a", "hami.io/bind-phase") == "allocating";
  })) << rig_.plugin().Log();
  ASSERT_TRUE(client.Allocate({cards_[1] + "-0"}, &response).ok());
  EXPECT_EQ(response.container_responses(0).envs().at("NVIDIA_VISIBLE_DEVICES"), cards_[1]);
}

TEST_F(PluginProgramTest, GivenKillInMidAllocate_WhenItComesBack_ThenOutcomeIsWritten) {
  rig_.BindPod("a", {cards_[0]}, 3000, true);
  kube::FakeFault slow;
  slow.kind = kube::FakeFault::Kind::kDelay;
  slow.method = "PATCH";
  slow.path_part = "/pods/a";
  slow.delay = std::chrono::milliseconds(1500);
  rig_.api().Add(slow);
  const auto before = rig_.api().Asked("PATCH");
  std::thread caller([&] {
    plugin::PluginClient client(rig_.socket());
    v1beta1::AllocateResponse response;
    EXPECT_FALSE(client.Allocate({cards_[0] + "-0"}, &response).ok());
  });
  EXPECT_TRUE(Eventually([&] { return rig_.api().Asked("PATCH") > before; }));
  rig_.KillPlugin();
  caller.join();
  EXPECT_TRUE(std::filesystem::exists(rig_.hook() + "/vgpu/allocations.json"));
  rig_.SetPodPhase("a", "Failed");  // as the kubelet does
  rig_.StartPlugin();
  ASSERT_TRUE(rig_.WaitUntilRegistered(2)) << rig_.plugin().Log();
  EXPECT_TRUE(Eventually([&] { return rig_.NodeAnnotation("hami.io/mutex.lock").empty(); })) << rig_.plugin().Log();
  EXPECT_NE(rig_.PodAnnotation("a", "hami.io/bind-phase"), "allocating");
  rig_.BindPod("b", {cards_[0]}, 3000, true);
  plugin::PluginClient client(rig_.socket());
  v1beta1::AllocateResponse response;
  EXPECT_TRUE(client.Allocate({cards_[0] + "-0"}, &response).ok()) << rig_.plugin().Log();
}

TEST_F(PluginProgramTest, GivenKubeletRestarts_WhenSocketIsAnother_ThenRegisteredAgain) {
  rig_.RestartKubelet();
  ASSERT_TRUE(rig_.kubelet().WaitForRegistrations(1)) << rig_.plugin().Log();
  plugin::SlotWatcher watcher(rig_.socket());
  EXPECT_THAT(watcher.Next(), SizeIs(20));
}

TEST_F(PluginProgramTest, GivenTermSignal_WhenItEnds_ThenSocketGoneAndItSaysSuccess) {
  ASSERT_TRUE(Eventually([&] { return !rig_.NodeAnnotation("hami-cpp/plugin-alive").empty(); }));
  rig_.plugin().Signal(SIGTERM);
  EXPECT_EQ(rig_.plugin().Wait(plugin::kPatience), 0);
  EXPECT_FALSE(std::filesystem::exists(rig_.socket()));
  // What holds only while it lives is gone with it; what was registered is not.
  EXPECT_EQ(rig_.NodeAnnotation("hami-cpp/concurrent-allocate"), "");
  EXPECT_EQ(rig_.NodeAnnotation("hami-cpp/plugin-alive"), "");
  EXPECT_NE(rig_.NodeAnnotation("hami.io/node-nvidia-register"), "");
  EXPECT_THAT(rig_.plugin().Log(), HasSubstr("stopping on signal Terminated"));
  EXPECT_THAT(rig_.plugin().Log(), HasSubstr("hami-device-plugin: hami-device-plugin "));
}

// Whoever reads its log may go away.
TEST_F(PluginProgramTest, GivenABrokenPipeWhenItIsToldOfOneThenItGoesOn) {
  rig_.plugin().Signal(SIGPIPE);
  rig_.plugin().Signal(SIGHUP);
  EXPECT_TRUE(rig_.kubelet().WaitForRegistrations(2)) << rig_.plugin().Log();
  rig_.plugin().Signal(SIGTERM);
  EXPECT_EQ(rig_.plugin().Wait(plugin::kPatience), 0);
}

TEST_F(PluginProgramTest, GivenAHangUpWhenItServesAnewThenItIsRegisteredAgain) {
  rig_.plugin().Signal(SIGHUP);
  EXPECT_TRUE(rig_.kubelet().WaitForRegistrations(2));
}

TEST_F(PluginProgramTest, GivenASignalThatMeansNothingWhenItComesThenItGoesOn) {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGHUP}) rig_.plugin().Signal(signal);
  EXPECT_TRUE(rig_.kubelet().WaitForRegistrations(2)) << rig_.plugin().Log();
  EXPECT_NE(rig_.plugin().Said("signal ignored: ", "\n"), "");
}

TEST_F(PluginProgramTest, GivenRequestNobodyWaitsFor_WhenAsked_ThenKubeletHearsWhy) {
  plugin::PluginClient client(rig_.socket());
  v1beta1::AllocateResponse response;
  EXPECT_THAT(client.Allocate({cards_[0] + "-0"}, &response).error_message(), HasSubstr("no pod is on its way"));
}

}  // namespace
}  // namespace hami::plugintest
