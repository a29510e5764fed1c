// SPDX-License-Identifier: Apache-2.0
// The GPU's time among processes and partitions: turns between processes on the real clock, with generous bounds;
// green contexts and MIG instances, side by side, on the virtual one.
#include <cstring>
#include <vector>

#include "abi/nvml_abi.h"
#include "simgpu/driver/testing/time.h"

#include <dlfcn.h>

namespace simgpu::testing {
namespace {

class ShareTimeTest : public TimedTest {
 protected:
  void RealClock() const { std::ofstream(folder_ + "/config", std::ios::app) << "option clock=real\n"; }
};

// A process with more work than the test takes, of kernels that each last `ns`.
class Worker {
 public:
  Worker(std::int64_t ns, int count)
      : child_([&] {
          static_cast<void>(cuInit(0));
          CUcontext ctx = nullptr;
          EXPECT_OK(cuDevicePrimaryCtxRetain(&ctx, 0));
          EXPECT_OK(cuCtxSetCurrent(ctx));
          const Gpu gpu;
          CUstream s = NewStream();
          for (int i = 0; i < count; ++i) EXPECT_OK(gpu.Launch(s, ns));
          ready_.Send(1);
          alarm(60);
          for (;;) pause();
        }) {
    ready_.Receive<int>();
  }
  ~Worker() { child_.Kill(); }

  double Busy() const { return static_cast<double>(simgpu_busy_ns(0, child_.pid())); }

 private:
  Pipe ready_;
  Child child_;
};

TEST_F(ShareTimeTest, GivenShortTurns_WhenTheHostLooksLate_ThenEventTimesAreRight) {
  RealClock();
  std::ofstream(folder_ + "/config", std::ios::app) << "option quantum_us=200\n";
  Run([] {
    const Worker rival(50 * kMilli, 40);
    UsePrimary(0);
    const Gpu gpu;
    CUstream s = NewStream();
    EXPECT_OK(gpu.Launch(s, kMilli));
    std::vector<CUevent> events{Mark(s)};
    for (int i = 0; i < 10; ++i) {
      EXPECT_OK(gpu.Launch(s, 10 * kMilli));
      events.push_back(Mark(s));
    }
    usleep(250'000);
    EXPECT_OK(cuStreamSynchronize(s));
    for (std::size_t i = 1; i < events.size(); ++i)
      EXPECT_NEAR(static_cast<double>(Between(events[i - 1], events[i])), 20e6, 8e6) << i;
  });
}

TEST_F(ShareTimeTest, GivenTwoProcesses_WhenBothAlwaysBusy_ThenEachHasHalfOfTheGpu) {
  RealClock();
  Run([] {
    const Worker small(3 * kMilli, 900);
    const Worker large(300 * kMilli, 9);
    const std::int64_t start = simgpu_now_ns();
    const double small_before = small.Busy();
    const double large_before = large.Busy();
    usleep(300'000);
    const double of_small = small.Busy() - small_before;
    const double of_large = large.Busy() - large_before;
    const auto passed = static_cast<double>(simgpu_now_ns() - start);
    EXPECT_NEAR(of_small / (of_small + of_large), 0.5, 0.1);
    EXPECT_GT(of_small + of_large, 0.7 * 300e6);
    EXPECT_LT(of_small + of_large, passed + 1e6);
  });
}

TEST_F(ShareTimeTest, GivenKilledProcess_WhenAnotherWorks_ThenOtherHasWholeGpu) {
  RealClock();
  Run([] {
    const Worker survivor(3 * kMilli, 900);
    { const Worker victim(300 * kMilli, 9); }
    Run([] { UsePrimary(0); });  // who comes new frees what the dead held
    const double before = survivor.Busy();
    const std::int64_t start = simgpu_now_ns();
    usleep(200'000);
    const double busy = survivor.Busy() - before;
    EXPECT_GT(busy, 0.8 * static_cast<double>(simgpu_now_ns() - start) - 20e6);
  });
}

TEST_F(ShareTimeTest, GivenAKernelOnTheRealClockWhenWaitedForThenItTookItsTime) {
  RealClock();
  RunWithContext([] {
    const Gpu gpu;
    CUstream s = NewStream();
    const std::int64_t before = simgpu_now_ns();
    CUevent start = Mark(s);
    EXPECT_OK(gpu.Launch(s, 20 * kMilli));
    CUevent end = Mark(s);
    EXPECT_OK(cuEventSynchronize(end));
    EXPECT_GE(Between(start, end), 20 * kMilli);
    EXPECT_LE(Between(start, end), simgpu_now_ns() - before);
  });
}

TEST_F(ShareTimeTest, GivenTwoGreenContexts_WhenBothWork_ThenInParallelOnOwnSms) {
  RunWithContext([] {
    CUdevResource all{};
    ASSERT_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_EQ(all.sm.smCount, static_cast<unsigned>(kSms));
    CUdevResource part[2] = {};
    CUdevResource rest{};
    unsigned groups = 2;
    ASSERT_OK(cuDevSmResourceSplitByCount(part, &groups, &all, &rest, 0, 27));
    ASSERT_EQ(groups, 2U);
    EXPECT_EQ(part[0].sm.smCount, 28U);
    EXPECT_EQ(rest.sm.smCount, static_cast<unsigned>(kSms) - 56U);
    CUstream stream[2] = {};
    CUcontext context[2] = {};
    for (int i = 0; i < 2; ++i) {
      CUdevResourceDesc desc = nullptr;
      CUgreenCtx green = nullptr;
      ASSERT_OK(cuDevResourceGenerateDesc(&desc, &part[i], 1));
      ASSERT_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
      ASSERT_OK(cuGreenCtxStreamCreate(&stream[i], green, CU_STREAM_NON_BLOCKING, 0));
      ASSERT_OK(cuCtxFromGreenCtx(&context[i], green));
    }
    const std::int64_t before = simgpu_now_ns();
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(cuCtxSetCurrent(context[i]));
      const Gpu gpu;
      int grid = 0;
      int block = 0;
      EXPECT_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, gpu.spin(), nullptr, 0, 0));
      EXPECT_EQ(grid, 2 * 28);
      EXPECT_OK(gpu.Launch(stream[i], 10 * kMilli, 56));  // as wide as two of the partitions
    }
    CUevent done = NewEvent();
    EXPECT_OK(cuCtxRecordEvent(context[1], done));
    EXPECT_OK(cuEventSynchronize(done));
    EXPECT_EQ(simgpu_now_ns() - before, 20 * kMilli);
    EXPECT_OK(cuStreamSynchronize(stream[0]));
    EXPECT_EQ(simgpu_now_ns() - before, 20 * kMilli);
  });
}

TEST_F(ShareTimeTest, GivenContextEvent_ThenItFollowsEveryStreamAndHoldsUpNone) {
  RunWithContext([] {
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxGetCurrent(&ctx));
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream(CU_STREAM_DEFAULT);
    CUevent start = Mark(b);
    EXPECT_OK(gpu.Launch(a, 30 * kMicro, 10));
    CUevent all = NewEvent();
    EXPECT_OK(cuCtxRecordEvent(ctx, all));
    EXPECT_OK(gpu.Launch(b, 5 * kMicro, 10));
    CUevent free = Mark(b);
    EXPECT_OK(cuCtxWaitEvent(ctx, all));
    EXPECT_OK(gpu.Launch(b, 5 * kMicro, 10));
    CUevent held = Mark(b);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(Between(start, all), 30 * kMicro);
    EXPECT_EQ(Between(start, free), 5 * kMicro);
    EXPECT_EQ(Between(start, held), 35 * kMicro);
  });
}

// --- MIG: what a process sees of its instance, and whose time it takes

template <typename Function>
Function Nvml(const char* name) {
  static void* const library = dlopen(SIMGPU_NVML_PATH, RTLD_NOW);
  EXPECT_NE(library, nullptr) << dlerror();
  return reinterpret_cast<Function>(dlsym(library, name));
}
#define NVML(name) Nvml<decltype(&name)>(#name)

// How many processes NVML lists on device 0, and what the last of them uses.
unsigned Listed(unsigned long long* bytes) {
  nvmlDevice_t device = nullptr;
  nvmlProcessInfo_t info[4] = {};
  unsigned count = 4;
  EXPECT_EQ(NVML(nvmlInit_v2)(), NVML_SUCCESS);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, info), NVML_SUCCESS);
  *bytes = count > 0 ? info[count - 1].usedGpuMemory : 0;
  return count;
}

TEST_F(ShareTimeTest, GivenContexts_WhenNvmlLists_ThenProcessOnceWhileAnyLives) {
  Run([] {
    unsigned long long bytes = 0;
    ASSERT_OK(cuInit(0));
    EXPECT_EQ(Listed(&bytes), 0U);
    CUcontext primary = nullptr;
    CUcontext created = nullptr;
    ASSERT_OK(cuDevicePrimaryCtxRetain(&primary, 0));
    EXPECT_EQ(Listed(&bytes), 1U);
    EXPECT_EQ(bytes, kContext);
    ASSERT_OK(cuCtxCreate_v2(&created, 0, 0));
    CUdeviceptr p = 0;
    EXPECT_OK(cuMemAlloc_v2(&p, kMiB));
    EXPECT_EQ(Listed(&bytes), 1U);
    EXPECT_EQ(bytes, 2 * kContext + kMiB);
    EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT_EQ(Listed(&bytes), 1U);
    EXPECT_EQ(bytes, kContext + kMiB);
    EXPECT_OK(cuCtxDestroy_v2(created));
    EXPECT_EQ(Listed(&bytes), 0U);
  });
}

// Two instances of three slices on device 0; their names.
void MakeInstances(std::string (&names)[2]) {
  nvmlDevice_t device = nullptr;
  nvmlReturn_t activation = NVML_ERROR_UNKNOWN;
  ASSERT_EQ(NVML(nvmlInit_v2)(), NVML_SUCCESS);
  ASSERT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
  ASSERT_EQ(NVML(nvmlDeviceSetMigMode)(device, NVML_DEVICE_MIG_ENABLE, &activation), NVML_SUCCESS);
  for (unsigned i = 0; i < 2; ++i) {
    nvmlGpuInstance_t gpu = nullptr;
    nvmlComputeInstance_t compute = nullptr;
    nvmlDevice_t mig = nullptr;
    char name[96] = "";
    constexpr unsigned kThreeSlices = 9;
    ASSERT_EQ(NVML(nvmlDeviceCreateGpuInstance)(device, kThreeSlices, &gpu), NVML_SUCCESS);
    ASSERT_EQ(NVML(nvmlGpuInstanceCreateComputeInstance)(gpu, NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, &compute),
              NVML_SUCCESS);
    ASSERT_EQ(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(device, i, &mig), NVML_SUCCESS);
    ASSERT_EQ(NVML(nvmlDeviceGetUUID)(mig, name, sizeof name), NVML_SUCCESS);
    names[i] = name;
  }
}

// In a process that sees only `name`: a kernel of `ns` on all of the instance's SMs; when it was done.
std::int64_t WorkIn(const std::string& name, std::int64_t ns) {
  setenv("CUDA_VISIBLE_DEVICES", name.c_str(), 1);
  EXPECT_OK(cuInit(0));
  CUcontext ctx = nullptr;
  EXPECT_OK(cuDevicePrimaryCtxRetain(&ctx, 0));
  EXPECT_OK(cuCtxSetCurrent(ctx));
  int sms = 0;
  EXPECT_OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(sms, 42);
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_OK(cuMemGetInfo_v2(&free, &total));
  EXPECT_LT(total, 24ULL * 1024 * kMiB);
  EXPECT_GT(total, 15ULL * 1024 * kMiB);
  EXPECT_EQ(total - free, 64 * kMiB);  // its own context, and not the neighbour's
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc_v2(&p, total), CUDA_ERROR_OUT_OF_MEMORY);
  const Gpu gpu;
  CUstream s = NewStream();
  EXPECT_OK(gpu.Launch(s, ns, 42));
  EXPECT_OK(cuStreamSynchronize(s));
  return simgpu_now_ns();
}

TEST_F(ShareTimeTest, GivenTwoMigInstances_WhenBothWork_ThenTimeAndMemoryAreApart) {
  std::ofstream(folder_ + "/config") << "gpus 1xA100-40\noption context_mib=64 clock=virtual launch_ns=0\n";
  std::string names[2];
  Pipe pipe;
  Child maker([&] {
    MakeInstances(names);
    for (const std::string& name : names) {
      char text[96] = "";
      std::memcpy(text, name.data(), std::min(name.size(), sizeof text - 1));
      pipe.Send(text);
    }
  });
  struct Name {
    char text[96];
  };
  for (std::string& name : names) name = pipe.Receive<Name>().text;
  ASSERT_EQ(maker.Join(), 0);
  // The first one's kernel is under way, and stays so, while the second one's runs.
  Pipe launched;
  Child first([&] {
    static_cast<void>(WorkIn(names[0], 0));
    const Gpu gpu;
    EXPECT_OK(gpu.Launch(NewStream(), 1000 * kMilli, 42));
    launched.Send(1);
    alarm(60);
    for (;;) pause();
  });
  launched.Receive<int>();
  Run([&] {
    const std::int64_t before = simgpu_now_ns();
    EXPECT_EQ(WorkIn(names[1], 40 * kMilli) - before, 40 * kMilli);
  });
  first.Kill();
}

}  // namespace
}  // namespace simgpu::testing
