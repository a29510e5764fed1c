// SPDX-License-Identifier: Apache-2.0
// What a capture forbids: which calls, in which mode, to which threads, and with which codes.
#include <functional>
#include <thread>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

struct Call {
  const char* name;
  std::function<CUresult()> make;
};

// One of each kind that the driver documents as unsafe.
const std::vector<Call>& UnsafeCalls() {
  static const auto* const calls =
      new std::vector<Call>{{"cuMemAlloc",
                             [] {
                               CUdeviceptr p = 0;
                               return cuMemAlloc_v2(&p, 512);
                             }},
                            {"cuMemAllocPitch",
                             [] {
                               CUdeviceptr p = 0;
                               std::size_t pitch = 0;
                               return cuMemAllocPitch_v2(&p, &pitch, 512, 4, 4);
                             }},
                            {"cuMemAllocManaged",
                             [] {
                               CUdeviceptr p = 0;
                               return cuMemAllocManaged(&p, 512, CU_MEM_ATTACH_GLOBAL);
                             }},
                            {"cuMemHostAlloc",
                             [] {
                               void* p = nullptr;
                               return cuMemHostAlloc(&p, 512, 0);
                             }},
                            {"cuMemAllocHost",
                             [] {
                               void* p = nullptr;
                               return cuMemAllocHost_v2(&p, 512);
                             }},
                            {"cuArrayCreate",
                             [] {
                               CUarray array = nullptr;
                               const CUDA_ARRAY_DESCRIPTOR desc{64, 64, CU_AD_FORMAT_FLOAT, 1};
                               return cuArrayCreate_v2(&array, &desc);
                             }},
                            {"cuModuleLoadData",
                             [] {
                               CUmodule module = nullptr;
                               return cuModuleLoadData(&module, kImage);
                             }},
                            {"cuEventQuery", [] { return cuEventQuery(NewEvent()); }},
                            {"cuEventSynchronize", [] { return cuEventSynchronize(NewEvent()); }}};
  return *calls;
}

// Such a call of this thread, or of another, while a stream is captured; what the end of the capture answers then.
void ExpectForbidden(CUstreamCaptureMode mode, bool other_thread, bool forbidden) {
  CUcontext context = nullptr;
  EXPECT_OK(cuCtxGetCurrent(&context));
  CUstream s = NewStream();
  for (const Call& call : UnsafeCalls()) {
    EXPECT_OK(cuStreamBeginCapture_v2(s, mode));
    CUresult result = CUDA_SUCCESS;
    if (other_thread) {
      std::thread([&] {
        EXPECT_OK(cuCtxSetCurrent(context));
        result = call.make();
      }).join();
    } else {
      result = call.make();
    }
    EXPECT_EQ(result, forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS) << call.name;
    CUdeviceptr p = 0;
    EXPECT_EQ(cuMemAllocAsync(&p, 512, s), forbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS)
        << call.name;
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(s, &graph), forbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS)
        << call.name;
  }
}

class CaptureRulesTest : public TimedTest {};

TEST_F(CaptureRulesTest, GivenAGlobalCapture_ThenUnsafeCallsOfAnyThreadEndIt) {
  RunWithContext([] {
    ExpectForbidden(CU_STREAM_CAPTURE_MODE_GLOBAL, false, true);
    ExpectForbidden(CU_STREAM_CAPTURE_MODE_GLOBAL, true, true);
  });
}

TEST_F(CaptureRulesTest, GivenAThreadLocalCapture_ThenOnlyItsThreadsCallsEndIt) {
  RunWithContext([] {
    ExpectForbidden(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, true);
    ExpectForbidden(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, false);
  });
}

TEST_F(CaptureRulesTest, GivenARelaxedCapture_ThenNoneEndsIt) {
  RunWithContext([] {
    ExpectForbidden(CU_STREAM_CAPTURE_MODE_RELAXED, false, false);
    ExpectForbidden(CU_STREAM_CAPTURE_MODE_RELAXED, true, false);
  });
}

// What nobody documents either way.
void AskThePool(CUresult answer, CUresult end) {
  CUstream s = NewStream();
  CUmemoryPool pool = nullptr;
  ASSERT_OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(cuDeviceGetMemPool(&pool, 0), answer);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(s, &graph), end);
}

TEST_F(CaptureRulesTest, GivenACallOfUnknownKind_ThenOnlyAStrictMachineForbidsIt) {
  RunWithContext([] { AskThePool(CUDA_SUCCESS, CUDA_SUCCESS); });
  std::ofstream(folder_ + "/config", std::ios::app) << "option strict_capture=1\n";
  setenv("SIMGPU_STATE", (folder_ + "/strict").c_str(), 1);
  RunWithContext([] {
    AskThePool(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_OK(cuThreadExchangeStreamCaptureMode(&mode));
    AskThePool(CUDA_SUCCESS, CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace simgpu::testing
