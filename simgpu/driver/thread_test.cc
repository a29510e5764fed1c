// SPDX-License-Identifier: Apache-2.0
// Many threads in one process: what they share is consistent, and everything is given back. Under the thread sanitizer
// this is the test that shows races.
#include <random>
#include <thread>
#include <vector>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 150;

class ThreadTest : public TimedTest {
 protected:
  void RealClock() const { std::ofstream(folder_ + "/config", std::ios::app) << "option clock=real\n"; }

  // `body(thread)` in every thread at once, with the caller's context current.
  static void InThreads(const std::function<void(int)>& body) {
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxGetCurrent(&ctx));
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&body, ctx, i] {
        EXPECT_OK(cuCtxSetCurrent(ctx));
        body(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

// One thread's share of everything that takes memory or time.
void Mix(const Gpu& gpu, unsigned seed, CUstream shared) {
  std::mt19937 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    CUstream s = NewStream();
    CUdeviceptr plain = 0;
    CUdeviceptr ordered = 0;
    EXPECT_OK(cuMemAlloc_v2(&plain, 1 + random() % 100'000));
    EXPECT_OK(cuMemAllocAsync(&ordered, 1 + random() % 100'000, s));
    EXPECT_OK(cuMemsetD8Async(plain, static_cast<unsigned char>(round), 1, s));
    EXPECT_OK(gpu.Launch(s, static_cast<std::int64_t>(random() % 20'000), 1 + static_cast<unsigned>(random() % kSms)));
    CUevent mine = Mark(s);
    EXPECT_OK(cuStreamWaitEvent(shared, mine, 0));
    EXPECT_OK(gpu.Launch(shared, 100, 1));
    EXPECT_OK(cuMemFreeAsync(ordered, s));
    if (round % 3 == 0) {
      EXPECT_OK(cuStreamSynchronize(s));
    }
    if (round % 20 == 0) {
      EXPECT_OK(cuCtxSynchronize());
    }
    EXPECT_OK(cuEventDestroy_v2(mine));
    EXPECT_OK(cuStreamDestroy_v2(s));
    EXPECT_OK(cuMemFree_v2(plain));
  }
}

void MixInAll(const std::function<void(const std::function<void(int)>&)>& in_threads) {
  const Gpu gpu;
  CUstream shared = NewStream();
  const std::uint64_t before = simgpu_used_bytes(0);
  in_threads([&](int i) { Mix(gpu, static_cast<unsigned>(i), shared); });
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_EQ(simgpu_used_bytes(0), before);
}

TEST_F(ThreadTest, GivenManyThreadsOnVirtualClock_WhenDoingAll_ThenBooksRight) {
  RunWithContext([] {
    alarm(120);
    MixInAll(InThreads);
  });
}

TEST_F(ThreadTest, GivenManyThreadsOnRealClock_WhenDoingAll_ThenBooksRight) {
  RealClock();
  RunWithContext([] {
    alarm(120);
    MixInAll(InThreads);
  });
}

TEST_F(ThreadTest, GivenThreadsMakeAndEndContexts_WhenDone_ThenMemoryIsBack) {
  RunWithContext([] {
    alarm(120);
    const std::uint64_t before = simgpu_used_bytes(0);
    InThreads([](int) {
      for (int round = 0; round < 10; ++round) {
        CUcontext own = nullptr;
        ASSERT_OK(cuCtxCreate_v2(&own, 0, 0));
        const Gpu gpu;
        CUdeviceptr p = 0;
        EXPECT_OK(cuMemAlloc_v2(&p, 4096));
        EXPECT_OK(gpu.Launch(NewStream(), 1000));
        EXPECT_OK(cuLaunchHostFunc(
            CU_STREAM_PER_THREAD, [](void*) {}, nullptr));
        EXPECT_OK(cuCtxDestroy_v2(own));
      }
    });
    EXPECT_EQ(simgpu_used_bytes(0), before);
  });
}

TEST_F(ThreadTest, GivenThreadsThatLaunchOneGraphWhenDoneThenAllOfItRan) {
  RunWithContext([] {
    alarm(120);
    const Gpu gpu;
    CUstream s = NewStream();
    ASSERT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(gpu.Launch(s, 1000));
    EXPECT_OK(gpu.Launch(s, 1000));
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_OK(cuStreamEndCapture(s, &graph));
    ASSERT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    InThreads([&](int) {
      CUstream own = NewStream();
      for (int round = 0; round < kRounds; ++round) EXPECT_OK(cuGraphLaunch(exec, own));
      EXPECT_OK(cuStreamSynchronize(own));
    });
    EXPECT_EQ(simgpu_busy_ns(0, 0), 2000U * kThreads * kRounds);
  });
}

}  // namespace
}  // namespace simgpu::testing
