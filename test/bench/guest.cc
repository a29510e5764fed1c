// SPDX-License-Identifier: Apache-2.0
//
// What the benchmark measures from inside a GPU process: it finds the driver as a client does (dlopen and dlsym), runs
// one loop and prints one number per line, `NAME VALUE`, best of several rounds. test/bench/run.py runs it with and
// without the library preloaded and does the arithmetic.
//
//   guest launch | alloc LIVE THREADS | refuse | init | lookup | own

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "abi/cuda_abi.h"

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

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "guest: %s gave %d\n", what, static_cast<int>(result));
  std::exit(3);
}

void UseFirstDevice() {
  FIND(cuInit);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  CUcontext context = nullptr;
  Check(cuInit_(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain_(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent_(context), "cuCtxSetCurrent");
}

// The best of `rounds` runs of `body`, which does `count` operations: the least disturbed one tells what the code
// costs.
double BestNanos(int rounds, int count, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Clock::now();
    body();
    best = std::min(best, NanosSince(begin) / count);
  }
  return best;
}

int Launch() {
  UseFirstDevice();
  FIND(cuModuleLoadData);
  FIND(cuModuleGetFunction);
  FIND(cuLaunchKernel);
  FIND(cuCtxSynchronize);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  Check(cuModuleLoadData_(&module, "simgpu-image 1\nkernel tiny\n  cost total 1ns\n"), "cuModuleLoadData");
  Check(cuModuleGetFunction_(&function, module, "tiny"), "cuModuleGetFunction");
  constexpr int kBatch = 500;
  const double nanos = BestNanos(200, kBatch, [&] {
    // Shorter than the queue, which the GPU empties faster than it is filled: no launch waits for another.
    for (int i = 0; i < kBatch; ++i) cuLaunchKernel_(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
  });
  Check(cuCtxSynchronize_(), "cuCtxSynchronize");
  std::printf("launch_ns %.2f\n", nanos);
  return 0;
}

int Alloc(int live, int threads) {
  UseFirstDevice();
  FIND(cuMemAlloc_v2);
  FIND(cuMemFree_v2);
  FIND(cuCtxSetCurrent);
  FIND(cuCtxGetCurrent);
  CUcontext context = nullptr;
  Check(cuCtxGetCurrent_(&context), "cuCtxGetCurrent");
  std::vector<CUdeviceptr> held(static_cast<std::size_t>(live));
  for (CUdeviceptr& pointer : held) Check(cuMemAlloc_v2_(&pointer, 512), "cuMemAlloc");
  constexpr int kPairs = 2000;
  const auto pairs = [&] {
    for (int i = 0; i < kPairs; ++i) {
      CUdeviceptr pointer = 0;
      Check(cuMemAlloc_v2_(&pointer, 4096), "cuMemAlloc");
      Check(cuMemFree_v2_(pointer), "cuMemFree");
    }
  };
  double nanos = 0;
  if (threads <= 1) {
    nanos = BestNanos(50, kPairs, pairs);
  } else {
    nanos = BestNanos(5, kPairs * threads, [&] {
      std::vector<std::thread> team;
      for (int t = 0; t < threads; ++t) {
        team.emplace_back([&] {
          cuCtxSetCurrent_(context);
          pairs();
        });
      }
      for (std::thread& thread : team) thread.join();
    });
  }
  std::printf("alloc_free_ns %.1f\n", nanos);
  for (CUdeviceptr pointer : held) Check(cuMemFree_v2_(pointer), "cuMemFree");
  return 0;
}

int Refuse() {
  UseFirstDevice();
  FIND(cuMemAlloc_v2);
  constexpr int kCount = 1000;
  const double nanos = BestNanos(50, kCount, [&] {
    for (int i = 0; i < kCount; ++i) {
      CUdeviceptr pointer = 0;
      if (cuMemAlloc_v2_(&pointer, std::size_t{1} << 45) != CUDA_ERROR_OUT_OF_MEMORY) std::exit(4);
    }
  });
  std::printf("refuse_ns %.1f\n", nanos);
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
  FIND(cuGetProcAddress_v2);
  const char* const names[] = {"cuMemAlloc",      "cuMemFree",       "cuLaunchKernel",        "cuStreamSynchronize",
                               "cuMemGetInfo",    "cuEventRecord",   "cuGraphLaunch",         "cuMemcpyAsync",
                               "cuCtxGetCurrent", "cuMemAllocAsync", "cuPointerGetAttribute", "cuModuleGetFunction"};
  constexpr int kRounds = 1000;
  const double nanos = BestNanos(30, kRounds * static_cast<int>(std::size(names)), [&] {
    for (int i = 0; i < kRounds; ++i) {
      for (const char* name : names) {
        void* pointer = nullptr;
        Check(cuGetProcAddress_v2_(name, &pointer, 12000, 0, nullptr), name);
      }
    }
  });
  std::printf("lookup_ns %.1f\n", nanos);
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
  if (what == "launch") return Launch();
  if (what == "alloc" && argc == 4) return Alloc(std::atoi(argv[2]), std::atoi(argv[3]));
  if (what == "refuse") return Refuse();
  if (what == "init") return Init();
  if (what == "lookup") return Lookup();
  if (what == "own") return Own();
  std::fprintf(stderr, "usage: bench_guest launch | alloc LIVE THREADS | refuse | init | lookup | own\n");
  return 2;
}
