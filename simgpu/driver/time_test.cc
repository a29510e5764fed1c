// SPDX-License-Identifier: Apache-2.0
// Order and time of streams, events and copies, to the nanosecond, on the virtual clock.
#include "simgpu/driver/testing/time.h"

#include <cstring>
#include <vector>

namespace simgpu::testing {
namespace {

class TimeTest : public TimedTest {};

TEST_F(TimeTest, GivenAKernelWhenAloneThenItTakesWorkDividedByWidth) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    CUevent start = Mark(s);
    EXPECT_OK(gpu.Launch(s, 250 * kMicro));
    CUevent end = Mark(s);
    EXPECT_EQ(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(simgpu_now_ns() - before, 250 * kMicro);
    EXPECT_EQ(Between(start, end), 250 * kMicro);
    EXPECT_EQ(simgpu_busy_ns(0, 0), 250U * kMicro);
  });
}

TEST_F(TimeTest, GivenNarrowKernelsInTwoStreams_WhenTheyFit_ThenTheyOverlap) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    EXPECT_OK(gpu.Launch(a, 100 * kMicro, 50));
    EXPECT_OK(gpu.Launch(b, 100 * kMicro, 50));
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(simgpu_now_ns() - before, 100 * kMicro);
  });
}

TEST_F(TimeTest, GivenWideKernelsInTwoStreams_WhenRun_ThenLaterTakesTheRest) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    CUevent start = Mark(a);
    EXPECT_OK(gpu.Launch(a, 100 * kMicro));
    EXPECT_OK(gpu.Launch(b, 100 * kMicro));
    CUevent end_a = Mark(a);
    CUevent end_b = Mark(b);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(Between(start, end_a), 100 * kMicro);
    EXPECT_EQ(Between(start, end_b), 200 * kMicro);
  });
}

TEST_F(TimeTest, GivenAQueueOfKernelsWhenSynchronisedThenTheyFollowEachOther) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    CUevent start = Mark(s);
    std::vector<CUevent> ends;
    for (int i = 0; i < 200; ++i) {
      EXPECT_OK(gpu.Launch(s, 5 * kMicro));
      ends.push_back(Mark(s));
    }
    EXPECT_OK(cuEventSynchronize(ends[9]));
    EXPECT_EQ(Between(start, ends[9]), 50 * kMicro);
    EXPECT_EQ(cuEventQuery(ends[10]), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(Between(start, ends[199]), 1000 * kMicro);
  });
}

TEST_F(TimeTest, GivenAFullQueueWhenLaunchedThenTheLauncherWaits) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    const std::int64_t before = simgpu_now_ns();
    for (int i = 0; i < 1024; ++i) {
      EXPECT_OK(gpu.Launch(s, 5 * kMicro));
    }
    EXPECT_EQ(simgpu_now_ns(), before);
    EXPECT_OK(gpu.Launch(s, 5 * kMicro));
    EXPECT_EQ(simgpu_now_ns() - before, 5 * kMicro);
  });
}

TEST_F(TimeTest, GivenAnEventWhenAnotherStreamWaitsThenItsWorkComesAfter) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    CUevent start = Mark(a);
    EXPECT_OK(gpu.Launch(a, 100 * kMicro, 10));
    CUevent middle = Mark(a);
    EXPECT_OK(cuStreamWaitEvent(b, middle, 0));
    EXPECT_OK(gpu.Launch(b, 50 * kMicro, 10));
    CUevent end = Mark(b);
    EXPECT_OK(cuEventSynchronize(end));
    EXPECT_EQ(Between(start, end), 150 * kMicro);
  });
}

TEST_F(TimeTest, GivenCopy_WhenKernelRuns_ThenTheyOverlapAndBytesInOrder) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    constexpr std::size_t kSize = 8 * kMiB;
    void* host = nullptr;
    CUdeviceptr device = 0;
    ASSERT_OK(cuMemAllocHost_v2(&host, kSize));
    ASSERT_OK(cuMemAlloc_v2(&device, kSize));
    std::memset(host, 0x5a, kSize);
    CUevent start = Mark(b);
    EXPECT_OK(cuMemcpyHtoDAsync_v2(device, host, kSize, b));
    CUevent copied = Mark(b);
    EXPECT_OK(gpu.Launch(a, 10 * kMilli));
    EXPECT_OK(gpu.Launch(b, 7 * kMicro, 1));
    EXPECT_OK(cuEventSynchronize(copied));
    const std::int64_t copy = Between(start, copied);
    EXPECT_GT(copy, 0);
    EXPECT_LT(copy, 10 * kMilli);
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(cuStreamSynchronize(a));
    EXPECT_EQ(simgpu_now_ns() - before, 10 * kMilli - copy);
    EXPECT_EQ(*reinterpret_cast<unsigned char*>(device + kSize - 1), 0x5a);
  });
}

TEST_F(TimeTest, GivenLegacyStream_WhenUsed_ThenOnlyBlockingStreamsWait) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream blocking = NewStream(CU_STREAM_DEFAULT);
    CUstream free = NewStream(CU_STREAM_NON_BLOCKING);
    CUevent start = Mark(free);
    EXPECT_OK(gpu.Launch(blocking, 10 * kMicro, 1));
    EXPECT_OK(gpu.Launch(nullptr, 20 * kMicro, 1));
    EXPECT_OK(gpu.Launch(blocking, 40 * kMicro, 1));
    EXPECT_OK(gpu.Launch(free, 5 * kMicro, 1));
    CUevent end_blocking = Mark(blocking);
    CUevent end_free = Mark(free);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(Between(start, end_blocking), 70 * kMicro);
    EXPECT_EQ(Between(start, end_free), 5 * kMicro);
  });
}

TEST_F(TimeTest, GivenTwoContextsOfOneProcessWhenBothWorkThenTheyTakeTurns) {
  RunWithContext([] {
    CUcontext first = nullptr;
    CUcontext second = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&first));
    const Gpu one;
    CUstream a = NewStream();
    ASSERT_OK(cuCtxCreate_v2(&second, 0, 0));
    const Gpu two;
    CUstream b = NewStream();
    EXPECT_OK(two.Launch(b, 10 * kMilli));
    EXPECT_OK(cuCtxSetCurrent(first));
    EXPECT_OK(one.Launch(a, 10 * kMilli));
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(cuStreamSynchronize(b));
    EXPECT_EQ(simgpu_now_ns() - before, 18 * kMilli);  // its last quantum of 2 ms is the last but one
    EXPECT_OK(cuStreamSynchronize(a));
    EXPECT_EQ(simgpu_now_ns() - before, 20 * kMilli);
  });
}

TEST_F(TimeTest, GivenAHostFunctionWhenItsTurnComesThenItRunsBetween) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    static std::int64_t seen = -1;
    CUevent start = Mark(s);
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(gpu.Launch(s, 30 * kMicro));
    EXPECT_OK(cuLaunchHostFunc(
        s, [](void*) { seen = simgpu_now_ns(); }, nullptr));
    EXPECT_OK(gpu.Launch(s, 10 * kMicro));
    CUevent end = Mark(s);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(seen - before, 30 * kMicro);
    EXPECT_EQ(Between(start, end), 40 * kMicro);
  });
}

TEST_F(TimeTest, GivenAStreamWithWorkWhenDestroyedThenTheWorkIsStillDone) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    EXPECT_OK(gpu.Launch(s, 30 * kMicro));
    EXPECT_OK(cuStreamDestroy_v2(s));
    EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(simgpu_busy_ns(0, 0), 30U * kMicro);
  });
}

TEST_F(TimeTest, GivenAContextWithWorkWhenDestroyedThenItsWorkIsDoneFirst) {
  RunWithContext([] {
    const Gpu gpu;
    CUcontext other = nullptr;
    ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
    const Gpu doomed;
    static bool called = false;
    CUstream s = NewStream();
    EXPECT_OK(doomed.Launch(s, 1000 * kMilli));
    EXPECT_OK(cuLaunchHostFunc(
        s, [](void*) { called = true; }, nullptr));
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(cuCtxDestroy_v2(other));
    EXPECT_EQ(simgpu_now_ns() - before, 1000 * kMilli);
    EXPECT_TRUE(called);
  });
}

TEST_F(TimeTest, GivenContextWaitingForValue_WhenDestroyed_ThenGoneAndGpuFree) {
  RunWithContext([] {
    alarm(30);
    const Gpu gpu;
    CUdeviceptr flag = 0;
    ASSERT_OK(cuMemAlloc_v2(&flag, 4));
    CUcontext other = nullptr;
    ASSERT_OK(cuCtxCreate_v2(&other, 0, 0));
    const Gpu doomed;
    CUstream s = NewStream();
    EXPECT_OK(cuStreamWaitValue32_v2(s, flag, 1, CU_STREAM_WAIT_VALUE_EQ));  // nobody will write it
    EXPECT_OK(doomed.Launch(s, 1000 * kMilli));
    EXPECT_OK(cuCtxDestroy_v2(other));
    UsePrimary(0);
    CUstream mine = NewStream();
    EXPECT_OK(gpu.Launch(mine, 10 * kMilli));
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(cuStreamSynchronize(mine));
    EXPECT_EQ(simgpu_now_ns() - before, 10 * kMilli);
  });
}

TEST_F(TimeTest, GivenAKilledProcessWhenOthersWaitThenTheyHaveTheGpu) {
  Pipe ready;
  Child doomed([&] {
    UsePrimary(0);
    const Gpu gpu;
    EXPECT_OK(gpu.Launch(NewStream(), 100'000 * kMilli));
    ready.Send(1);
    pause();
  });
  EXPECT_EQ(ready.Receive<int>(), 1);
  doomed.Kill();
  EXPECT_EQ(doomed.Join(), 128 + SIGKILL);
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    EXPECT_OK(gpu.Launch(s, 10 * kMilli));
    const std::int64_t before = simgpu_now_ns();
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(simgpu_now_ns() - before, 10 * kMilli);
  });
}

TEST_F(TimeTest, GivenEventsThatHoldNoTimeWhenAskedThenTheErrorsAreTheDrivers) {
  RunWithContext([] {
    CUstream s = NewStream();
    CUevent never = NewEvent();
    CUevent timeless = NewEvent(CU_EVENT_DISABLE_TIMING);
    CUevent good = Mark(s);
    float ms = 0;
    EXPECT_OK(cuEventQuery(never));
    EXPECT_OK(cuEventSynchronize(never));
    EXPECT_EQ(cuEventElapsedTime(&ms, good, never), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_OK(cuEventRecord(timeless, s));
    EXPECT_EQ(cuEventElapsedTime(&ms, good, timeless), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_OK(cuEventDestroy_v2(never));
    EXPECT_EQ(cuEventQuery(never), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventQuery(reinterpret_cast<CUevent>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST_F(TimeTest, GivenBadLaunchesWhenTriedThenTheyAreRefused) {
  RunWithContext([] {
    const Gpu gpu;
    std::uint64_t cost = 1000;
    void* params[] = {&cost};
    const auto launch = [&](unsigned grid, unsigned block, unsigned shared) {
      return cuLaunchKernel(gpu.spin(), grid, 1, 1, block, 1, 1, shared, nullptr, params, nullptr);
    };
    EXPECT_OK(launch(1, 1, 0));
    EXPECT_EQ(launch(0, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(1, 1, 200 * 1024), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLaunchCooperativeKernel(gpu.spin(), 100'000, 1, 1, 1024, 1, 1, 0, nullptr, params),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  });
}

TEST_F(TimeTest, GivenAValueInMemoryWhenAStreamWaitsThenItGoesOnAfterTheWrite) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    CUdeviceptr flag = 0;
    ASSERT_OK(cuMemAlloc_v2(&flag, 4));
    CUevent start = Mark(a);
    EXPECT_OK(cuStreamWaitValue32_v2(b, flag, 7, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(gpu.Launch(b, 5 * kMicro, 1));
    CUevent end = Mark(b);
    EXPECT_OK(gpu.Launch(a, 20 * kMicro, 1));
    EXPECT_OK(cuStreamWriteValue32_v2(a, flag, 7, 0));
    EXPECT_OK(cuEventSynchronize(end));
    EXPECT_EQ(Between(start, end), 25 * kMicro);
    EXPECT_EQ(cuStreamWaitValue32_v2(b, flag + 1, 7, 0), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(TimeTest, GivenAKernelThatFillsWhenItIsDoneThenTheBytesAreThere) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    CUdeviceptr buffer = 0;
    ASSERT_OK(cuMemAlloc_v2(&buffer, 4096));
    std::uint64_t size = 4096;
    unsigned char value = 9;
    void* params[] = {&buffer, &size, &value};
    EXPECT_OK(cuLaunchKernel(gpu.Function("fill"), 1, 1, 1, 1, 1, 1, 0, s, params, nullptr));
    EXPECT_EQ(*reinterpret_cast<unsigned char*>(buffer), 0);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(*reinterpret_cast<unsigned char*>(buffer + 4095), 9);
  });
}

}  // namespace
}  // namespace simgpu::testing
