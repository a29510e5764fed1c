// SPDX-License-Identifier: Apache-2.0
// Every way to launch is metered, and nobody who is held at the gate keeps anybody from going on. No share is measured
// here (preload_pacing_test does that), so a busy machine changes nothing.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

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
  uint64_t Charged(int device = 0) { return ChargedIn(region(), device); }
  static uint64_t ChargedIn(const std::string& region, int device) {
    hami::region::Attachment attachment;
    EXPECT_EQ(hami::region::Open(&attachment, region.c_str()), hami::region::Status::kOk);
    const uint64_t charged = hami::region::Load(hami::region::GpuTimeOf(attachment.area)->devices[device].charged);
    hami::region::Detach(&attachment);
    return charged;
  }
};

class MeteredWays : public Metered, public testing::WithParamInterface<const char*> {};

TEST_P(MeteredWays, GivenLimit_ThenSuchLaunchesHeldBackAndChargedAsWhatTheyAre) {
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

TEST_P(MeteredElsewhere, GivenStreamOfOtherThanCurrentContext_ThenItsDeviceIsCharged) {
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

TEST_P(MeteredElsewhereOnOne, GivenStreamOfOtherThanCurrentContext_ThenTheLimitHolds) {
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

class MeteredContexts : public Metered, public testing::WithParamInterface<const char*> {};

TEST_P(MeteredContexts, GivenContextThatEndsOrMayEndAfterEachLaunch_ThenLimitHolds) {
  Pass({"metered_context", GetParam()}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
}

INSTANTIATE_TEST_SUITE_P(Ways, MeteredContexts, testing::Values("synchronized", "not_synchronized", "released"),
                         [](const auto& way) { return std::string(way.param); });

TEST_F(Metered, GivenAProcessThatEndsWithItsKernel_ThenThatIsPaidFor) {
  Pass({"metered_job"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_GT(Charged(), Number("busy") * 9 / 10);
  EXPECT_LT(Charged(), Number("busy") * 5 / 4);
}

TEST_F(Metered, GivenGraphsOfNothing_ThenNextToNothingIsCharged) {
  Pass({"metered_nothing"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_LT(Charged(), 1000u * 10'000);
}

TEST_F(Metered, GivenLaunchesThatFail_ThenNothingIsChargedForThem) {
  Pass({"metered_failing"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
  EXPECT_LT(Charged(), Number("busy") + 1'000'000);
}

TEST_F(Metered, GivenThreadsThatLaunchOnceAndEnd_ThenUnusedIsNotCharged) {
  // The leases are 40 times as much. A slow host adds some of its own time now and then: the least of three counts.
  double times = 1e9;
  for (int i = 0; i < 3 && times >= 3; ++i) {
    std::filesystem::remove(region());
    Pass({"metered_threads"}, {{"CUDA_DEVICE_SM_LIMIT", "20"}});
    times = std::min(times, static_cast<double>(Charged()) / static_cast<double>(Number("busy")));
  }
  EXPECT_LT(times, 3);
}

TEST_F(Metered, GivenALaunch_ThenItsArgumentsReachTheDriver) {
  Pass({"launch_arguments"});
  Pass({"launch_arguments"}, {{"CUDA_DEVICE_SM_LIMIT", "99"}});
}

// Each device's part of such a launch waits for the other's account; that is not what it costs.
TEST_F(Metered, GivenTwoDevicesOfDifferentLimits_ThenEachIsChargedItsOwnPart) {
  Pass({"metered_two_devices"},
       {{"SIMGPU", "2xH100"}, {"CUDA_DEVICE_SM_LIMIT_0", "80"}, {"CUDA_DEVICE_SM_LIMIT_1", "20"}});
  EXPECT_LT(Charged(0), Number("busy") * 13 / 10 + 1'000'000);
  EXPECT_LT(Charged(1), Number("busy") * 13 / 10 + 1'000'000);
}

struct Turns {
  const char* scenario;
  std::vector<const char*> hows;
};

// Two launches for one GPU, six for the other: who remembers too long charges the lease of the first for all.
class MeteredTurns : public Metered, public testing::WithParamInterface<Turns> {
 protected:
  std::string FolderOf(const char* how) const { return folder() + "/" + how; }
  pid_t StartIn(const char* how) {
    const std::string own = FolderOf(how);
    std::filesystem::create_directory(own);
    return Start({GetParam().scenario, how}, {{"SIMGPU", "2xH100"},
                                              {"SIMGPU_STATE", own + "/machine"},
                                              {"GUEST_FOLDER", own},
                                              {"CUDA_DEVICE_SM_LIMIT", "95"},
                                              {"CUDA_DEVICE_MEMORY_LIMIT", "8g"},
                                              {"CUDA_DEVICE_MEMORY_SHARED_CACHE", own + "/region.cache"}});
  }
  // First device to second.
  double ChargedRatio(const char* how) const {
    const std::string region = FolderOf(how) + "/region.cache";
    return static_cast<double>(ChargedIn(region, 0)) / static_cast<double>(ChargedIn(region, 1));
  }
  double BusyRatio(const char* how) const {
    double busy[2] = {};
    for (int device = 0; device < 2; ++device) {
      std::ifstream(FolderOf(how) + "/busy" + std::to_string(device)) >> busy[device];
    }
    return busy[0] / busy[1];
  }
};

// How much a short launch is thought to cost depends on the host, but is the same on both: once in three times, as the
// programs run side by side and hold each other up. A lease for the wrong device is wrong each time.
TEST_P(MeteredTurns, GivenLaunchesOnTwoDevicesByTurns_ThenEachIsChargedItsOwn) {
  std::string wrong = "not tried";
  for (int tries = 0; tries < 3 && !wrong.empty(); ++tries) {
    wrong.clear();
    std::map<const char*, pid_t> guests;
    for (const char* how : GetParam().hows) guests[how] = StartIn(how);
    for (const auto& [how, guest] : guests) {
      ASSERT_EQ(Wait(guest), 0) << how;
      const double busy = BusyRatio(how);
      EXPECT_NEAR(busy, 1.0 / 3, 0.1) << how;
      const double charged = ChargedRatio(how);
      if (charged > 0.7 * busy && charged < 1.4 * busy) continue;
      wrong += std::string(how) + ": busy " + std::to_string(busy) + ", charged " + std::to_string(charged) + "\n";
    }
    std::filesystem::remove_all(folder());
    std::filesystem::create_directory(folder());
  }
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(Ways, MeteredTurns,
                         testing::Values(Turns{"devices_by_handle", {"stream", "stream_v1", "another_thread"}},
                                         Turns{"devices_by_handle", {"context", "context_v1", "detached", "green"}},
                                         Turns{"devices_by_handle",
                                               {"primary_released", "primary_released_v2", "primary_reset",
                                                "primary_reset_v2"}},
                                         Turns{"devices_by_context", {"set", "legacy", "per_thread"}},
                                         Turns{"devices_by_context", {"pushed", "created", "behind"}},
                                         Turns{"devices_by_stream", {"alive"}}),
                         [](const auto& way) { return std::string(way.param.scenario) + "_" + way.param.hows[0]; });

struct Writing {
  const char* name;
  const char* gpus;
  const char* threads;
  const char* nanos;     // of a kernel
  double most_launches;  // that write, of a hundred
};

class Writes : public Metered, public testing::WithParamInterface<Writing> {};

// Launches that are paid from a lease; those that renew one write, one in 40 of 5 us.
TEST_P(Writes, GivenLimitThatDoesNotBind_ThenHardlyALaunchWritesSharedWords) {
  const Writing& given = GetParam();
  const Outcome outcome = RunProgram(PRELOAD_BENCH, {"writes", given.threads, given.nanos},
                                     {{"SIMGPU", given.gpus}, {"SIMGPU_QUIET", "1"}, {"CUDA_DEVICE_SM_LIMIT", "50"}});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::map<std::string, double> figures;
  std::istringstream lines(outcome.out);
  std::string figure;
  for (double value = 0; lines >> figure >> value;) figures[figure] = value;
  EXPECT_GT(figures["writes_watched_kib"], 1024) << "the table of what launches cost alone is a MiB, the region more";
  EXPECT_EQ(figures["writes_alloc"], 100) << "a write to the region is seen";
  EXPECT_EQ(figures["writes_own"], 0) << "the driver's own function writes nothing of ours";
  EXPECT_LE(figures["writes_found"], given.most_launches) << outcome.out << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(Ways, Writes,
                         testing::Values(Writing{"one_thread", "1xH100", "1", "1", 1},
                                         Writing{"two_threads", "1xH100", "2", "1", 1},
                                         Writing{"one_thread_5us", "1xH100", "1", "5000", 5},
                                         Writing{"two_threads_5us", "1xH100", "2", "5000", 5},
                                         Writing{"two_devices", "2xH100", "2", "1", 1}),
                         [](const auto& way) { return std::string(way.param.name); });

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

TEST_F(Gate, GivenMoreBehindWorkAwaitingNextLaunch_ThenHeldOneSecondOnce) {
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

TEST_F(Gate, WhileThreadIsHeld_WhenCancelled_ThenLaunchTakesPlaceFirst) {
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
TEST_F(Gate, WhileThreadIsHeld_WhenRegionChanges_ThenInForceAtOnce) {
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
TEST_F(Gate, WhileManyThreadsLaunch_WhenLimitsKeepChanging_ThenLastIsKept) {
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
