// SPDX-License-Identifier: Apache-2.0
//
// What the benchmark measures from inside a GPU process: it finds the driver as a client does (dlopen and dlsym), runs
// one loop and prints one number per line, `NAME VALUE`. Where the cost of a call is asked for, it times the function
// that a client finds and the driver's own function of that name in turns: two processes with the same code may differ
// by more than what is looked for, by where their memory happens to lie. test/bench/run.py runs it with the library
// preloaded, for whole starts also without, and does the arithmetic.
//
//   guest launch [stream] | steps | writes THREADS NANOS | alloc LIVE THREADS | refuse | init | lookup | own

#include <dlfcn.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/simgpu.h"
#include "test/bench/writes.h"

namespace {

using Clock = std::chrono::steady_clock;

double NanosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

void* Driver() {
  static void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "guest: %s\n", dlerror());
    std::exit(2);
  }
  return handle;
}

template <typename F>
F* Find(const char* name) {
  return reinterpret_cast<F*>(dlsym(Driver(), name));
}
#define FIND(name) const auto name##_ = Find<decltype(::name)>(#name)

// The function that a client finds, and the driver's own.
template <typename F>
struct Both {
  F* found;
  F* own;
};
template <typename F>
Both<F> FindBoth(const char* name) {
  static const auto own_function = Find<decltype(simgpu_own_function)>("simgpu_own_function");
  void* const own = own_function == nullptr ? nullptr : own_function(name);
  if (own == nullptr) {
    std::fprintf(stderr, "guest: this driver is not simgpu, which tells its own functions\n");
    std::exit(2);
  }
  return {Find<F>(name), reinterpret_cast<F*>(own)};
}
#define FIND_BOTH(name) const auto name##_ = FindBoth<decltype(::name)>(#name)

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "guest: %s gave %d\n", what, static_cast<int>(result));
  std::exit(3);
}

void UseDevice(int ordinal) {
  FIND(cuInit);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  CUcontext context = nullptr;
  Check(cuInit_(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain_(&context, ordinal), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent_(context), "cuCtxSetCurrent");
}

void UseFirstDevice() { UseDevice(0); }

CUstream NewStream() {
  FIND(cuStreamCreate);
  CUstream stream = nullptr;
  Check(cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Times `body(is_own)`, which does `count` operations, with the driver's own functions and with those that a client
// finds, in the order own, found, found, own, so that what drifts meets both alike. Medians over the rounds, of each
// and of their difference.
void Compare(const char* name, int rounds, int count, const std::function<void(bool)>& body) {
  const auto time = [&](bool is_own) {
    const auto begin = Clock::now();
    body(is_own);
    return NanosSince(begin) / count;
  };
  time(true);
  time(false);
  std::vector<double> own, found, added;
  for (int i = 0; i < rounds; ++i) {
    const double first = time(true);
    const double second = time(false);
    const double third = time(false);
    own.push_back((first + time(true)) / 2);
    found.push_back((second + third) / 2);
    added.push_back(found.back() - own.back());
  }
  const double best = *std::min_element(found.begin(), found.end());
  std::printf("%s_own %.2f\n%s_found %.2f\n%s_added %.2f\n%s_best %.2f\n", name, Median(own), name, Median(found), name,
              Median(added), name, best);
}

// One that takes so many ns.
CUfunction Kernel(int nanos) {
  FIND(cuModuleLoadData);
  FIND(cuModuleGetFunction);
  const std::string image = "simgpu-image 1\nkernel work\n  cost total " + std::to_string(nanos) + "ns\n";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  Check(cuModuleLoadData_(&module, image.c_str()), "cuModuleLoadData");
  Check(cuModuleGetFunction_(&function, module, "work"), "cuModuleGetFunction");
  return function;
}

CUfunction TinyKernel() { return Kernel(1); }

int Launch(bool on_stream) {
  UseFirstDevice();
  FIND_BOTH(cuLaunchKernel);
  FIND(cuCtxSynchronize);
  const CUfunction function = TinyKernel();
  const CUstream stream = on_stream ? NewStream() : nullptr;
  constexpr int kBatch = 500;
  Compare("launch_ns", 300, kBatch, [&](bool is_own) {
    const auto launch = is_own ? cuLaunchKernel_.own : cuLaunchKernel_.found;
    // Shorter than the queue, which the GPU empties faster than it is filled: no launch waits for another.
    for (int i = 0; i < kBatch; ++i) launch(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
  });
  Check(cuCtxSynchronize_(), "cuCtxSynchronize");
  return 0;
}

// The child of Steps: launches by turns, each between two signals that the tracer sees. The counted ones have no
// function, and the driver declines them at once: how many instructions it needs for a real one changes from call to
// call, and what the library adds comes before its part.
int LaunchTraced(int calls) {
  UseFirstDevice();
  FIND_BOTH(cuLaunchKernel);
  FIND(cuCtxSynchronize);
  const CUfunction function = TinyKernel();
  for (int i = 0; i < 500; ++i) {
    cuLaunchKernel_.found(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  Check(cuCtxSynchronize_(), "cuCtxSynchronize");
  for (int i = 0; i < 2 * calls; ++i) {
    const auto launch = i % 2 == 0 ? cuLaunchKernel_.own : cuLaunchKernel_.found;
    std::raise(SIGUSR1);
    const CUresult result = launch(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
    std::raise(SIGUSR1);
    if (result == CUDA_SUCCESS) return 4;
  }
  return 0;
}

// Instructions of a launch, counted one by one under ptrace: exact, and needs no performance counters. The least of
// many calls, as now and then one has more to do.
int Steps() {
  constexpr int kCalls = 40;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(5);
    std::raise(SIGUSR1);
    ::_exit(LaunchTraced(kCalls));
  }
  long least[2] = {-1, -1};  // own, found
  int stops = 0;
  int status = 0;
  long steps = 0;
  while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    const bool is_mark = WSTOPSIG(status) == SIGUSR1;
    const bool inside = stops % 2 == 0 && stops > 0;  // the first stop is the hand-shake
    if (is_mark) {
      if (inside) {
        long& best = least[(stops / 2 - 1) % 2];
        best = best < 0 || steps < best ? steps : best;
      }
      ++stops;
      steps = 0;
    } else {
      ++steps;
    }
    const bool counting = stops % 2 == 0 && stops > 0;
    const int pass_on = is_mark || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    if (::ptrace(counting ? PTRACE_SINGLESTEP : PTRACE_CONT, child, nullptr, pass_on) != 0) return 5;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || least[0] < 0 || least[1] < 0) return 5;
  std::printf("launch_steps_own %ld\nlaunch_steps_found %ld\nlaunch_steps_added %ld\n", least[0], least[1],
              least[1] - least[0]);
  return 0;
}

// A thread that launches four kernels of so many ns with four grids each on a stream of its own, in turns with others.
class Launcher {
 public:
  Launcher(int ordinal, int nanos, std::mutex* turn) : nanos_(nanos), turn_(*turn) {
    UseDevice(ordinal);
    stream_ = NewStream();
    for (CUfunction& kernel : kernels_) kernel = Kernel(nanos);
  }
  // How many of `count` launches wrote what is watched.
  int Launch(bool is_own, int count) {
    FIND_BOTH(cuLaunchKernel);
    FIND(cuStreamSynchronize);
    const auto launch = is_own ? cuLaunchKernel_.own : cuLaunchKernel_.found;
    int wrote = 0;
    for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
      const std::lock_guard<std::mutex> mine(turn_);
      const auto begin = Clock::now();
      writes::Begin();
      const CUresult result = launch(kernels_[i % 4], 1 + i / 4 % 4, 1, 1, 32, 1, 1, 0, stream_, nullptr, nullptr);
      wrote += writes::End() == 0 ? 0 : 1;
      Check(result, "cuLaunchKernel");
      if (i % 100 == 99) Check(cuStreamSynchronize_(stream_), "cuStreamSynchronize");
      while (NanosSince(begin) < 4 * nanos_) continue;  // half of the limit
    }
    return wrote;
  }

 private:
  const int nanos_;
  std::mutex& turn_;
  CUstream stream_ = nullptr;
  CUfunction kernels_[4] = {};
};

// Launches that write memory that others share, of a hundred; beside them those of the driver's own function, and pairs
// of calls that have to write.
int Writes(int threads, int nanos) {
  constexpr int kCount = 10'000;
  FIND(cuDeviceGetCount);
  FIND(cuMemAlloc_v2);
  FIND(cuMemFree_v2);
  UseFirstDevice();
  int devices = 0;
  Check(cuDeviceGetCount_(&devices), "cuDeviceGetCount");
  std::mutex turn;
  std::latch warm(threads);
  std::latch watched(1);
  std::atomic<int> own{0};
  std::atomic<int> found{0};
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      Launcher launcher(t % devices, nanos, &turn);
      for (const auto begin = Clock::now(); NanosSince(begin) < 1e9;) launcher.Launch(false, 100);
      warm.count_down();
      watched.wait();
      found += launcher.Launch(false, kCount);
      own += launcher.Launch(true, kCount);
    });
  }
  warm.wait();
  if (!writes::Watch()) return 5;
  watched.count_down();
  for (std::thread& thread : team) thread.join();
  int pairs = 0;
  for (int i = 0; i < 100; ++i) {
    CUdeviceptr pointer = 0;
    writes::Begin();
    Check(cuMemAlloc_v2_(&pointer, 4096), "cuMemAlloc");
    Check(cuMemFree_v2_(pointer), "cuMemFree");
    pairs += writes::End() == 0 ? 0 : 1;
  }
  std::printf("writes_watched_kib %zu\nwrites_own %.3f\nwrites_found %.3f\nwrites_alloc %d\n",
              writes::WatchedBytes() / 1024, 100.0 * own / (threads * kCount), 100.0 * found / (threads * kCount),
              pairs);
  return 0;
}

int Alloc(int live, int threads) {
  UseFirstDevice();
  FIND_BOTH(cuMemAlloc_v2);
  FIND_BOTH(cuMemFree_v2);
  FIND(cuCtxSetCurrent);
  FIND(cuCtxGetCurrent);
  CUcontext context = nullptr;
  Check(cuCtxGetCurrent_(&context), "cuCtxGetCurrent");
  std::vector<CUdeviceptr> held(static_cast<std::size_t>(live));
  for (CUdeviceptr& pointer : held) Check(cuMemAlloc_v2_.found(&pointer, 512), "cuMemAlloc");
  constexpr int kPairs = 500;
  const auto pairs = [&](bool is_own) {
    const auto allocate = is_own ? cuMemAlloc_v2_.own : cuMemAlloc_v2_.found;
    const auto release = is_own ? cuMemFree_v2_.own : cuMemFree_v2_.found;
    for (int i = 0; i < kPairs; ++i) {
      CUdeviceptr pointer = 0;
      Check(allocate(&pointer, 4096), "cuMemAlloc");
      Check(release(pointer), "cuMemFree");
    }
  };
  const auto team_pairs = [&](bool is_own) {
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([&] {
        cuCtxSetCurrent_(context);
        for (int i = 0; i < 4; ++i) pairs(is_own);
      });
    }
    for (std::thread& thread : team) thread.join();
  };
  if (threads <= 1) {
    Compare("alloc_free_ns", 60, kPairs, pairs);
  } else {
    Compare("alloc_free_ns", 8, kPairs * 4 * threads, team_pairs);
  }
  for (CUdeviceptr pointer : held) Check(cuMemFree_v2_.found(pointer), "cuMemFree");
  return 0;
}

int Refuse() {
  UseFirstDevice();
  FIND_BOTH(cuMemAlloc_v2);
  constexpr int kCount = 1000;
  Compare("refuse_ns", 50, kCount, [&](bool is_own) {
    const auto allocate = is_own ? cuMemAlloc_v2_.own : cuMemAlloc_v2_.found;
    for (int i = 0; i < kCount; ++i) {
      CUdeviceptr pointer = 0;
      if (allocate(&pointer, std::size_t{1} << 45) != CUDA_ERROR_OUT_OF_MEMORY) std::exit(4);
    }
  });
  return 0;
}

int Init() {
  const auto begin = Clock::now();
  FIND(cuInit);
  FIND(cuDeviceGetCount);
  const auto found = Clock::now();
  Check(cuInit_(0), "cuInit");
  int count = 0;
  Check(cuDeviceGetCount_(&count), "cuDeviceGetCount");
  const double nanos = NanosSince(found);
  std::printf("init_ms %.4f\nload_and_init_ms %.4f\n", nanos / 1e6, NanosSince(begin) / 1e6);
  return 0;
}

int Lookup() {
  Check(Find<decltype(cuInit)>("cuInit")(0), "cuInit");
  FIND_BOTH(cuGetProcAddress_v2);
  const char* const names[] = {"cuMemAlloc",      "cuMemFree",       "cuLaunchKernel",        "cuStreamSynchronize",
                               "cuMemGetInfo",    "cuEventRecord",   "cuGraphLaunch",         "cuMemcpyAsync",
                               "cuCtxGetCurrent", "cuMemAllocAsync", "cuPointerGetAttribute", "cuModuleGetFunction"};
  constexpr int kRounds = 300;
  Compare("lookup_ns", 60, kRounds * static_cast<int>(std::size(names)), [&](bool is_own) {
    const auto look_up = is_own ? cuGetProcAddress_v2_.own : cuGetProcAddress_v2_.found;
    for (int i = 0; i < kRounds; ++i) {
      for (const char* name : names) {
        void* pointer = nullptr;
        Check(look_up(name, &pointer, 12000, 0, nullptr), name);
      }
    }
  });
  return 0;
}

// Which look-ups give the driver's own function: `own NAME 1`, or 0 for a hook.
int Own() {
  Check(Find<decltype(cuInit)>("cuInit")(0), "cuInit");
  FIND(cuGetProcAddress_v2);
  for (const char* name : {"cuLaunchKernel", "cuMemcpyAsync", "cuEventRecord", "cuStreamSynchronize", "cuMemsetD8Async",
                           "cuGraphLaunch", "cuMemAlloc"}) {
    void* pointer = nullptr;
    Check(cuGetProcAddress_v2_(name, &pointer, 12000, 0, nullptr), name);
    Dl_info info{};
    const bool own = dladdr(pointer, &info) != 0 && std::strstr(info.dli_fname, "libcuda") != nullptr;
    std::printf("own_%s %d\n", name, own ? 1 : 0);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "launch") return Launch(argc > 2 && std::string(argv[2]) == "stream");
  if (what == "steps") return Steps();
  if (what == "writes" && argc == 4) return Writes(std::atoi(argv[2]), std::atoi(argv[3]));
  if (what == "alloc" && argc == 4) return Alloc(std::atoi(argv[2]), std::atoi(argv[3]));
  if (what == "refuse") return Refuse();
  if (what == "init") return Init();
  if (what == "lookup") return Lookup();
  if (what == "own") return Own();
  std::fprintf(
      stderr,
      "usage: bench_guest launch [stream] | steps | writes THREADS NANOS | alloc LIVE THREADS | refuse | init | "
      "lookup | own\n");
  return 2;
}
