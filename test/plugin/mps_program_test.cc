// SPDX-License-Identifier: Apache-2.0
// The plugin on a node in mode mps: daemons, containers, accidents, and changes of the mode.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "base/fd.h"
#include "base/strings.h"
#include "test/plugin/rig.h"

namespace hami::plugintest {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class MpsProgramTest : public ::testing::Test {
 protected:
  ~MpsProgramTest() override {
    // The daemons outlive the plugin, which would start them anew.
    rig_.KillPlugin();
    if (rig_.NodeAnnotation("hami.io/node-nvidia-register").empty()) return;
    for (const std::string& card : rig_.CardsOfNode()) {
      if (const int pid = DaemonOf(card); pid > 0) ::kill(pid, SIGKILL);
    }
  }

  void Start(const std::string& mode, const std::string& program = SIMGPU_MPS_CONTROL,
             const char* exclusive = "false") {
    SetMode(mode);
    rig_.StartPlugin({{"MPS_CONTROL", program}, {"MPS_ROOT", Root()}, {"MPS_EXCLUSIVE", exclusive}});
    ASSERT_TRUE(rig_.WaitUntilRegistered()) << rig_.plugin().Log();
    ASSERT_TRUE(Eventually([&] { return Registered(mode); })) << rig_.plugin().Log();
    cards_ = rig_.CardsOfNode();
    ASSERT_THAT(cards_, SizeIs(2));
  }
  void SetMode(const std::string& mode) const {
    rig_.WriteNodeConfig(R"({"nodeconfig":[{"name":"node-1","operatingmode":")" + mode + "\"}]}");
  }
  bool Registered(const std::string& mode) const {
    return rig_.NodeAnnotation("hami.io/node-nvidia-register").find("\"mode\":\"" + mode + "\"") != std::string::npos;
  }
  bool Logged(const std::string& text) { return rig_.plugin().Log().find(text) != std::string::npos; }
  bool Shows(const std::string& text) { return rig_.Ask("/metrics").body.find(text) != std::string::npos; }
  std::string Root() const { return rig_.folder() + "/mps"; }
  int DaemonOf(const std::string& card) const {
    const auto text = base::ReadFile(Root() + "/" + card + "/pipe/nvidia-cuda-mps-control.pid", 32);
    return text ? static_cast<int>(base::ParseNumber(base::Trim(*text)).value_or(0)) : 0;
  }
  v1beta1::ContainerAllocateResponse Allocate(const std::string& pod, const std::string& slot) {
    rig_.BindPod(pod, {slot.substr(0, slot.rfind('-'))}, 3000, true);
    plugin::PluginClient client(rig_.socket());
    v1beta1::AllocateResponse response;
    const grpc::Status done = client.Allocate({slot}, &response);
    EXPECT_TRUE(done.ok()) << done.error_message() << rig_.plugin().Log();
    rig_.kubelet().AddHolding("default", pod, "main", "nvidia.com/gpu", {slot});
    return response.container_responses_size() == 0 ? v1beta1::ContainerAllocateResponse()
                                                    : response.container_responses(0);
  }

  // As the kubelet does once the containers have ended, from Kubernetes 1.34 on and before.
  void End(const std::string& pod) {
    rig_.kubelet().ForgetHoldings();
    EndStillNamed(pod);
  }
  void EndStillNamed(const std::string& pod) { rig_.SetPodPhase(pod, "Succeeded"); }

  Rig rig_{"2xH100"};
  std::vector<std::string> cards_;
};

TEST_F(MpsProgramTest, AContainerIsAClientOfItsGpusDaemon) {
  Start("mps");
  EXPECT_EQ(DaemonOf(cards_[0]), 0) << "started with the first container";
  const auto one = Allocate("a", cards_[0] + "-0");
  EXPECT_GT(DaemonOf(cards_[0]), 0);
  EXPECT_EQ(DaemonOf(cards_[1]), 0);
  EXPECT_EQ(one.envs().at("CUDA_MPS_PIPE_DIRECTORY"), "/tmp/nvidia-mps");
  EXPECT_EQ(one.envs().at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=3000M");
  EXPECT_EQ(one.envs().at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "30");
  EXPECT_EQ(one.envs().at("GPU_CORE_UTILIZATION_POLICY"), "disable");
  const auto pipe = std::find_if(one.mounts().begin(), one.mounts().end(),
                                 [](const auto& mount) { return mount.container_path() == "/tmp/nvidia-mps"; });
  ASSERT_NE(pipe, one.mounts().end());
  EXPECT_TRUE(std::filesystem::exists(pipe->host_path() + "/control"));
  EXPECT_TRUE(Shows("hami_mps_daemon_state{node=\"node-1\",device_uuid=\"" + cards_[0] + "\",state=\"running\"} 1"))
      << rig_.Ask("/metrics").body;
}

TEST_F(MpsProgramTest, AKilledDaemonIsTakenOutAndStartedAnew) {
  Start("mps");
  Allocate("a", cards_[0] + "-0");
  plugin::SlotWatcher watcher(rig_.socket());
  EXPECT_THAT(watcher.Next(), Each(EndsWith(" Healthy")));
  const int first = DaemonOf(cards_[0]);
  ASSERT_GT(first, 0);
  ::kill(first, SIGKILL);
  const auto out = watcher.Next();
  EXPECT_EQ(std::count_if(out.begin(), out.end(), [](const auto& slot) { return slot.ends_with(" Unhealthy"); }), 10)
      << "of the one GPU";
  EXPECT_THAT(watcher.Next(), Each(EndsWith(" Healthy")));
  EXPECT_NE(DaemonOf(cards_[0]), first);
  EXPECT_TRUE(Shows("hami_mps_daemon_restarts_total{node=\"node-1\",device_uuid=\"" + cards_[0] + "\"} 1"));
  EXPECT_TRUE(Logged("the MPS control daemon is down: its process ended"));
  EXPECT_TRUE(Eventually([&] { return rig_.api().Asked("POST") > 0; })) << "an event says so";
}

TEST_F(MpsProgramTest, ThePluginsEndIsNotTheDaemons) {
  Start("mps");
  Allocate("a", cards_[0] + "-0");
  const int first = DaemonOf(cards_[0]);
  rig_.plugin().Signal(SIGTERM);
  EXPECT_EQ(rig_.plugin().Wait(plugin::kPatience), 0) << rig_.plugin().Log();
  rig_.StartPlugin({{"MPS_CONTROL", SIMGPU_MPS_CONTROL}, {"MPS_ROOT", Root()}});
  EXPECT_TRUE(Eventually([&] { return Shows("state=\"running\"} 1"); })) << rig_.plugin().Log();
  EXPECT_EQ(DaemonOf(cards_[0]), first);
  EXPECT_TRUE(Shows("hami_mps_daemon_restarts_total{node=\"node-1\",device_uuid=\"" + cards_[0] + "\"} 0"));
}

TEST_F(MpsProgramTest, TheModeWaitsForThePodsThatUseTheOldOne) {
  Start("hami-core");
  Allocate("a", cards_[0] + "-0");
  SetMode("mps");
  EXPECT_TRUE(Eventually([&] { return Logged("from hami-core to mps while its GPUs are in use: pod default/a"); }))
      << rig_.plugin().Log();
  EXPECT_TRUE(Registered("hami-core"));
  End("a");
  EXPECT_TRUE(Eventually([&] { return Registered("mps"); })) << rig_.plugin().Log();
  EXPECT_FALSE(Registered("hami-core"));
}

TEST_F(MpsProgramTest, LeavingTheModeEndsTheDaemons) {
  Start("mps");
  Allocate("a", cards_[0] + "-0");
  const int daemon = DaemonOf(cards_[0]);
  SetMode("hami-core");
  EXPECT_TRUE(Eventually([&] { return Logged("while its GPUs are in use: pod default/a"); })) << rig_.plugin().Log();
  EXPECT_EQ(::kill(daemon, 0), 0);
  End("a");
  EXPECT_TRUE(Eventually([&] { return Registered("hami-core"); })) << rig_.plugin().Log();
  EXPECT_TRUE(Eventually([&] { return ::kill(daemon, 0) != 0; }));
}

TEST_F(MpsProgramTest, ExclusiveProcess_HoldsAsLongAsTheMode) {
  Start("mps", SIMGPU_MPS_CONTROL, "true");
  Allocate("a", cards_[0] + "-0");
  for (const std::string& card : cards_) EXPECT_TRUE(Logged("the compute mode of " + card + " is EXCLUSIVE_PROCESS"));
  SetMode("hami-core");
  EXPECT_TRUE(Eventually([&] { return Logged("while its GPUs are in use: pod default/a"); })) << rig_.plugin().Log();
  End("a");
  EXPECT_TRUE(Eventually([&] { return Registered("hami-core"); })) << rig_.plugin().Log();
  for (const std::string& card : cards_) EXPECT_TRUE(Logged("the compute mode of " + card + " is DEFAULT again"));
}

// The kubelet names a pod that has ended until it admits the next one, or it does not.
TEST_F(MpsProgramTest, TheModeIsLeftThoughThePodEndedJustBefore) {
  Start("mps", SIMGPU_MPS_CONTROL, "true");
  for (int round = 0; round < 4; ++round) {
    const std::string pod = "a" + std::to_string(round);
    Allocate(pod, cards_[0] + "-0");
    round % 2 == 0 ? EndStillNamed(pod) : End(pod);
    SetMode("hami-core");
    ASSERT_TRUE(Eventually([&] { return Registered("hami-core"); })) << round << rig_.plugin().Log();
    SetMode("mps");
    ASSERT_TRUE(Eventually([&] { return Registered("mps"); })) << round << rig_.plugin().Log();
    rig_.kubelet().ForgetHoldings();
  }
}

TEST_F(MpsProgramTest, WithoutAControlProgramNothingIsGivenOut) {
  Start("mps", "no-such-mps-control");
  EXPECT_TRUE(Eventually([&] { return Shows("reason=\"MPS: no-such-mps-control is not in $PATH\"} 0"); }))
      << rig_.Ask("/metrics").body;
  EXPECT_TRUE(Logged("no-such-mps-control is not in $PATH"));
}

}  // namespace
}  // namespace hami::plugintest
