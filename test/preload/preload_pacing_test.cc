// SPDX-License-Identifier: Apache-2.0
// GPU time of one container under a limit: whatever is launched, and whatever changes meanwhile.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "region/gpu_time.h"
#include "region/region.h"
#include "test/preload/pacing.h"

namespace preload {
namespace {

struct Case {
  const char* shape;
  const char* limit;
  const char* tolerance;
};

class PacedShapes : public Pacing, public testing::WithParamInterface<Case> {};

TEST_P(PacedShapes, GivenLimit_ThenTheDeviceIsBusyThatShareOfTheTime) {
  Pass({"paced", GetParam().shape, GetParam().limit, GetParam().tolerance},
       {{"CUDA_DEVICE_SM_LIMIT", GetParam().limit}});
}

std::string NameOf(const testing::TestParamInfo<Case>& paced) {
  return std::string(paced.param.shape) + paced.param.limit;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PacedShapes,
    testing::Values(Case{"tiny", "50", "5"}, Case{"ex", "50", "5"}, Case{"huge_grid", "25", "5"},
                    Case{"cooperative", "25", "5"},
                    // With a mean of the few that show to have work ahead it would be 34 to 67.
                    Case{"mixed", "25", "3"},
                    // With each grid waited for it would be 57.
                    Case{"anew_mixed", "90", "4"},
                    // Likewise, 67 to 77.
                    Case{"graph_updated", "95", "4"},
                    // With what is longer by less than a gap taken for one it would be 29.
                    Case{"near_sync", "25", "4"},
                    // With too much taken for the gap before the kernel it would be 30.
                    Case{"graph", "25", "5"},
                    // Without overlap known it would be 8.
                    Case{"streams", "25", "5"},
                    // With what the other streams do taken for a kernel's own it would be 29 to 52.
                    Case{"streams32", "50", "4"}),
    NameOf);

// More of the same kinds.
INSTANTIATE_TEST_SUITE_P(
    SlowShapes, PacedShapes,
    testing::Values(Case{"tiny", "25", "5"}, Case{"multi_device", "25", "5"}, Case{"grid_async", "25", "5"},
                    Case{"per_thread", "25", "5"}, Case{"sync50", "50", "6"},
                    // With the long ones taken for somebody else's time it would be 60 to 75.
                    Case{"mixed_sync", "25", "5"}, Case{"mixed", "50", "3"},
                    // With the first dozen measurements all that is known for most of a second it would be 34.
                    Case{"mixed_anew_sync", "25", "5"}, Case{"anew", "90", "4"}, Case{"anew", "25", "4"},
                    Case{"anew_mixed", "25", "4"}, Case{"graph_anew", "25", "4"}, Case{"sync20us", "25", "5"},
                    Case{"streams_narrow", "50", "6"},
                    // With what the other streams do taken for a kernel's own it would be 21 to 96.
                    Case{"streams100", "50", "4"}),
    NameOf);

using SlowPacing = Pacing;

// Looking at streams must not slow down what feeds them: they would overlap less, and be charged too much.
TEST_F(Pacing, GivenStreamsSideBySideAndSlowEvents_ThenTheShareIsTheSame) {
  Pass({"paced", "streams_narrow", "50", "4", "cuEventRecord"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

// What was learnt of short kernels while the host was too slow to be measured on must not stay.
TEST_F(SlowPacing, GivenAHostThatWasSlowAtFirst_ThenTheShareIsRightSoonAfter) {
  Pass({"paced_recovered", "tiny", "50", "4"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

// Neither NVML nor the pids it knows are needed.
TEST_F(SlowPacing, GivenNvmlThatFailsAndForeignPids_ThenTheLimitHolds) {
  std::ofstream(folder() + "/machine.conf") << "fault call=nvml* error=unknown\n";
  for (const char* shape : {"ex", "half", "streams"}) {
    Pass({"paced", shape, "25", "5"}, {{"CUDA_DEVICE_SM_LIMIT", "25"},
                                       {"SIMGPU_CONFIG", folder() + "/machine.conf"},
                                       {"SIMGPU_PID_OFFSET", "100000"}});
  }
}

TEST_F(Pacing, GivenNoLimit_ThenNothingIsHeldBack) {
  Pass({"unpaced"});
  Pass({"unpaced"}, {{"CUDA_DEVICE_SM_LIMIT", "100"}});
  std::filesystem::remove(region());
  Pass({"unpaced"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}, {"GPU_CORE_UTILIZATION_POLICY", "disable"}});
}

TEST_F(Pacing, GivenSwitchOff_ThenOnlyForceLimits) {
  environment_["CUDA_DEVICE_SM_LIMIT"] = "25";
  Pass({"paced", "ex", "25", "5"});
  InRegion([](auto* r) { hami::region::Store(r->utilization_switch, 0); });
  Pass({"unpaced"});
  Pass({"paced", "ex", "25", "5"}, {{"GPU_CORE_UTILIZATION_POLICY", "force"}});
}

TEST_F(Pacing, GivenSeveralProcesses_ThenTheyShareOneLimit) {
  environment_["CUDA_DEVICE_SM_LIMIT"] = "50";
  for (const char* name : {"a", "b", "c", "d"}) Begin(name);
  ExpectShare("all", "1.5", "50", "6");
  for (const char* name : {"a", "b", "c", "d"}) End(name);
}

TEST_F(Pacing, GivenKilledProcess_ThenTheOthersHaveTheWholeShare) {
  environment_["CUDA_DEVICE_SM_LIMIT"] = "50";
  Begin("survivor");
  EXPECT_NE(Wait(Start({"paced_victim"})), 0);
  ExpectShare("all", "0.5", "50", "6");
  End("survivor");
}

TEST_F(Pacing, GivenCapture_ThenItIsLeftAlone) { Pass({"paced_capture"}, {{"CUDA_DEVICE_SM_LIMIT", "10"}}); }

TEST_F(Pacing, GivenUnseenLongKernels_ThenEachPaidForBeforeNextOfItsStream) {
  for (const char* limit : {"10", "50"}) {
    std::filesystem::remove(region());
    Pass({"paced_long", limit}, {{"CUDA_DEVICE_SM_LIMIT", limit}});
  }
}

TEST_F(Pacing, GivenLaunchHeldBehindUnseenOne_WhenLimitIsLifted_ThenItGoes) {
  const pid_t held = Start({"paced_lifted"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
  WaitFor("running");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Touch("changed");
  InRegion([](auto* r) { hami::region::Store(r->sm_limit[0], 0u); });
  EXPECT_EQ(Wait(held), 0);
}

TEST_F(SlowPacing, GivenKernelLongerThanThoseBefore_ThenPaidForBeforeNextOne) {
  Pass({"paced_longer"}, {{"CUDA_DEVICE_SM_LIMIT", "95"}});
}

TEST_F(SlowPacing, GivenAGraphThatIsUpdatedForEachLaunch_ThenItHasItsShare) {
  Pass({"paced_updates"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

TEST_F(Pacing, GivenFork_ThenTheChildIsLimitedToo) { Pass({"paced_fork"}, {{"CUDA_DEVICE_SM_LIMIT", "25"}}); }

TEST_F(Pacing, WhenTheLimitChanges_ThenTheRunningProgramFollows) {
  const pid_t lower = Start({"paced_change", "20"}, {{"CUDA_DEVICE_SM_LIMIT", "80"}});
  WaitFor("running");
  InRegion([](auto* r) { hami::region::Store(r->sm_limit[0], 20u); });
  Touch("changed");
  EXPECT_EQ(Wait(lower), 0);
}

TEST_F(Pacing, WhenALimitComesToAnUnlimitedProgram_ThenItFollows) {
  const pid_t program = Start({"paced_change", "30"});
  WaitFor("running");
  InRegion([](auto* r) { hami::region::Store(r->sm_limit[0], 30u); });
  Touch("changed");
  EXPECT_EQ(Wait(program), 0);
}

TEST_F(Pacing, WhenTheMonitorBlocks_ThenNothingRunsUntilItReleases) {
  for (const char* limit : {"50", "0"}) {  // an unlimited task can be blocked, too
    for (const char* name : {"running", "changed", "stopped", "released", "done"}) {
      std::filesystem::remove(folder() + "/" + name);
    }
    std::filesystem::remove(region());
    const pid_t program = Start({"paced_blocked"}, {{"CUDA_DEVICE_SM_LIMIT", limit}});
    WaitFor("running");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    InRegion([](auto* r) { hami::region::Store(r->recent_kernel, -1); });
    Touch("changed");
    WaitFor("stopped");
    InRegion([](auto* r) {
      EXPECT_EQ(hami::region::Load(r->recent_kernel), -1);
      hami::region::Store(r->recent_kernel, 0);
    });
    Touch("released");
    EXPECT_EQ(Wait(program), 0);
    // And it reports itself.
    InRegion([](auto* r) {
      EXPECT_EQ(hami::region::Load(r->recent_kernel), 2);
      EXPECT_NE(hami::region::Load(r->last_kernel_time), 0u);
    });
  }
}

// A task that says that it gives way has little in flight, whatever its limit.
TEST_F(Pacing, GivenLowPriority_WhenMonitorBlocks_ThenStopsWithinAQuantum) {
  environment_["CUDA_TASK_PRIORITY"] = "1";
  for (const char* limit : {"0", "50"}) {
    for (const char* shape : {"tiny", "half", "streams"}) {
      ExpectObeyed(shape, limit, 4, 400, [](auto* r) { hami::region::Store(r->recent_kernel, -1); });
    }
  }
}

// What is in flight is of all processes together.
TEST_F(Pacing, GivenEightOfLowPriority_WhenMonitorBlocks_ThenStopInAQuantum) {
  environment_["CUDA_TASK_PRIORITY"] = "1";
  ExpectObeyed(
      "ex", "0", 4, 800, [](auto* r) { hami::region::Store(r->recent_kernel, -1); }, 7);
}

// It takes no turns, and within a segment its slices are measured as ours. Without NVML's figures 3 ms kernels have 15.
TEST_F(SlowPacing, GivenAStranger_ThenNvmlKeepsTheLimit) {
  environment_["SIMGPU_PID_OFFSET"] = "1000";
  Begin("stranger", {{"LD_PRELOAD", "-"}}, "paced_worker", "half");
  Begin("limited", {{"CUDA_DEVICE_SM_LIMIT", "30"}}, "paced_worker", "ms3");
  ExpectShare("limited", "8", "30", "4", "3");
  for (const char* name : {"stranger", "limited"}) End(name);
}

TEST_F(SlowPacing, GivenUnreachedLimitBesideStranger_ThenObeysAsSoonAsAlone) {
  Begin("other", {{"LD_PRELOAD", "-"}});
  ExpectObeyed("half", "90", 10, 6000, [](auto* r) { hami::region::Store(r->recent_kernel, -1); });
  End("other");
}

TEST_F(Pacing, GivenStreamsSideBySide_ThenTheyAreLetGoTogether) {
  Pass({"paced_side_by_side", "7.4"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

// Held until the long ones are paid for, the short ones would have a thousandth of the time. Whether there is room for
// both, what is busy is what the limit says.
TEST_F(Pacing, GivenLongLaunches_ThenShortOnOtherStreamGoOn_AndLimitHolds) {
  Pass({"paced_lagging", "40", "50", "1.5"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
  Pass({"paced_lagging", "0", "50", "1.5", "264"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

// 100 for limits and orders; what is measured, the launcher collects.
TEST_F(Pacing, GivenALauncherThatComesBy_ThenTheHelperWakesForLimitsAlone) {
  Pass({"paced_wakes", "130"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

TEST_F(Pacing, GivenKernelsThatTakeNothing_ThenNextToNothingIsCharged) {
  Pass({"paced_nothing"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
  hami::region::Attachment attachment;
  ASSERT_EQ(hami::region::Open(&attachment, region().c_str()), hami::region::Status::kOk);
  const uint64_t charged = hami::region::Load(hami::region::GpuTimeOf(attachment.area)->devices[0].charged);
  EXPECT_GT(charged, 0u);
  EXPECT_LT(charged, 100'000u * 500);
  hami::region::Detach(&attachment);
}

}  // namespace
}  // namespace preload
