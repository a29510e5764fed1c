// SPDX-License-Identifier: Apache-2.0
// Launches that ask for more than a grid and a block, occupancy, and what captures forbid in each of their modes.
#include <atomic>
#include <thread>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

class LaunchTest : public TimedTest {};

constexpr unsigned kBlocksPerSm = 2;  // of 1024 threads, on an A100

CUlaunchConfig Config(CUstream stream, unsigned blocks, CUlaunchAttribute* attributes, unsigned count) {
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 1024;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return config;
}

TEST_F(LaunchTest, GivenNoAttributes_WhenLaunched_ThenLikePlainLaunch) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    std::uint64_t cost = 500 * kMicro * kSms;
    void* params[] = {&cost};
    CUevent start = Mark(s);
    const CUlaunchConfig config = Config(s, kSms * kBlocksPerSm, nullptr, 0);
    EXPECT_OK(cuLaunchKernelEx(&config, gpu.spin(), params, nullptr));
    CUevent end = Mark(s);
    EXPECT_OK(cuStreamSynchronize(s));
    EXPECT_EQ(Between(start, end), 500 * kMicro);
    EXPECT_EQ(cuLaunchKernelEx(nullptr, gpu.spin(), params, nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(LaunchTest, GivenCooperativeLaunch_WhenItDoesNotFitAtOnce_ThenTooLarge) {
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    std::uint64_t cost = 1000;
    void* params[] = {&cost};
    CUlaunchAttribute cooperative{};
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
    CUlaunchConfig config = Config(s, kSms * kBlocksPerSm, &cooperative, 1);
    EXPECT_OK(cuLaunchKernelEx(&config, gpu.spin(), params, nullptr));
    ++config.gridDimX;
    EXPECT_EQ(cuLaunchKernelEx(&config, gpu.spin(), params, nullptr), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_OK(cuLaunchCooperativeKernel(gpu.spin(), kSms * kBlocksPerSm, 1, 1, 1024, 1, 1, 0, s, params));
    EXPECT_EQ(cuLaunchCooperativeKernel(gpu.spin(), kSms * kBlocksPerSm + 1, 1, 1, 1024, 1, 1, 0, s, params),
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    EXPECT_OK(cuStreamSynchronize(s));
  });
}

TEST_F(LaunchTest, GivenKernel_WhenOccupancyAsked_ThenScarcestResourceDecides) {
  RunWithContext([] {
    const Gpu gpu;
    int blocks = 0;
    EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, gpu.spin(), 1024, 0));
    EXPECT_EQ(blocks, 2);  // threads
    EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, gpu.spin(), 32, 0));
    EXPECT_EQ(blocks, 32);  // blocks
    EXPECT_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, gpu.spin(), 32, Gpu::kShared));
    EXPECT_EQ(blocks, 1);  // shared memory
    EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, gpu.spin(), 0, 0), CUDA_ERROR_INVALID_VALUE);
    int grid = 0;
    int block = 0;
    EXPECT_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, gpu.spin(), nullptr, 0, 0));
    EXPECT_EQ(block, 1024);
    EXPECT_EQ(grid, 2 * kSms);
  });
}

// What a thread is told when it allocates while the test's thread captures in `mode`.
CUresult AllocateElsewhere(CUcontext ctx, CUstreamCaptureMode own_mode) {
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    EXPECT_OK(cuCtxSetCurrent(ctx));
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&own_mode));
    CUdeviceptr p = 0;
    result = cuMemAlloc_v2(&p, 1024);
  }).join();
  return result;
}

void CaptureAndAllocateElsewhere(CUstreamCaptureMode capture, CUstreamCaptureMode thread, bool allowed) {
  CUcontext ctx = nullptr;
  ASSERT_OK(cuCtxGetCurrent(&ctx));
  CUstream s = NewStream();
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamBeginCapture_v2(s, capture));
  EXPECT_EQ(AllocateElsewhere(ctx, thread), allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(s, &graph), allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(LaunchTest, GivenACaptureWhenAnotherThreadAllocatesThenBothModesDecide) {
  RunWithContext([] {
    CaptureAndAllocateElsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
    CaptureAndAllocateElsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true);
    CaptureAndAllocateElsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, true);
    CaptureAndAllocateElsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, true);
    CaptureAndAllocateElsewhere(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, true);
  });
}

TEST_F(LaunchTest, GivenACaptureWhenAnotherThreadEndsItThenOnlyARelaxedOneMay) {
  RunWithContext([] {
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxGetCurrent(&ctx));
    const auto end_elsewhere = [ctx](CUstream s) {
      CUresult result = CUDA_SUCCESS;
      std::thread([&] {
        CUgraph graph = nullptr;
        EXPECT_OK(cuCtxSetCurrent(ctx));
        result = cuStreamEndCapture(s, &graph);
      }).join();
      return result;
    };
    CUstream s = NewStream();
    CUgraph graph = nullptr;
    ASSERT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_EQ(end_elsewhere(s), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_OK(cuStreamEndCapture(s, &graph));
    ASSERT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(end_elsewhere(s));
  });
}

TEST_F(LaunchTest, GivenAFault_WhenACallbackRunsAfterIt_ThenItIsToldOfIt) {
  RunWithContext([] {
    static std::atomic<int> told{-1};
    const Gpu gpu;
    CUstream s = NewStream();
    CUdeviceptr nowhere = 0x1000;
    std::uint64_t size = 8;
    unsigned char value = 1;
    void* params[] = {&nowhere, &size, &value};
    EXPECT_OK(cuLaunchKernel(gpu.Function("fill"), 1, 1, 1, 1, 1, 1, 0, s, params, nullptr));
    EXPECT_OK(cuStreamAddCallback(
        s, [](CUstream, CUresult status, void*) { told = static_cast<int>(status); }, nullptr, 0));
    EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(told, static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS));
  });
}

}  // namespace
}  // namespace simgpu::testing
