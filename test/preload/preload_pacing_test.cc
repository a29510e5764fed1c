// SPDX-License-Identifier: Apache-2.0
// Bounds are generous, as the machine that runs this may have better things to do; `make bench-sm` is the exact one.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "region/common_area.h"
#include "region/gpu_time.h"
#include "region/region.h"
#include "region/remote.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

struct Case {
  const char* shape;
  const char* limit;
  const char* tolerance;
};

class Pacing : public Preload {
 protected:
  Pacing() { environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "8g"; }
  ~Pacing() override {  // who is at work after a failure
    for (const auto& [_, pid] : at_work_) {
      kill(pid, SIGKILL);
      Wait(pid);
    }
  }
  void WaitFor(const char* name) {
    for (int i = 0; i < 10'000 && !std::filesystem::exists(folder() + "/" + name); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(std::filesystem::exists(folder() + "/" + name)) << name;
  }
  void Touch(const std::string& name) { std::ofstream(folder() + "/" + name) << "x"; }
  // A program that is at work until End(name).
  void Begin(const std::string& name, const Environment& settings = {}, const char* scenario = "paced_worker") {
    std::filesystem::remove(folder() + "/" + name + "_ends");
    at_work_[name] = Start({scenario, name + "_ends"}, settings);
  }
  void End(const std::string& name) {
    Touch(name + "_ends");
    EXPECT_EQ(Wait(at_work_.at(name)), 0) << name;
    at_work_.erase(name);
  }
  // Of one that is at work, or of all together.
  void ExpectShare(const std::string& name, const char* delay, const char* percent, const char* tolerance) {
    std::vector<std::string> observer{"paced_share_of", delay, "1", percent, tolerance};
    observer.push_back(name == "all" ? "0" : std::to_string(at_work_.at(name)));
    for (const auto& [_, pid] : at_work_) observer.push_back(std::to_string(pid));
    Pass(observer, {{"LD_PRELOAD", "-"}});
  }
  template <typename Change>
  void InRegion(Change change) {
    hami::region::Attachment attachment;
    ASSERT_EQ(hami::region::Open(&attachment, region().c_str()), hami::region::Status::kOk);
    change(attachment.region);
    hami::region::Detach(&attachment);
  }
  // A `paced_stop` whose region is changed after `ms` has at most so many ms of the GPU's time in the 100 ms after it.
  // A library that does not obey has too many every time, a host that has no processor for it now and then: three
  // tries.
  template <typename Change>
  void ExpectObeyed(const char* shape, const char* limit, double most, int ms, Change change, int peers = 0) {
    constexpr int kTries = 3;
    double least = 100;
    for (int i = 0; i < kTries && least > most && !HasFatalFailure(); ++i) {
      least = std::min(least, MsAfterOrder(shape, limit, ms, change, peers));
    }
    EXPECT_LE(least, most) << "ms on the GPU after the order, " << shape << " limited to " << limit;
  }
  template <typename Change>
  double MsAfterOrder(const char* shape, const char* limit, int ms, Change change, int peers) {
    for (const char* name : {"running", "ordered", "done"}) std::filesystem::remove(folder() + "/" + name);
    std::filesystem::remove(region());
    const Environment settings{{"CUDA_DEVICE_SM_LIMIT", limit}};
    std::vector<std::string> stop{"paced_stop", shape};
    for (int i = 0; i < peers; ++i) {
      const std::string name = "peer" + std::to_string(i);
      Begin(name, settings);
      stop.push_back(std::to_string(at_work_.at(name)));
    }
    const pid_t program = Start(stop, settings);
    WaitFor("running");
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    std::chrono::nanoseconds now{};
    InRegion([&](auto* r) {
      change(r);
      now = std::chrono::steady_clock::now().time_since_epoch();
    });
    std::ofstream(folder() + "/new") << now.count();
    std::filesystem::rename(folder() + "/new", folder() + "/ordered");
    WaitFor("done");
    InRegion([](auto* r) { hami::region::Store(r->recent_kernel, 0); });
    EXPECT_EQ(Wait(program), 0) << shape << " " << limit;
    for (int i = 0; i < peers; ++i) End("peer" + std::to_string(i));
    double ns = 1e9;
    std::ifstream(folder() + "/done") >> ns;
    return ns / 1e6;
  }
  std::map<std::string, pid_t> at_work_;
};

class PacedShapes : public Pacing, public testing::WithParamInterface<Case> {};

TEST_P(PacedShapes, GivenLimit_ThenTheDeviceIsBusyThatShareOfTheTime) {
  Pass({"paced", GetParam().shape, GetParam().limit, GetParam().tolerance},
       {{"CUDA_DEVICE_SM_LIMIT", GetParam().limit}});
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PacedShapes,
    testing::Values(Case{"tiny", "25", "5"}, Case{"tiny", "50", "5"}, Case{"ex", "50", "5"},
                    Case{"huge_grid", "25", "5"}, Case{"cooperative", "25", "5"}, Case{"multi_device", "25", "5"},
                    Case{"grid_async", "25", "5"}, Case{"per_thread", "25", "5"}, Case{"sync50", "50", "6"},
                    // With the long ones taken for somebody else's time it would be 60 to 75.
                    Case{"mixed", "25", "5"}, Case{"mixed", "50", "5"}, Case{"mixed_sync", "25", "5"},
                    // With the first dozen measurements all that is known for most of a second it would be 34.
                    Case{"mixed_anew_sync", "25", "5"},
                    // With what is longer by less than a gap taken for one it would be 29.
                    Case{"near_sync", "25", "4"},
                    // With too much taken for the gap before the kernel it would be 30.
                    Case{"sync20us", "25", "5"}, Case{"graph", "25", "5"},
                    // Without overlap known it would be 8.
                    Case{"streams", "25", "5"}, Case{"streams_narrow", "50", "6"},
                    // With what the other streams do taken for a kernel's own it would be 29 to 52, and 21 to 96.
                    Case{"streams32", "50", "4"}, Case{"streams100", "50", "4"}),
    [](const testing::TestParamInfo<Case>& paced) { return std::string(paced.param.shape) + paced.param.limit; });

// Looking at streams must not slow down what feeds them: they would overlap less, and be charged too much.
TEST_F(Pacing, GivenStreamsSideBySideAndSlowEvents_ThenTheShareIsTheSame) {
  Pass({"paced", "streams_narrow", "50", "4", "cuEventRecord"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

// What was learnt of short kernels while the host was too slow to be measured on must not stay.
TEST_F(Pacing, GivenAHostThatWasSlowAtFirst_ThenTheShareIsRightSoonAfter) {
  Pass({"paced_recovered", "tiny", "50", "4"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

// Neither NVML nor the pids it knows are needed.
TEST_F(Pacing, GivenNvmlThatFailsAndForeignPids_ThenTheLimitHolds) {
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

TEST_F(Pacing, GivenLongKernelsThatWereNeverSeen_ThenEachIsPaidForBeforeTheNextOneOfItsStream) {
  for (const char* limit : {"10", "50"}) {
    std::filesystem::remove(region());
    Pass({"paced_long", limit}, {{"CUDA_DEVICE_SM_LIMIT", limit}});
  }
}

TEST_F(Pacing, GivenALaunchHeldBehindOneThatWasNeverSeen_WhenThereIsNoLimitAnyMore_ThenItGoes) {
  const pid_t held = Start({"paced_lifted"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
  WaitFor("running");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Touch("changed");
  InRegion([](auto* r) { hami::region::Store(r->sm_limit[0], 0u); });
  EXPECT_EQ(Wait(held), 0);
}

TEST_F(Pacing, GivenALongKernelThatTakesLongerThanThoseBefore_ThenThatIsPaidForBeforeTheNextOne) {
  Pass({"paced_longer"}, {{"CUDA_DEVICE_SM_LIMIT", "95"}});
}

TEST_F(Pacing, GivenAGraphThatIsUpdatedForEachLaunch_ThenItHasItsShare) {
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
TEST_F(Pacing, GivenLowPriority_WhenTheMonitorBlocks_ThenItStopsWithinAQuantum) {
  environment_["CUDA_TASK_PRIORITY"] = "1";
  for (const char* limit : {"0", "50"}) {
    for (const char* shape : {"tiny", "half", "streams"}) {
      ExpectObeyed(shape, limit, 4, 400, [](auto* r) { hami::region::Store(r->recent_kernel, -1); });
    }
  }
}

// What is in flight is of all processes together.
TEST_F(Pacing, GivenLowPriorityAndEightProcesses_WhenTheMonitorBlocks_ThenTheyStopWithinAQuantum) {
  environment_["CUDA_TASK_PRIORITY"] = "1";
  ExpectObeyed(
      "ex", "0", 4, 800, [](auto* r) { hami::region::Store(r->recent_kernel, -1); }, 7);
}

// Containers, each with a region of its own, that meet in a common area.
class SharedGpu : public Pacing {
 protected:
  SharedGpu() {
    environment_["HAMI_COMMON_AREA"] = common();
    EXPECT_TRUE(hami::region::CreateCommonArea(common().c_str()));
  }
  std::string common() const { return folder() + "/common"; }
  Environment Container(const char* name, Environment settings) {
    settings["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = folder() + "/" + name;
    return settings;
  }
};

TEST_F(SharedGpu, GivenAKernelOfWhichOneInTwentyTakesThreeHundredTimesAsLong_ThenTheShareIsRight) {
  Pass({"paced", "rare", "25", "4"}, Container("alone", {{"CUDA_DEVICE_SM_LIMIT", "25"}}));
}

TEST_F(SharedGpu, WhenAKernelComesToTakeAHundredTimesAsLong_ThenThatIsMadeUpFor) {
  Pass({"paced_switch", "25", "7"}, Container("alone", {{"CUDA_DEVICE_SM_LIMIT", "25"}}));
}

TEST_F(SharedGpu, WhenTheImportantIsAtWork_ThenTheOtherStopsAndReturns) {
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  ExpectShare("low", "0.8", "100", "25");
  Begin("high", Container("high", {{"CUDA_TASK_PRIORITY", "0"}}));
  ExpectShare("low", "0.8", "0", "10");
  End("high");
  ExpectShare("low", "0.3", "65", "40");  // with little in flight, while the other may come back
  End("low");
}

TEST_F(SharedGpu, GivenAnImportantOneWithIdleTime_ThenTheOtherUsesIt_WhoeverCameFirst) {
  for (const bool low_first : {true, false}) {
    const auto low = [&] { Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}})); };
    const auto high = [&] { Begin("high", Container("high", {{"CUDA_TASK_PRIORITY", "0"}}), "paced_server"); };
    low_first ? low() : high();
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    low_first ? high() : low();
    ExpectShare("low", "1", "55", "30");
    End("low");
    End("high");
  }
}

// Who shares the GPU with somebody who wants all of it never has to wait for a limit of 90: what is queued is what a
// change or an order has to wait for. 20 ms of the clock are 10 of each.
TEST_F(SharedGpu, GivenALimitThatIsNotReachedBesideAnother_ThenOrdersAreObeyedAsSoonAsAlone) {
  Begin("other", Container("other", {}));
  for (const char* shape : {"half", "ex", "streams"}) {
    ExpectObeyed(shape, "90", 10, 800, [](auto* r) { hami::region::Store(r->recent_kernel, -1); });
    ExpectObeyed(shape, "90", 30, 800, [](auto* r) { hami::region::Store(r->sm_limit[0], 20u); });
  }
  End("other");
}

TEST_F(SharedGpu, GivenEightProcessesThatDoNotReachTheirLimit_ThenOrdersAreObeyedAsSoonAsByOne) {
  Begin("other", Container("other", {}));
  ExpectObeyed(
      "ex", "90", 12, 800, [](auto* r) { hami::region::Store(r->recent_kernel, -1); }, 7);
  ExpectObeyed(
      "ex", "90", 32, 800, [](auto* r) { hami::region::Store(r->sm_limit[0], 20u); }, 7);
  End("other");
}

// What bounds the work in flight must not hold what the GPU waits for.
TEST_F(SharedGpu, GivenALaunchThatTheGpuWaitsForBehindOthers_ThenItIsNotHeldForLong) {
  Begin("other", Container("other", {}));
  Pass({"paced_own_wait"}, Container("waits", {{"CUDA_DEVICE_SM_LIMIT", "90"}}));
  Pass({"paced_lagging"}, Container("lags", {{"CUDA_DEVICE_SM_LIMIT", "90"}}));
  End("other");
}

// Where nobody tells, NVML does after some seconds.
TEST_F(Pacing, GivenALimitThatIsNotReachedBesideAStranger_ThenOrdersAreObeyedAsSoonAsAlone) {
  Begin("other", {{"LD_PRELOAD", "-"}});
  ExpectObeyed("half", "90", 10, 6000, [](auto* r) { hami::region::Store(r->recent_kernel, -1); });
  End("other");
}

// A pod that asks for no priority has none in its environment, and its rank is 1.
TEST_F(SharedGpu, GivenOneThatNamesNoPriority_ThenItGivesWayToTheImportant) {
  for (const char* limit : {"0", "90"}) {
    Begin("plain", Container(limit, {{"CUDA_DEVICE_SM_LIMIT", limit}}));
    Pass({"paced_requests", "2"}, Container("high", {{"CUDA_TASK_PRIORITY", "0"}}));
    End("plain");
  }
}

// What one process tells the others must not hide what another one of its container has under way.
TEST_F(SharedGpu, GivenAnImportantOneOfTwoProcesses_ThenItsLongRequestsGoBeforeTheOther) {
  const Environment high = Container("high", {{"CUDA_TASK_PRIORITY", "0"}});
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  Begin("blips", high, "paced_blips");
  Pass({"paced_requests", "8"}, high);
  End("blips");
  End("low");
}

// Who has a context will launch. A host that holds up this one between two launches leaves the GPU to the other: the
// least of three counts.
TEST_F(SharedGpu, GivenAnImportantOneThatBegins_ThenItsFirstRequestGoesBeforeTheOther) {
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  double least = 1e9;
  for (int i = 0; i < 3 && least > 1.5e6; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 500 : 2300));  // the other forgets who was there
    Pass({"paced_first_request"}, Container(std::to_string(i).c_str(), {{"CUDA_TASK_PRIORITY", "0"}}));
    double others = 1e9;
    std::ifstream(folder() + "/others_ns") >> others;
    least = std::min(least, others);
  }
  EXPECT_LT(least, 1.5e6) << "ns on the GPU while the request of 2 ms was under way";
  End("low");
}

TEST_F(SharedGpu, GivenBurst_ThenIdleTimeIsUsed_AndGivenBack) {
  Begin("bursts", Container("bursts", {{"CUDA_DEVICE_SM_LIMIT", "30"}, {"HAMI_CORES_BURST", "80"}}));
  ExpectShare("bursts", "0.8", "80", "7");
  Begin("other", Container("other", {{"CUDA_DEVICE_SM_LIMIT", "70"}}));
  ExpectShare("bursts", "0.8", "30", "7");
  End("other");
  ExpectShare("bursts", "0.3", "80", "7");
  End("bursts");
}

TEST_F(SharedGpu, WhenTheRegionsBurstChanges_ThenTheRunningProgramFollows) {
  Begin("bursts", Container("bursts", {{"CUDA_DEVICE_SM_LIMIT", "30"}, {"HAMI_CORES_BURST", "60"}}));
  const auto set_burst = [&](uint32_t percent) {
    const int fd = open((folder() + "/bursts").c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(hami::region::WriteBurst({fd, 1}, 0, percent), hami::region::Status::kOk);
    close(fd);
  };
  ExpectShare("bursts", "0.8", "60", "7");
  set_burst(90);
  ExpectShare("bursts", "0.3", "90", "7");
  set_burst(1);
  ExpectShare("bursts", "0.3", "30", "7");
  End("bursts");
}

// With `held` the second one's first launch waits for so long that its library's thread has gone to sleep.
TEST_F(SharedGpu, WhenThePrioritiesChangePlaces_ThenTheRunningProgramsFollow) {
  const auto set_priority = [&](const char* name, int32_t priority) {
    const int fd = open((folder() + "/" + name).c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(hami::region::WritePriority({fd, 1}, priority), hami::region::Status::kOk);
    close(fd);
  };
  for (const bool held : {false, true}) {
    for (const char* name : {"first", "second"}) std::filesystem::remove(folder() + "/" + name);
    Begin("first", Container("first", {{"CUDA_TASK_PRIORITY", "0"}}));
    if (held) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    Begin("second", Container("second", {{"CUDA_TASK_PRIORITY", "1"}}));
    ExpectShare("second", held ? "1.5" : "1", "0", "10");
    set_priority("second", 0);
    if (held) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    set_priority("first", 1);
    ExpectShare("first", held ? "2.5" : "0.5", "0", "10");
    End("second");  // first, as the other is held for it
    End("first");
  }
}

TEST_F(SharedGpu, GivenAreaOfAnyContent_ThenTheLimitHolds) {
  environment_["CUDA_DEVICE_SM_LIMIT"] = "25";
  for (const char byte : {'\x7f', '\xff'}) {
    std::ofstream file(common(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);
    file << std::string(sizeof(hami::region::CommonArea) - 8, byte);
    file.close();
    Pass({"paced", "ex", "25", "5"});
  }
  std::filesystem::resize_file(common(), 100);
  Pass({"paced", "ex", "25", "5"});
  std::filesystem::remove(common());
  Pass({"paced", "ex", "25", "5"});
}

// As the device plugin lays it out: a folder for each GPU. Another area in its place is what a plugin that was started
// anew leaves.
TEST_F(SharedGpu, GivenAnotherAreaForTheGpu_ThenTheyMeetThere) {
  const Outcome listed = Run({"print_uuids"}, {{"LD_PRELOAD", "-"}});
  const std::string place = folder() + "/areas/" + listed.out.substr(0, listed.out.find('\n'));
  std::filesystem::create_directories(place);
  environment_["HAMI_COMMON_AREA"] = folder() + "/areas";
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  ExpectShare("low", "0.8", "100", "25");  // there is none yet
  ASSERT_TRUE(hami::region::CreateCommonArea((place + "/area").c_str()));
  ExpectShare("low", "0.3", "100", "25");
  ASSERT_TRUE(hami::region::CreateCommonArea((place + "/next").c_str()));
  std::filesystem::rename(place + "/next", place + "/area");
  Begin("high", Container("high", {{"CUDA_TASK_PRIORITY", "0"}}));
  ExpectShare("low", "0.4", "0", "10");
  End("high");
  End("low");
}

TEST_F(Pacing, GivenStreamsSideBySide_ThenTheyAreLetGoTogether) {
  Pass({"paced_side_by_side", "7.4"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
}

// What gives way has little in flight: as much as its streams do at once, and not one launch after the other.
TEST_F(SharedGpu, GivenStreamsSideBySideOfLowPriority_ThenTheyRunSideBySide) {
  Begin("high", Container("high", {{"CUDA_TASK_PRIORITY", "0"}}), "paced_server");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Pass({"paced_side_by_side", "3"}, Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  End("high");
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
