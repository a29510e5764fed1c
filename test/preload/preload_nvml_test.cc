// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "region/region.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

class NvmlScenario : public Preload, public testing::WithParamInterface<const char*> {};

TEST_P(NvmlScenario, GivenLimitOf1GiB_ThenHolds) { Pass({GetParam()}); }

INSTANTIATE_TEST_SUITE_P(Views, NvmlScenario,
                         testing::Values("nvml_agrees", "nvml_alone", "nvml_init_again", "limit_lowered",
                                         "nvml_sessions", "nvml_uuid_struct", "nvml_utilization_recorded"),
                         [](const testing::TestParamInfo<const char*>& scenario) {
                           return std::string(scenario.param);
                         });

void Await(const std::string& file) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!std::filesystem::exists(file) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_TRUE(std::filesystem::exists(file));
}

TEST_F(Preload, GivenNeighbours_ThenOnlyTheContainersProcessesAreListed) {
  const pid_t foreign = Start({"hold", "1048576", folder() + "/foreign"},
                              {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", folder() + "/other.cache"}});
  const pid_t sibling = Start({"hold", "1048576", folder() + "/sibling"});
  Await(folder() + "/foreign");
  Await(folder() + "/sibling");
  Pass({"nvml_processes", "2"});
  for (const pid_t pid : {foreign, sibling}) {
    kill(pid, SIGKILL);
    Wait(pid);
  }
}

TEST_F(Preload, GivenForeignPidsInNvml_ThenTheContainersOwnAreShown) {
  Pass({"nvml_processes", "1"}, {{"SIMGPU_PID_OFFSET", "100000"}});
}

TEST_F(Preload, GivenForeignPids_WhenTwoStartTogether_ThenEachFindsItself) {
  const std::string a = folder() + "/a";
  const std::string b = folder() + "/b";
  const Environment foreign{{"SIMGPU_PID_OFFSET", "100000"}};
  const pid_t first = Start({"nvml_twins", "104857600", a, b}, foreign);
  const pid_t second = Start({"nvml_twins", "209715200", b, a}, foreign);
  EXPECT_EQ(Wait(first), 0);
  EXPECT_EQ(Wait(second), 0);
}

TEST_F(Preload, GivenBusyNeighbour_ThenUtilisationIsTheContainersOwn) {
  const pid_t foreign =
      Start({"busy", folder() + "/busy"}, {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", folder() + "/other.cache"}});
  Await(folder() + "/busy");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  Pass({"nvml_idle"});
  kill(foreign, SIGKILL);
  Wait(foreign);
}

TEST_F(Preload, GivenFixedDevices_ThenOthersDoNotExistByAnyName) {
  environment_["SIMGPU"] = "3xH100";
  const Outcome listed = Run({"print_uuids"}, {{"LD_PRELOAD", "-"}});
  ASSERT_TRUE(listed.ok()) << listed.err;
  std::istringstream lines(listed.out);
  std::string uuids[3];
  for (std::string& uuid : uuids) ASSERT_TRUE(std::getline(lines, uuid));

  hami::region::Config config;
  config.device_count = 1;
  config.flags = hami::region::kFlagFixedDevices;
  std::strncpy(config.devices[0].uuid, uuids[1].c_str(), hami::region::kUuidBytes - 1);
  config.devices[0].memory_limit = uint64_t{2} << 30;
  ASSERT_EQ(hami::region::Create(region().c_str(), config), hami::region::Status::kOk);
  Pass({"nvml_fixed", uuids[0], uuids[1]});
  Pass({"nvml_ahead"});
  {
    const std::string config_file = folder() + "/lost.cfg";
    std::ofstream(config_file) << "lost device=0\n";
    Pass({"nvml_hidden_device_lost", uuids[1]}, {{"SIMGPU_CONFIG", config_file}, {"SIMGPU_STATE", folder() + "/lost"}});
  }
  Pass({"limits", "2048"}, {{"CUDA_VISIBLE_DEVICES", uuids[1]}});
  // A device that the region does not name is not to be had by naming it.
  Pass({"visible"}, {{"CUDA_VISIBLE_DEVICES", uuids[2]}});
}

// It is ready only after the first context, or not in time.
TEST_F(Preload, GivenNvmlThatOpensSlowly_ThenTheFirstContextCounts) {
  const Outcome listed = Run({"print_uuids"}, {{"LD_PRELOAD", "-"}});
  ASSERT_TRUE(listed.ok()) << listed.err;
  hami::region::Config config;
  config.device_count = 1;
  config.flags = hami::region::kFlagFixedDevices;
  std::strncpy(config.devices[0].uuid, listed.out.substr(0, listed.out.find('\n')).c_str(),
               hami::region::kUuidBytes - 1);
  config.devices[0].memory_limit = uint64_t{2} << 30;
  for (const char* option : {"nvml_percent=100", "nvml_percent=1000", "nvml_percent=100 pid_offset=5000"}) {
    const std::string slow = folder() + "/" + option;
    std::ofstream(slow + ".conf") << "option " << option << "\n";
    ASSERT_EQ(hami::region::Create(slow.c_str(), config), hami::region::Status::kOk);
    const Environment machine{{"SIMGPU_CONFIG", slow + ".conf"}, {"SIMGPU_STATE", slow + ".state"}};
    Environment other = machine, own = machine;
    other["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = slow + ".other";
    own["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = slow;
    const pid_t neighbour = Start({"hold", "104857600", slow + ".holds"}, other);
    Await(slow + ".holds");
    Pass({"context_counts"}, own);
    kill(neighbour, SIGKILL);
    Wait(neighbour);
  }
}

// Two instances of one GPU; the first is the container's.
class Mig : public Preload {
 protected:
  void SetUp() override {
    const Outcome made = Run({"make_mig"}, {{"LD_PRELOAD", "-"}});
    ASSERT_TRUE(made.ok()) << made.err;
    std::istringstream lines(made.out);
    ASSERT_TRUE(std::getline(lines, uuids_[0]) && std::getline(lines, uuids_[1]));
    environment_["CUDA_VISIBLE_DEVICES"] = uuids_[0];
  }
  // A region that names one device, with a limit of 2 GiB.
  void CreateRegionFor(const std::string& uuid) {
    hami::region::Config config;
    config.device_count = 1;
    std::strncpy(config.devices[0].uuid, uuid.c_str(), hami::region::kUuidBytes - 1);
    config.devices[0].memory_limit = uint64_t{2} << 30;
    ASSERT_EQ(hami::region::Create(region().c_str(), config), hami::region::Status::kOk);
  }
  std::string uuids_[2];
};

TEST_F(Mig, GivenRegionThatNamesTheInstance_ThenItsLimitHolds) {
  CreateRegionFor(uuids_[0]);
  Pass({"in_mig", "2048"});
}

TEST_F(Mig, GivenRegionOfTheWholeGpu_ThenTheInstanceIsPartOfIt) { Pass({"in_mig", "1024"}); }

TEST_F(Mig, GivenRegionOfAnotherInstance_ThenTheEnvironmentsLimitHolds) {
  CreateRegionFor(uuids_[1]);
  const Outcome outcome = Run({"in_mig", "1024"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("not in the region"), std::string::npos);
}

}  // namespace
}  // namespace preload
