// SPDX-License-Identifier: Apache-2.0
// What a measured profile adds to the time of kernels, events and turns, on the virtual clock, to the nanosecond.
#include <functional>
#include <vector>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

constexpr std::int64_t kGap = 1790, kGraphGap = 1020, kPair = 1280, kTurn = 2'083'000, kSwitch = 160'000;

class ProfileTest : public TimedTest {
 protected:
  void SetUp() override {
    TimedTest::SetUp();
    setenv("SIMGPU_PROFILE", "h200", 1);
    Options("resume_us=0");
  }
  void Options(const std::string& options) const {
    std::ofstream(folder_ + "/config", std::ios::app) << "option " << options << "\n";
  }
};

// Of `count` kernels of `ns` between two events, with work ahead of them.
std::int64_t Elapsed(const Gpu& gpu, CUstream s, int count, std::int64_t ns) {
  EXPECT_OK(gpu.Launch(s, kMilli));
  CUevent start = Mark(s);
  for (int i = 0; i < count; ++i) EXPECT_OK(gpu.Launch(s, ns));
  CUevent end = Mark(s);
  EXPECT_OK(cuStreamSynchronize(s));
  return Between(start, end);
}

TEST_F(ProfileTest, GivenKernelsInARow_ThenEachNeedsAGapAndThePairOfEventsItsOwn) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    EXPECT_EQ(Elapsed(gpu, s, 0, 0), kPair);
    for (const int count : {1, 2, 8, 32}) {
      EXPECT_EQ(Elapsed(gpu, s, count, 20 * kMicro), count * (20 * kMicro + kGap) + kPair) << count;
    }
  });
}

TEST_F(ProfileTest, GivenStreamsSideBySide_ThenTheirGapsOverlap) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream one = NewStream();
    CUstream two = NewStream();
    EXPECT_OK(gpu.Launch(one, kMilli, kSms / 2));
    EXPECT_OK(gpu.Launch(two, kMilli, kSms / 2));
    const std::int64_t start = simgpu_now_ns();
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(simgpu_now_ns() - start, kMilli + kGap);
  });
}

TEST_F(ProfileTest, GivenAGraph_ThenItsKernelsAreNearer) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 100; ++i) EXPECT_OK(gpu.Launch(s, 20 * kMicro));
    ASSERT_OK(cuStreamEndCapture(s, &graph));
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CUevent start = Mark(s);
    EXPECT_OK(cuGraphLaunch(exec, s));
    CUevent end = Mark(s);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(Between(start, end), 100 * (20 * kMicro + kGraphGap) + kPair);
  });
}

TEST_F(ProfileTest, GivenUntimedEvents_ThenTheyTakeNothing) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    EXPECT_OK(gpu.Launch(s, kMilli));
    CUevent start = Mark(s);
    EXPECT_OK(cuEventRecord(NewEvent(CU_EVENT_DISABLE_TIMING), s));
    CUevent end = Mark(s);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(Between(start, end), kPair);
  });
}

TEST_F(ProfileTest, GivenTwoContextsAlwaysBusy_ThenTurnsAndSwitchesAsOnTheGpu) {
  RunWithContext([] {
    CUcontext other = nullptr;
    const Gpu gpu;
    CUstream s = NewStream();
    ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
    const Gpu rival;
    CUstream t = NewStream();
    EXPECT_OK(rival.Launch(t, 20 * kMilli));
    CUcontext popped = nullptr;
    EXPECT_OK(cuCtxPopCurrent_v2(&popped));
    EXPECT_OK(gpu.Launch(s, 10 * kMilli));
    const std::int64_t start = simgpu_now_ns();
    EXPECT_OK(cuStreamSynchronize(s));
    const std::int64_t turns = (10 * kMilli + kGap) / kTurn;  // that end by time, before the last one
    EXPECT_EQ(simgpu_now_ns() - start, 10 * kMilli + kGap + (turns + 1) * (kTurn + kSwitch) + turns * kSwitch);
  });
}

TEST_F(ProfileTest, GivenAClockThatRises_WhenTheGpuRests_ThenKernelsAreShorter) {
  Options("boost_percent=21 gap_ns=0 event_ns=0");
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    const auto length = [&] {
      CUevent start = Mark(s);
      EXPECT_OK(gpu.Launch(s, 10 * kMilli));
      CUevent end = Mark(s);
      EXPECT_OK(cuStreamSynchronize(s));
      return static_cast<double>(Between(start, end));
    };
    EXPECT_NEAR(length(), 10e6 / 1.21, 2);
    for (int i = 0; i < 100; ++i) length();
    EXPECT_NEAR(length(), 10e6, 0.1e6);
    simgpu_advance_ns(10'000'000'000);
    EXPECT_NEAR(length(), 10e6 / 1.21, 0.1e6);
  });
}

TEST_F(ProfileTest, GivenKernelsThatScatter_ThenLengthsDifferWithinTheBound) {
  Options("kernel_jitter_permille=50 gap_ns=0 event_ns=0");
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    std::int64_t shortest = kMilli, longest = kMilli;
    for (int i = 0; i < 100; ++i) {
      const std::int64_t length = Elapsed(gpu, s, 1, kMilli);
      shortest = std::min(shortest, length);
      longest = std::max(longest, length);
    }
    EXPECT_GE(shortest, kMilli * 95 / 100);
    EXPECT_LE(longest, kMilli * 105 / 100);
    EXPECT_LT(shortest, kMilli * 97 / 100);
    EXPECT_GT(longest, kMilli * 103 / 100);
  });
}

// Only a lower bound: a busy host makes a call longer.
TEST_F(ProfileTest, GivenTheRealClock_ThenCallsCostTheHostWhatTheyCostThere) {
  Options("clock=real");
  Run([] {
    const std::int64_t before = simgpu_now_ns();
    UsePrimary(0);
    EXPECT_GE(simgpu_now_ns() - before, 200 * kMilli) << "cuInit and the primary context";
    const Gpu gpu;
    CUstream s = NewStream();
    const std::int64_t start = simgpu_now_ns();
    for (int i = 0; i < 100; ++i) EXPECT_OK(gpu.Launch(s, 1));
    EXPECT_GE(simgpu_now_ns() - start, 290 * kMicro);
    EXPECT_OK(cuStreamSynchronize(s));
  });
}

// Ten times the table: a launch is with the GPU after 26 us, and a thread is awake 24.5 us after the end of the work.
TEST_F(ProfileTest, GivenTheRealClock_WhenAThreadWaits_ThenItWakesLater) {
  Options("clock=real host_percent=1000");
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    CUevent event = Mark(s);
    const std::vector<std::function<CUresult()>> waits = {[s] { return cuStreamSynchronize(s); }, cuCtxSynchronize,
                                                          [event] { return cuEventSynchronize(event); }};
    for (std::size_t kind = 0; kind < waits.size(); ++kind) {
      std::int64_t shortest = 1000 * kMilli;
      for (int round = 0; round < 50; ++round) {
        const std::int64_t start = simgpu_now_ns();
        EXPECT_OK(gpu.Launch(s, 100 * kMicro));
        EXPECT_OK(cuEventRecord(event, s));
        EXPECT_OK(waits[kind]());
        shortest = std::min(shortest, simgpu_now_ns() - start);
      }
      EXPECT_GE(shortest, 150 * kMicro) << "wait " << kind;
    }
  });
}

}  // namespace
}  // namespace simgpu::testing
