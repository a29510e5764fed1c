// SPDX-License-Identifier: Apache-2.0
// GPU time of containers that meet in a common area: shares, priorities, and idle time.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "region/common_area.h"
#include "region/process.h"
#include "region/remote.h"
#include "test/preload/pacing.h"
#include "vgpu/time/turns.h"

namespace preload {
namespace {

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
  // Requests of so many ms wait for what `other` has on the GPU when they come, and for no more of it: 0.2 ms, and 2 ms
  // and more where the ranks are equal.
  void ExpectFirst(const char* ms, const Environment& settings, const char* other) {
    Pass({"paced_requests", ms, std::to_string(at_work_.at(other)), "1000"}, settings);
  }
};

// Tests of it that take long, as what they wait for is rare.
using SlowSharedGpu = SharedGpu;

TEST_F(SharedGpu, GivenOneInTwentyLaunches300TimesAsLong_ThenShareIsRight) {
  Pass({"paced", "rare", "25", "4"}, Container("alone", {{"CUDA_DEVICE_SM_LIMIT", "25"}}));
}

TEST_F(SlowSharedGpu, WhenKernelComesToTakeHundredTimesAsLong_ThenMadeUpFor) {
  Pass({"paced_switch", "25", "7"}, Container("alone", {{"CUDA_DEVICE_SM_LIMIT", "25"}}));
}

// What is guessed, and takes longer beside another, may have been the other's time; were it always taken for that, or a
// graph for another one at its place, the share would be 42 to 57.
TEST_F(SlowSharedGpu, GivenGraphsGuessedWrongBesideAnother_ThenLimitHolds) {
  for (const char* shape : {"graph_mixed", "graph_dearer", "graph_anew"}) {
    Begin("other", Container("other", {{"CUDA_DEVICE_SM_LIMIT", "70"}}));
    Begin(shape, Container(shape, {{"CUDA_DEVICE_SM_LIMIT", "30"}}), "paced_worker", shape);
    ExpectShare(shape, "1.5", "25", "10");
    End(shape);
    End("other");
  }
}

// Were each waited for that can not be guessed, or what a guess is off by taken for its own as far as half a slice,
// they would have 15 and 22.
TEST_F(SharedGpu, GivenNewGridsEachLaunchBesideAnother_ThenEachHasItsShare) {
  for (const char* shape : {"anew_mixed", "anew"}) {
    Begin(shape, Container(shape, {{"CUDA_DEVICE_SM_LIMIT", "30"}}), "paced_worker", shape);
    Begin("other", Container("other", {{"CUDA_DEVICE_SM_LIMIT", "70"}}), "paced_worker", "half");
    ExpectShare(shape, "1.5", "30", "4", "2");
    End(shape);
    End("other");
  }
}

// Two that never have the GPU to themselves: had each to pay for the turns of the other, they would have 17 and 69, or
// 20 beside short ones. Windows of some seconds, as a step of 30 % is there once in 0.33 s.
TEST_F(SlowSharedGpu, GivenStepsOf100MillisecondsBesideAnother_ThenEachHasItsShare) {
  for (const char* beside : {"step100", "half"}) {
    Begin("small", Container("small", {{"CUDA_DEVICE_SM_LIMIT", "30"}}), "paced_worker", "step100");
    Begin("large", Container("large", {{"CUDA_DEVICE_SM_LIMIT", "70"}}), "paced_worker", beside);
    ExpectShare("small", "2", "30", "4", "6");
    ExpectShare("large", "0", "70", "4", "3");
    End("small");
    End("large");
  }
}

// A step of 500 ms takes half of the GPU for a second, and what the other misses meanwhile is more than is kept else:
// he would have 64.
TEST_F(SlowSharedGpu, GivenHalfSecondStepsBesideShortKernels_ThenEachHasItsShare) {
  Begin("small", Container("small", {{"CUDA_DEVICE_SM_LIMIT", "30"}}), "paced_worker", "step500");
  Begin("large", Container("large", {{"CUDA_DEVICE_SM_LIMIT", "70"}}), "paced_worker", "half");
  ExpectShare("large", "3", "70", "3", "5");
}

// Each of several processes has as many turns as another container: counted as one, the container would have some 21 of
// 30, and alone, as each pays for the turns of all in its first launch, 37 of 50.
TEST_F(SlowSharedGpu, GivenProcessesOfOneContainerWithLongSteps_ThenEachPaysItsOwn) {
  const Environment four = Container("four", {{"CUDA_DEVICE_SM_LIMIT", "50"}});
  for (const char* name : {"1", "2", "3", "4"}) Begin(name, four, "paced_worker", "step100");
  tries_ = 1;
  ExpectShare("all", "1.5", "50", "7", "6");
  for (const char* name : {"1", "2", "3", "4"}) End(name);
  tries_ = 3;
  const Environment three = Container("three", {{"CUDA_DEVICE_SM_LIMIT", "30"}});
  Begin("large", Container("large", {{"CUDA_DEVICE_SM_LIMIT", "70"}}), "paced_worker", "step100");
  for (const char* name : {"5", "6", "7"}) Begin(name, three, "paced_worker", "step100");
  ExpectShare("large", "2", "70", "5", "6");
  ExpectShare("all", "0", "100", "5", "6");
}

// Who has no limit has what others leave: were the GPU divided by equal turns, and what has the others' turns in it
// charged in full, they would have 16 and 50.
TEST_F(SlowSharedGpu, GivenUnlimitedBesideLimited_ThenThatHasShareAndOtherTheRest) {
  Begin("free", Container("free", {}));
  const std::vector<std::pair<const char*, const char*>> limited = {{"step100", "30"}, {"half", "70"}};
  for (const auto& [shape, limit] : limited) {
    Begin(shape, Container(shape, {{"CUDA_DEVICE_SM_LIMIT", limit}}), "paced_worker", shape);
    ExpectShare(shape, "2", limit, "4", "6");
    ExpectShare("free", "0", shape == limited[0].first ? "70" : "30", "4", "3");
    End(shape);
  }
  ExpectShare("free", "0.3", "100", "3", "2");
}

// While the other rests, who has no limit has all of the GPU, and more than that would be his: kept for later, it would
// be equal turns for the other when he comes back, who would have 33.
TEST_F(SharedGpu, GivenUnlimitedOneBesideRestingOne_ThenItSavesNothingUp) {
  Begin("free", Container("free", {}));
  Begin("bursts", Container("bursts", {{"CUDA_DEVICE_SM_LIMIT", "70"}}), "paced_worker", "bursts");
  ExpectShare("bursts", "1", "41", "3", "3");
  End("bursts");
  End("free");
}

// A line that waits is given turns. One that does not use them, as it lies or its process is gone, costs the other a
// millisecond each time, and nothing once it is silent.
TEST_F(SharedGpu, GivenOneThatWaitsAndDoesNotLaunch_ThenTheOtherLosesLittle) {
  const hami::region::CommonFile file = hami::region::OpenCommonArea(common().c_str());
  ASSERT_NE(file.area, nullptr);
  Begin("other", Container("other", {}), "paced_worker", "half");
  ExpectShare("other", "0.3", "100", "2");
  const hami::region::CommonLines lines = hami::region::CommonLinesOf(file.area);
  const int line = lines.Join(-1, uint64_t{7} << 32, lines.lines[0].gpu, hami::region::MonotonicNanos());
  hami::region::CommonMember& waits = lines.lines[line];
  waits.rank = 1;
  std::atomic<bool> there = true;
  std::thread says([&] {
    for (; there; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      const int64_t now = hami::region::MonotonicNanos();
      hami::region::Store(waits.seen_at, now);
      hami::region::Store(waits.waiting_at, now);
      hami::region::Store(waits.zero_at, now - 100'000'000);
    }
  });
  ExpectShare("other", "0.5", "88", "9");
  there = false;
  says.join();
  ExpectShare("other", "2.5", "100", "2");
  End("other");
  munmap(file.area, sizeof *file.area);
}

// Or the next program would look out for it for two seconds, with each launch.
TEST_F(SharedGpu, WhenAProcessEnds_ThenItLeavesTheOthersAtOnce) {
  const hami::region::CommonFile file = hami::region::OpenCommonArea(common().c_str());
  ASSERT_NE(file.area, nullptr);
  const auto processes = [&] {
    return std::ranges::count_if(file.area->members, [](const hami::region::CommonMember& member) {
      return member.process != 0 && member.process != hami::vgpu::time::kTurnItself;
    });
  };
  Begin("one", Container("one", {}), "paced_worker", "half");
  ExpectShare("one", "0.3", "100", "2");
  EXPECT_EQ(processes(), 1);
  End("one");
  EXPECT_EQ(processes(), 0);
  Pass({"paced_lingers"}, Container("one", {}));
  EXPECT_EQ(processes(), 0);
  munmap(file.area, sizeof *file.area);
}

// By this the others know whose turn is next.
TEST_F(SharedGpu, GivenOneKeptFromItsShare_ThenItSaysWhatItIsOwed_NotWhenAlone) {
  const hami::region::CommonFile file = hami::region::OpenCommonArea(common().c_str());
  ASSERT_NE(file.area, nullptr);
  const auto lag = [&] { return hami::region::MonotonicNanos() - hami::region::Load(file.area->members[0].zero_at); };
  const auto least_lag = [&] {
    int64_t least = INT64_MAX;
    for (int i = 0; i < 200; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      least = std::min(least, lag());
    return least;
  };
  Begin("large", Container("large", {{"CUDA_DEVICE_SM_LIMIT", "90"}}), "paced_worker", "half");
  ExpectShare("large", "0.3", "90", "1");
  EXPECT_EQ(hami::region::Load(file.area->members[0].rate), 9'000);
  EXPECT_LT(least_lag(), 5'000'000);
  Begin("other", Container("other", {{"CUDA_DEVICE_SM_LIMIT", "95"}}), "paced_worker", "half");
  ExpectShare("large", "1", "50", "5");
  EXPECT_GT(least_lag(), 8'000'000);
  End("other");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_LT(least_lag(), 5'000'000);
  End("large");
  munmap(file.area, sizeof *file.area);
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

// While nobody is there to be told, nobody counts what goes to the driver: seconds of work.
TEST_F(SharedGpu, GivenImportantQueuedFarAhead_WhenOtherComes_ThenOtherIsHeld) {
  Begin("high", Container("high", {{"CUDA_TASK_PRIORITY", "0"}}), "paced_worker", "ms3");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  ExpectShare("low", "0.3", "0", "10");
  ExpectShare("low", "1.5", "0", "10");
  End("high");
  End("low");
}

TEST_F(SharedGpu, GivenImportantOneWithIdleTime_ThenOtherUsesIt_WhoeverIsFirst) {
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

// Who shares the GPU with somebody who has 95 never has to wait for a limit of 90: what is queued is what a
// change or an order has to wait for. 20 ms of the clock are 10 of each.
TEST_F(SharedGpu, GivenUnreachedLimitBesideOther_ThenOrdersObeyedAsSoonAsAlone) {
  Begin("other", Container("other", {{"CUDA_DEVICE_SM_LIMIT", "95"}}));
  for (const char* shape : {"half", "ex", "streams"}) {
    ExpectObeyed(shape, "90", 10, 800, [](auto* r) { hami::region::Store(r->recent_kernel, -1); });
    ExpectObeyed(shape, "90", 30, 800, [](auto* r) { hami::region::Store(r->sm_limit[0], 20u); });
  }
  End("other");
}

TEST_F(SharedGpu, GivenEightProcessesBelowLimit_ThenOrdersObeyedAsSoonAsByOne) {
  Begin("other", Container("other", {{"CUDA_DEVICE_SM_LIMIT", "95"}}));
  ExpectObeyed(
      "ex", "90", 12, 800, [](auto* r) { hami::region::Store(r->recent_kernel, -1); }, 7);
  ExpectObeyed(
      "ex", "90", 32, 800, [](auto* r) { hami::region::Store(r->sm_limit[0], 20u); }, 7);
  End("other");
}

// What bounds the work in flight must not hold what the GPU waits for.
TEST_F(SharedGpu, GivenLaunchTheGpuWaitsForBehindOthers_ThenNotHeldForLong) {
  Begin("other", Container("other", {{"CUDA_DEVICE_SM_LIMIT", "95"}}));
  Pass({"paced_own_wait"}, Container("waits", {{"CUDA_DEVICE_SM_LIMIT", "90"}}));
  Pass({"paced_lagging", "32", "50", "5"}, Container("lags", {{"CUDA_DEVICE_SM_LIMIT", "90"}}));
  End("other");
}

// A pod that asks for no priority has none in its environment, and its rank is 1.
TEST_F(SharedGpu, GivenOneThatNamesNoPriority_ThenItGivesWayToTheImportant) {
  for (const char* limit : {"0", "90"}) {
    Begin("plain", Container(limit, {{"CUDA_DEVICE_SM_LIMIT", limit}}));
    ExpectFirst("2", Container("high", {{"CUDA_TASK_PRIORITY", "0"}}), "plain");
    End("plain");
  }
}

// What a lease pays for asks for no turn, so a lease must not outlast the work that the turn was for: one request in
// ten takes the turn where it does. 95 % of the requests took 390 to 420 us on a quiet host, and 630 to 680 then.
TEST_F(SharedGpu, GivenShortRequestsOfAnImportantOne_ThenEachTakesTheTurn) {
  environment_["SIMGPU_PROFILE"] = "h200";  // whose turns last 2 ms
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  Pass({"paced_short_requests"}, Container("high", {{"CUDA_TASK_PRIORITY", "0"}}));
  End("low");
}

TEST_F(SharedGpu, GivenOneThatIsAloneWithoutALimit_ThenItsLaunchesGoUnseen) {
  for (const char* rank : {"0", "1"}) Pass({"paced_alone"}, Container(rank, {{"CUDA_TASK_PRIORITY", rank}}));
}

TEST_F(SharedGpu, WhenAnotherComesBeforeTheHelperLooks_ThenItTakesTheTurn) {
  tries_ = 1;  // the next one would see the lines of the first
  Pass({"paced_neighbour_at_start"}, Container("high", {{"CUDA_TASK_PRIORITY", "0"}}));
}

// What one process tells the others must not hide what another one of its container has under way.
TEST_F(SharedGpu, GivenImportantOneOfTwoProcesses_ThenItsLongRequestsGoFirst) {
  const Environment high = Container("high", {{"CUDA_TASK_PRIORITY", "0"}});
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  Begin("blips", high, "paced_blips");
  ExpectFirst("8", high, "low");
  End("blips");
  End("low");
}

// The library looks for the end of an important one's work, and must not ask about a stream that is captured.
TEST_F(SharedGpu, GivenImportantOneCapturesBehindLongKernel_ThenCaptureHolds) {
  Begin("low", Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  Pass({"paced_captures"}, Container("high", {{"CUDA_TASK_PRIORITY", "0"}}));
}

// Who has a context will launch. A host that holds up this one between two launches leaves the GPU to the other: the
// least of three counts.
TEST_F(SharedGpu, GivenImportantOneBegins_ThenItsFirstRequestGoesBeforeOther) {
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
TEST_F(SlowSharedGpu, WhenThePrioritiesChangePlaces_ThenTheRunningProgramsFollow) {
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

TEST_F(SlowSharedGpu, GivenAreaOfAnyContent_ThenTheLimitHolds) {
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

// What gives way has little in flight: as much as its streams do at once, and not one launch after the other.
TEST_F(SharedGpu, GivenStreamsSideBySideOfLowPriority_ThenTheyRunSideBySide) {
  Begin("high", Container("high", {{"CUDA_TASK_PRIORITY", "0"}}), "paced_server");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Pass({"paced_side_by_side", "6"}, Container("low", {{"CUDA_TASK_PRIORITY", "1"}}));
  End("high");
}

}  // namespace
}  // namespace preload
