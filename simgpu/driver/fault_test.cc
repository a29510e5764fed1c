// SPDX-License-Identifier: Apache-2.0
// Faults reach every call, and each call once; a GPU that fell off the bus is told by all that its contexts do.
#include <set>
#include <string>

#include "simgpu/driver/testing/time.h"

#include <dlfcn.h>

namespace simgpu::testing {
namespace {

class FaultTest : public TimedTest {};

void Inject(const char* text) {
  char error[256] = "";
  EXPECT_EQ(simgpu_inject(text, error, sizeof error), 1) << error;
}

// Calls that also answer before cuInit, when there is nothing yet to ask for faults.
const std::set<std::string> kUnguarded = {
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetExportTable",
    "cuLogsCurrent",
    "cuLogsRegisterCallback",
    "cuLogsUnregisterCallback",
    "cuLogsDumpToFile",
    "cuLogsDumpToMemory",
};

constexpr const char* kSymbols[] = {
#define SIMGPU_NAME(symbol, asked_as, since, flavour) #symbol,
#define HAMI_CUDA_HOOK SIMGPU_NAME
#define HAMI_CUDA_PASS SIMGPU_NAME
#define HAMI_CUDA_ALIAS(symbol, asked_as, since, flavour)
#include "abi/cuda_api.inc"
};

TEST_F(FaultTest, GivenFaultOnEveryCall_WhenAnyIsCalled_ThenItAnswersTheFault) {
  RunWithContext([] {
    Inject("fault call=* error=999");
    void* const library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    ASSERT_NE(library, nullptr);
    int guarded = 0;
    for (const char* symbol : kSymbols) {
      if (kUnguarded.count(symbol) > 0) continue;
      // No function reads its arguments before the guard, so any will do.
      using Call =
          int (*)(std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t);
      const auto call = reinterpret_cast<Call>(dlsym(library, symbol));
      ASSERT_NE(call, nullptr) << symbol;
      const int result = call(0, 0, 0, 0, 0, 0);
      constexpr int kNotSimulated = 801;
      EXPECT_TRUE(result == 999 || result == kNotSimulated) << symbol << " answers " << result;
      guarded += result == 999 ? 1 : 0;
    }
    EXPECT_GT(guarded, 450);
  });
}

// Calls `body` when the second call of anything fails: it must not be one that the first one made for itself.
void OnlyOnce(const char* pattern, const std::function<CUresult()>& body) {
  Inject("clear");
  Inject((std::string("fault call=") + pattern + " error=999 nth=2").c_str());
  EXPECT_OK(body()) << pattern;
}

TEST_F(FaultTest, GivenCallsThatDoWhatOthersDoWhenCountedThenEachCountsOnce) {
  RunWithContext([] {
    CUcontext ctx = nullptr;
    CUcontext peer = nullptr;
    ASSERT_OK(cuCtxGetCurrent(&ctx));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&peer, 1));
    CUevent event = NewEvent();
    OnlyOnce("*", [&] { return cuCtxEnablePeerAccess(peer, 0); });
    OnlyOnce("*", [&] { return cuCtxRecordEvent(ctx, event); });
    OnlyOnce("*", [&] { return cuCtxWaitEvent(ctx, event); });
    CUmodule module = nullptr;
    OnlyOnce("*", [&] { return cuModuleLoadData(&module, "simgpu-image 1\nglobal shared 64 managed\n"); });
    OnlyOnce("*", [&] { return cuModuleUnload(module); });
    CUdeviceptr p = 0;
    OnlyOnce("*", [&] { return cuMemAllocAsync(&p, 64, nullptr); });
    OnlyOnce("*", [&] { return cuMemcpyHtoD_v2(p, &event, 8); });
    OnlyOnce("*", [&] { return cuMemFree_v2(p); });
    Inject("clear");
  });
}

TEST_F(FaultTest, GivenALostGpuWhenItsContextIsUsedThenOnlyItsCallsFail) {
  RunWithContext([] {
    CUcontext other = nullptr;
    ASSERT_OK(cuDevicePrimaryCtxRetain(&other, 1));
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&p, 4096));
    Inject("lost device=0");
    EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    int count = 0;
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 2);
    EXPECT_OK(cuCtxSetCurrent(other));
    EXPECT_OK(cuMemAlloc_v2(&p, 4096));
  });
}

}  // namespace
}  // namespace simgpu::testing
