// SPDX-License-Identifier: Apache-2.0
//
// What test/bench/sm_facts.py holds beside the figures of a real GPU: a program that measures the simulated one (or,
// with SM_ROUND_NS, a real one) as that was measured, through the driver's own functions alone. Prints a name and a
// figure a line, times in us.
//
//   sm_facts time              events, gaps between kernels, the same in a graph
//   sm_facts turns SECONDS     how long this context has the GPU, and for how long it is away
//   sm_facts start             cuInit, a first context, and a launch among many
//   sm_facts host              what calls cost the thread that makes them: medians
//   sm_facts nvml WHEN         what a start takes where NVML is opened `before` the driver's, beside its `init` or its
//                              first `context`, `after` that, or `never`
//
// `turns` looks at the stamps of short kernels: a longer gap is somebody else's turn.
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "abi/cuda_abi.h"
#include "abi/nvml_abi.h"
#include "sm_kernel.h"
#include "vgpu/loader/elf_lookup.h"

namespace {

constexpr double kKernel = 20;  // us

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "sm_facts: %s gave %d\n", what, static_cast<int>(result));
  std::exit(3);
}
#define OK(call) Check((call), #call)

double Now() {  // us
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void Print(const char* name, double figure) { std::printf("%s %.3f\n", name, figure); }

double Median(std::vector<double> values, double portion = 0.5) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(portion * static_cast<double>(values.size())))];
}

class Gpu {
 public:
  Gpu() {
    double at = Now();
    OK(cuInit(0));
    init_ = Now() - at;
    at = Now();
    OK(cuDevicePrimaryCtxRetain(&context_, 0));
    retain_ = Now() - at;
    OK(cuCtxSetCurrent(context_));
    OK(kernel_.Init([](const char* image, CUfunction* function) {
      CUmodule module = nullptr;
      const CUresult result = cuModuleLoadData(&module, image);
      return result != CUDA_SUCCESS ? result : cuModuleGetFunction(function, module, "work");
    }));
    OK(cuDeviceGetAttribute(&sms_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }

  // A kernel that fills the GPU for `us`.
  CUresult Launch(double us) {
    std::uint64_t work = kernel_.Argument(us * 1e3, sms_);
    void* params[] = {&work};
    return cuLaunchKernel(kernel_.function, 2 * static_cast<unsigned>(sms_), 1, 1, 1024, 1, 1, 0, stream, params,
                          nullptr);
  }
  // One block that is over at once.
  CUresult LaunchSmall(decltype(cuLaunchKernel)* launch = &cuLaunchKernel) {
    std::uint64_t work = kernel_.real ? 1 : 1'000;
    void* params[] = {&work};
    return launch(kernel_.function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
  static CUevent Event(unsigned flags = 0) {
    CUevent event = nullptr;
    OK(cuEventCreate(&event, flags));
    return event;
  }
  static double Between(CUevent a, CUevent b) {
    float ms = 0;
    OK(cuEventElapsedTime(&ms, a, b));
    return static_cast<double>(ms) * 1e3;
  }
  double init() const { return init_; }
  double retain() const { return retain_; }

  CUstream stream = nullptr;

 private:
  CUcontext context_ = nullptr;
  sm::WorkKernel kernel_;
  int sms_ = 0;
  double init_ = 0, retain_ = 0;
};

// Between two events with `count` kernels in between, less what these take.
double Extra(Gpu& gpu, int count, bool ahead) {
  CUevent start = Gpu::Event();
  CUevent end = Gpu::Event();
  std::vector<double> extra;
  for (int i = 0; i < 60; ++i) {
    if (ahead) OK(gpu.Launch(3'000));
    OK(cuEventRecord(start, gpu.stream));
    for (int k = 0; k < count; ++k) OK(gpu.Launch(kKernel));
    OK(cuEventRecord(end, gpu.stream));
    OK(cuStreamSynchronize(gpu.stream));
    extra.push_back(Gpu::Between(start, end) - count * kKernel);
  }
  return Median(extra);
}

void Time(Gpu& gpu) {
  for (const bool ahead : {true, false}) {
    for (const int count : {0, 1, 2, 8, 32}) {
      Print((std::string(ahead ? "busy_" : "idle_") + std::to_string(count)).c_str(), Extra(gpu, count, ahead));
    }
  }
  Print("gap_stream", (Extra(gpu, 500, true) - Extra(gpu, 0, true)) / 500);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamBeginCapture_v2(gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 100; ++i) OK(gpu.Launch(kKernel));
  OK(cuStreamEndCapture(gpu.stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CUevent start = Gpu::Event();
  CUevent end = Gpu::Event();
  OK(gpu.Launch(3'000));
  OK(cuEventRecord(start, gpu.stream));
  OK(cuGraphLaunch(exec, gpu.stream));
  OK(cuEventRecord(end, gpu.stream));
  OK(cuStreamSynchronize(gpu.stream));
  Print("gap_graph", (Gpu::Between(start, end) - Extra(gpu, 0, true)) / 100 - kKernel);
}

void Turns(Gpu& gpu, double seconds) {
  constexpr std::size_t kBatch = 900;
  std::vector<CUevent> events;
  for (std::size_t i = 0; i < kBatch; ++i) events.push_back(Gpu::Event());
  std::vector<double> turns;
  std::vector<double> aways;
  for (const double end = Now() + seconds * 1e6; Now() < end;) {
    OK(gpu.Launch(3'000));
    for (CUevent event : events) {
      OK(cuEventRecord(event, gpu.stream));
      OK(gpu.Launch(kKernel));
    }
    OK(cuStreamSynchronize(gpu.stream));
    const double each = Gpu::Between(events[0], events[1]) < 100 ? Gpu::Between(events[0], events[1])
                                                                 : Gpu::Between(events[1], events[2]);
    double began = -1;  // the first gap of a batch only tells where a turn begins
    for (std::size_t i = 1; i < kBatch; ++i) {
      const double step = Gpu::Between(events[i - 1], events[i]);
      if (step < each + 200) continue;
      const double at = Gpu::Between(events[0], events[i - 1]);
      if (began >= 0) {
        turns.push_back(at + each - began);  // the kernel that was interrupted ran within this turn and the next
        aways.push_back(step - each);
      }
      began = at + step;
    }
  }
  Print("turn", Median(turns));
  Print("away", Median(aways));
  Print("seen", static_cast<double>(turns.size()));
}

template <typename Call>
void Cost(const char* name, int count, Call call) {
  std::vector<double> costs;
  for (int i = 0; i < count; ++i) {
    const double at = Now();
    call();
    costs.push_back(Now() - at);
  }
  Print(name, Median(costs));
}

// The driver's own function, also where a library stands before the driver: libc's dlsym is found by reading its
// tables.
template <typename Function>
Function* Own(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const auto look_up = reinterpret_cast<void* (*)(void*, const char*)>(hami::vgpu::FindInLibc("dlsym"));
  return driver == nullptr || look_up == nullptr ? nullptr : reinterpret_cast<Function*>(look_up(driver, name));
}

// What a start takes, and what is added to a launch that the GPU keeps up with, with what a limiter does now and then.
// Both ways of launching take turns in one process: two processes of one kind differ by more than is added.
void Start(Gpu& gpu) {
  Print("cuInit", gpu.init());
  Print("primary context", gpu.retain());
  constexpr int kLaunches = 400;
  auto* const own = Own<decltype(cuLaunchKernel)>("cuLaunchKernel");
  if (own == nullptr) Check(CUDA_ERROR_NOT_FOUND, "the driver's cuLaunchKernel");
  std::vector<double> theirs;
  std::vector<double> added;
  for (int pair = 0; pair < 250; ++pair) {
    double each[2];
    for (int half = 0; half < 2; ++half) {
      const bool direct = (half == 0) == (pair % 2 == 0);
      const double at = Now();
      for (int i = 0; i < kLaunches; ++i) OK(direct ? gpu.LaunchSmall(own) : gpu.LaunchSmall());
      each[direct ? 0 : 1] = (Now() - at) / kLaunches;
      OK(cuStreamSynchronize(gpu.stream));
    }
    theirs.push_back(each[0]);
    added.push_back(each[1] - each[0]);
  }
  Print("cuLaunchKernel", Median(theirs));
  Print("added to cuLaunchKernel", Median(added));
}

void HostOfMemory(Gpu& gpu) {
  const auto pair = [](std::size_t size) {
    CUdeviceptr p = 0;
    OK(cuMemAlloc_v2(&p, size));
    OK(cuMemFree_v2(p));
  };
  Cost("cuMemAlloc + cuMemFree 4 KiB", 1000, [&] { pair(4096); });
  Cost("cuMemAlloc + cuMemFree 64 MiB", 200, [&] { pair(std::size_t{64} << 20); });
  CUdeviceptr keep = 0;
  OK(cuMemAllocAsync(&keep, std::size_t{1} << 20, gpu.stream));
  OK(cuStreamSynchronize(gpu.stream));
  Cost("cuMemAllocAsync + cuMemFreeAsync 1 MiB", 500, [&] {
    CUdeviceptr p = 0;
    OK(cuMemAllocAsync(&p, std::size_t{1} << 20, gpu.stream));
    OK(cuMemFreeAsync(p, gpu.stream));
  });
  OK(cuStreamSynchronize(gpu.stream));
  std::size_t room = 0;
  std::size_t total = 0;
  Cost("cuMemGetInfo", 1000, [&] { OK(cuMemGetInfo_v2(&room, &total)); });
  std::vector<char> bytes(4096);
  Cost("cuMemcpyHtoDAsync 4 KiB", 500, [&] { OK(cuMemcpyHtoDAsync_v2(keep, bytes.data(), bytes.size(), gpu.stream)); });
  OK(cuStreamSynchronize(gpu.stream));
}

void Host(Gpu& gpu) {
  Print("cuInit", gpu.init());
  Print("primary context", gpu.retain());
  CUevent timed = Gpu::Event();
  CUevent untimed = Gpu::Event(CU_EVENT_DISABLE_TIMING);
  CUevent pending = Gpu::Event();
  OK(cuEventRecord(timed, gpu.stream));
  OK(cuStreamSynchronize(gpu.stream));
  float ms = 0;
  Cost("cuEventQuery done", 2000, [&] { cuEventQuery(timed); });
  Cost("cuEventElapsedTime", 2000, [&] { cuEventElapsedTime(&ms, timed, timed); });
  Cost("cuStreamQuery", 2000, [&] { cuStreamQuery(gpu.stream); });
  OK(gpu.Launch(100'000));
  OK(cuEventRecord(pending, gpu.stream));
  Cost("cuEventQuery pending", 2000, [&] { cuEventQuery(pending); });
  Cost("cuEventRecord timed", 400, [&] { OK(cuEventRecord(timed, gpu.stream)); });
  Cost("cuEventRecord untimed", 400, [&] { OK(cuEventRecord(untimed, gpu.stream)); });
  OK(cuStreamSynchronize(gpu.stream));
  OK(gpu.Launch(10'000));
  Cost("cuLaunchKernel", 800, [&] { OK(gpu.LaunchSmall()); });
  OK(cuStreamSynchronize(gpu.stream));
  Cost("launch + cuStreamSynchronize", 1000, [&] {
    OK(gpu.LaunchSmall());
    OK(cuStreamSynchronize(gpu.stream));
  });
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamBeginCapture_v2(gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 50; ++i) OK(gpu.LaunchSmall());
  OK(cuStreamEndCapture(gpu.stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  Cost("cuGraphLaunch of 50", 15, [&] { OK(cuGraphLaunch(exec, gpu.stream)); });
  OK(cuStreamSynchronize(gpu.stream));
  HostOfMemory(gpu);
}

// A session of NVML and a first look at the device, and what that took.
class NvmlSession {
 public:
  NvmlSession()
      : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)),
        init_(Symbol<decltype(nvmlInit_v2)>("nvmlInit_v2")),
        handle_(Symbol<decltype(nvmlDeviceGetHandleByIndex_v2)>("nvmlDeviceGetHandleByIndex_v2")),
        memory_(Symbol<decltype(nvmlDeviceGetMemoryInfo)>("nvmlDeviceGetMemoryInfo")) {}

  void Open() {
    nvmlDevice_t device = nullptr;
    nvmlMemory_t memory{};
    const double at = Now();
    Expect(init_());
    const double opened = Now();
    Expect(handle_(0, &device));
    Expect(memory_(device, &memory));
    open_ = opened - at;
    look_ = Now() - opened;
  }
  void Tell() const {
    Print("nvmlInit", open_);
    Print("first look at the device", look_);
  }

 private:
  template <typename Function>
  Function* Symbol(const char* name) const {
    auto* const found = library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
    Check(found == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS, name);
    return found;
  }
  static void Expect(nvmlReturn_t result) { Check(result == NVML_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, "NVML"); }

  void* library_;
  decltype(nvmlInit_v2)* init_;
  decltype(nvmlDeviceGetHandleByIndex_v2)* handle_;
  decltype(nvmlDeviceGetMemoryInfo)* memory_;
  double open_ = 0, look_ = 0;
};

// False: there is no such moment.
bool StartWithNvml(const std::string& when) {
  const char* const moments[] = {"never", "before", "init", "context", "after"};
  if (std::find(std::begin(moments), std::end(moments), when) == std::end(moments)) return false;
  NvmlSession nvml;
  std::thread beside;
  const auto open = [&] { nvml.Open(); };
  const double at = Now();
  if (when == "before") open();
  double since = Now();
  if (when == "init") beside = std::thread(open);
  OK(cuInit(0));
  Print("cuInit", Now() - since);
  since = Now();
  if (when == "context") beside = std::thread(open);
  CUcontext context = nullptr;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  Print("primary context", Now() - since);
  if (when == "after") open();
  since = Now();
  if (beside.joinable()) beside.join();
  Print("until NVML was there", Now() - since);
  CUdeviceptr memory = 0;
  OK(cuMemAlloc_v2(&memory, std::size_t{4} << 20));
  Print("all of it", Now() - at);
  nvml.Tell();
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_TIMERSLACK, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "nvml" && argc == 3 && StartWithNvml(argv[2])) return 0;
  if (what == "nvml") {
    std::fprintf(stderr, "sm_facts: nvml never|before|init|context|after\n");
    return 2;
  }
  Gpu gpu;
  if (what == "time" && argc == 2) {
    Time(gpu);
  } else if (what == "turns" && argc == 3) {
    Turns(gpu, std::atof(argv[2]));
  } else if (what == "start" && argc == 2) {
    Start(gpu);
  } else if (what == "host" && argc == 2) {
    Host(gpu);
  } else {
    std::fprintf(stderr, "sm_facts: see the head of test/bench/sm_facts.cc\n");
    return 2;
  }
  return 0;
}
