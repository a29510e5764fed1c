// SPDX-License-Identifier: Apache-2.0
// Every way to launch is metered, and nobody who is held at the gate keeps anybody from going on. No share is measured
// here (preload_pacing_test does that), so a busy machine changes nothing.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "region/gpu_time.h"
#include "region/region.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

class Metered : public Preload {
 protected:
  uint64_t Number(const char* file) {
    uint64_t value = 0;
    std::ifstream(folder() + "/" + file) >> value;
    return value;
  }
  uint64_t Charged(int device = 0) {
    hami::region::Attachment attachment;
    EXPECT_EQ(hami::region::Open(&attachment, region().c_str()), hami::region::Status::kOk);
    const uint64_t charged = hami::region::Load(hami::region::GpuTimeOf(attachment.area)->devices[device].charged);
    hami::region::Detach(&attachment);
    return charged;
  }
};

class MeteredWays : public Metered, public testing::WithParamInterface<const char*> {};

TEST_P(MeteredWays, GivenALimit_ThenWhatIsLaunchedThisWayIsHeldBackAndChargedAsWhatItIs) {
  Pass({"metered", GetParam()}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  const uint64_t busy = Number("busy");
  EXPECT_GT(Charged(), busy * 7 / 10);
  EXPECT_LT(Charged(), busy * 2);
}

INSTANTIATE_TEST_SUITE_P(Ways, MeteredWays,
                         testing::Values("kernel", "kernel_ptsz", "legacy_stream", "per_thread_stream", "ex", "ex_ptsz",
                                         "dependent", "cooperative", "cooperative_ptsz", "multi_device", "launch",
                                         "grid", "grid_async", "library_kernel", "library_function", "green", "graph",
                                         "graph_ptsz", "graph_uploaded", "child_graph", "conditional_graph", "captured",
                                         "captured_into"),
                         [](const auto& way) { return std::string(way.param); });

struct Elsewhere {
  const char* current;
  const char* what;
};

class MeteredElsewhere : public Metered, public testing::WithParamInterface<Elsewhere> {};

TEST_P(MeteredElsewhere, GivenAStreamOfAnotherContextThanTheCurrentOne_ThenItsDeviceIsCharged) {
  Pass({"metered_elsewhere", GetParam().current, GetParam().what},
       {{"SIMGPU", "2xH100"}, {"CUDA_DEVICE_SM_LIMIT_0", "20"}, {"CUDA_DEVICE_SM_LIMIT_1", "90"}});
  const uint64_t busy = Number("busy");
  EXPECT_GT(Charged(), busy * 7 / 10);
  EXPECT_LT(Charged(), busy * 2);
  EXPECT_EQ(Charged(1), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, MeteredElsewhere,
                         testing::Values(Elsewhere{"none", "kernel"}, Elsewhere{"none", "graph"},
                                         Elsewhere{"another", "kernel"}, Elsewhere{"another", "graph"},
                                         Elsewhere{"device", "kernel"}, Elsewhere{"device", "graph"}),
                         [](const auto& way) { return std::string(way.param.current) + "_" + way.param.what; });

// With one device there is a fast path, which does not look where a stream is.
class MeteredElsewhereOnOne : public MeteredElsewhere {};

TEST_P(MeteredElsewhereOnOne, GivenAStreamOfAnotherContextThanTheCurrentOne_ThenTheLimitHolds) {
  Pass({"metered_elsewhere", GetParam().current, GetParam().what}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_GT(Charged(), Number("busy") * 7 / 10);
  EXPECT_LT(Charged(), Number("busy") * 2);
}

INSTANTIATE_TEST_SUITE_P(Ways, MeteredElsewhereOnOne,
                         testing::Values(Elsewhere{"none", "kernel"}, Elsewhere{"none", "graph"},
                                         Elsewhere{"another", "kernel"}, Elsewhere{"another", "graph"}),
                         [](const auto& way) { return std::string(way.param.current) + "_" + way.param.what; });

class MeteredLoading : public Metered, public testing::WithParamInterface<const char*> {};

TEST_P(MeteredLoading, GivenCodeThatIsLoadedAtTheFirstLaunch_ThenThatIsNotCharged) {
  Pass({"metered_loading", GetParam()}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_LT(Charged(), Number("busy") * 5 / 4);
  EXPECT_GT(Charged(), Number("busy") * 7 / 10);
}

INSTANTIATE_TEST_SUITE_P(Ways, MeteredLoading, testing::Values("kernel", "graph"),
                         [](const auto& way) { return std::string(way.param); });

class MeteredUpdates : public Metered, public testing::WithParamInterface<const char*> {};

TEST_P(MeteredUpdates, GivenAGraphThatBecomesDear_ThenItsNewCostCountsAtOnce) {
  Pass({"metered_update", GetParam()}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
}

INSTANTIATE_TEST_SUITE_P(Ways, MeteredUpdates,
                         testing::Values("update", "update_v1", "kernel_node", "kernel_node_v1", "node", "child",
                                         "enabled"),
                         [](const auto& way) { return std::string(way.param); });

TEST_F(Metered, GivenGraphsOfNothing_ThenNextToNothingIsCharged) {
  Pass({"metered_nothing"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_LT(Charged(), 1000u * 10'000);
}

TEST_F(Metered, GivenLaunchesThatFail_ThenNothingIsChargedForThem) {
  Pass({"metered_failing"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_LT(Charged(), Number("busy") + 1'000'000);
}

TEST_F(Metered, GivenThreadsThatLaunchOnceAndEnd_ThenWhatTheyDidNotUseIsNotCharged) {
  Pass({"metered_threads"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_LT(Charged(), 3 * Number("busy"));
}

// Each device's part of such a launch waits for the other's account; that is not what it costs.
TEST_F(Metered, GivenTwoDevicesOfDifferentLimits_ThenEachIsChargedItsOwnPart) {
  Pass({"metered_two_devices"},
       {{"SIMGPU", "2xH100"}, {"CUDA_DEVICE_SM_LIMIT_0", "80"}, {"CUDA_DEVICE_SM_LIMIT_1", "20"}});
  EXPECT_LT(Charged(0), Number("busy") * 13 / 10 + 1'000'000);
  EXPECT_LT(Charged(1), Number("busy") * 13 / 10 + 1'000'000);
}

class Gate : public Metered {
 protected:
  void WaitFor(const char* name) {
    for (int i = 0; i < 10'000 && !std::filesystem::exists(folder() + "/" + name); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(std::filesystem::exists(folder() + "/" + name)) << name;
  }
  // Changes the region as another program would, and tells when it did.
  template <typename Change>
  void InRegion(Change change) {
    hami::region::Attachment attachment;
    ASSERT_EQ(hami::region::Open(&attachment, region().c_str()), hami::region::Status::kOk);
    change(attachment.region);
    const auto now = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    hami::region::Detach(&attachment);
    std::ofstream(folder() + "/new") << now;
    std::filesystem::rename(folder() + "/new", folder() + "/changed");
  }
};

TEST_F(Gate, GivenWorkThatWaitsForWhatIsLaunchedNext_ThenNothingDeadlocks) {
  for (const char* limit : {"25", "5"}) {
    for (const char* how : {"value", "within", "host"}) {
      std::filesystem::remove(region());
      Pass({"gate_peer", how}, {{"CUDA_DEVICE_SM_LIMIT", limit}});
    }
  }
}

TEST_F(Gate, GivenMoreBehindWorkThatWaitsForWhatIsLaunchedNext_ThenItIsHeldForASecondAndNotAgain) {
  for (const char* limit : {"50", "5"}) {
    std::filesystem::remove(region());
    Pass({"gate_peer_behind", limit}, {{"CUDA_DEVICE_SM_LIMIT", limit}});
  }
}

TEST_F(Gate, GivenAProcessThatWaitsForAnother_ThenNothingDeadlocks) {
  environment_["CUDA_DEVICE_SM_LIMIT"] = "25";
  const pid_t waits = Start({"gate_peer_waits"});
  Pass({"gate_peer_releases"});
  EXPECT_EQ(Wait(waits), 0);
}

TEST_F(Gate, GivenStreamsThatWaitForEachOther_ThenNothingDeadlocks) {
  Pass({"gate_events"}, {{"CUDA_DEVICE_SM_LIMIT", "25"}});
}

TEST_F(Gate, GivenAHostFunctionThatLaunches_ThenItComesBack) {
  Pass({"gate_host_function"}, {{"CUDA_DEVICE_SM_LIMIT", "25"}});
}

TEST_F(Gate, WhileOneThreadIsHeld_ThenTheOthersGoOn) { Pass({"gate_others_go_on"}, {{"CUDA_DEVICE_SM_LIMIT", "1"}}); }

TEST_F(Gate, WhileOneThreadIsHeld_ThenTheProcessCanFork) { Pass({"gate_fork"}, {{"CUDA_DEVICE_SM_LIMIT", "1"}}); }

TEST_F(Gate, WhileOneThreadIsHeld_ThenTheProcessCanEnd) {
  environment_["CUDA_DEVICE_SM_LIMIT"] = "1";
  const auto begin = std::chrono::steady_clock::now();
  Pass({"gate_end", "exit"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
  for (const int number : {SIGTERM, SIGINT, SIGKILL}) {
    std::filesystem::remove(folder() + "/held");
    std::filesystem::remove(region());
    const pid_t program = Start({"gate_end", "signal"});
    WaitFor("held");
    kill(program, number);
    const auto killed = std::chrono::steady_clock::now();
    const int status = Wait(program);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == number) << status;
    EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(1));
  }
}

TEST_F(Gate, WhileAThreadIsHeld_WhenItIsCancelled_ThenTheLaunchTakesPlaceFirst) {
  Pass({"gate_cancel"}, {{"CUDA_DEVICE_SM_LIMIT", "2"}});
}

TEST_F(Gate, WhileAThreadIsHeld_WhenSignalsAreHandled_ThenItWaitsNoLess) {
  Pass({"gate_handler"}, {{"CUDA_DEVICE_SM_LIMIT", "5"}});
}

TEST_F(Gate, WhileAThreadIsHeld_WhenItsContextGoes_ThenTheDriverRefuses) {
  for (const char* how : {"destroyed", "reset"}) {
    std::filesystem::remove(region());
    Pass({"gate_context_gone", how}, {{"CUDA_DEVICE_SM_LIMIT", "2"}});
  }
}

// Every word that another program may write ends a wait of 2 s at once. Far below the 2 s, and not 20 ms, because this
// machine may have better things to do; `tools/bench-sm step` measures that.
TEST_F(Gate, WhileAThreadIsHeld_WhenTheRegionChanges_ThenItIsInForceAtOnce) {
  using hami::region::Store;
  using Region = hami::region::Region;
  const std::pair<const char*, void (*)(Region*)> changes[] = {
      {"no limit", [](Region* r) { Store(r->sm_limit[0], uint64_t{0}); }},
      {"100", [](Region* r) { Store(r->sm_limit[0], uint64_t{100}); }},
      {"more than 100", [](Region* r) { Store(r->sm_limit[0], UINT64_MAX); }},
      {"90", [](Region* r) { Store(r->sm_limit[0], uint64_t{90}); }},
      {"switch", [](Region* r) { Store(r->utilization_switch, 0); }}};
  for (const auto& [name, change] : changes) {
    for (const char* file : {"held", "changed", "after_us"}) std::filesystem::remove(folder() + "/" + file);
    std::filesystem::remove(region());
    const pid_t program = Start({"gate_released"}, {{"CUDA_DEVICE_SM_LIMIT", "1"}});
    WaitFor("held");
    InRegion(change);
    EXPECT_EQ(Wait(program), 0) << name;
    EXPECT_LT(Number("after_us"), 300'000u) << name;
  }
}

constexpr uint64_t kLimits[] = {0, 1, 30, 100, 5, 1000, 75, UINT64_MAX};

// Limits from none to all, and the switch, while eight threads launch.
TEST_F(Gate, WhileManyThreadsLaunch_WhenLimitsChangeAgainAndAgain_ThenTheLastOneIsKept) {
  using hami::region::Store;
  const pid_t program = Start({"gate_storm", "36"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}});
  WaitFor("running");
  if (HasFatalFailure()) kill(program, SIGKILL);
  for (size_t i = 0; i < 40; ++i) {
    InRegion([&](auto* r) {
      Store(r->sm_limit[0], kLimits[i % 8]);
      Store(r->utilization_switch, i % 5 == 0 ? 0 : 1);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  InRegion([](auto* r) {
    Store(r->sm_limit[0], uint64_t{30});
    Store(r->utilization_switch, 1);
  });
  std::ofstream(folder() + "/calm") << "x";
  EXPECT_EQ(Wait(program), 0);
}

// Any value of any word, faster than anybody looks: all go on, and nothing breaks.
TEST_F(Gate, WhileManyThreadsLaunch_WhenAnythingIsWritten_ThenTheyGoOn) {
  using hami::region::Store;
  const pid_t program = Start({"gate_storm", "101"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}, {"CUDA_TASK_PRIORITY", "1"}});
  WaitFor("running");
  if (HasFatalFailure()) kill(program, SIGKILL);
  constexpr int32_t kOrders[] = {0, -1, 2, INT32_MIN, 0, INT32_MAX, 1};
  constexpr int32_t kPriorities[] = {1, 0, -5, 7, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < 500; ++i) {
    InRegion([&](auto* r) {
      Store(r->sm_limit[0], kLimits[i % 8]);
      Store(r->recent_kernel, kOrders[i / 3 % 7]);
      Store(r->utilization_switch, static_cast<int32_t>(i % 11) - 1);
      Store(r->priority, kPriorities[i / 7 % 6]);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  InRegion([](auto* r) { Store(r->recent_kernel, 0); });
  std::ofstream(folder() + "/calm") << "x";
  EXPECT_EQ(Wait(program), 0);
}

}  // namespace
}  // namespace preload
