// SPDX-License-Identifier: Apache-2.0

#include "guest.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace guest {
namespace {

void* LoadLibrary(const char* name) {
  void* handle = dlopen(name, RTLD_NOW);
  if (handle == nullptr) {
    std::fprintf(stderr, "guest: %s\n", dlerror());
    std::exit(1);
  }
  return handle;
}

template <typename Function>
void Bind(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) {
    std::fprintf(stderr, "guest: the driver has no %s\n", name);
    std::exit(1);
  }
}

}  // namespace

const Cuda& Start() {
  static Cuda cuda;
  void* handle = LoadLibrary("libcuda.so.1");
#define GUEST_BIND(name) Bind(handle, #name, cuda.name)
  GUEST_BIND(cuInit);
  GUEST_BIND(cuDeviceGet);
  GUEST_BIND(cuDevicePrimaryCtxRetain);
  GUEST_BIND(cuCtxSetCurrent);
  GUEST_BIND(cuMemGetInfo_v2);
  GUEST_BIND(cuMemAlloc_v2);
  GUEST_BIND(cuMemFree_v2);
  GUEST_BIND(cuMemAllocPitch_v2);
  GUEST_BIND(cuMemAllocManaged);
  GUEST_BIND(cuMemAllocAsync);
  GUEST_BIND(cuMemFreeAsync);
  GUEST_BIND(cuStreamSynchronize);
  GUEST_BIND(cuMemsetD8_v2);
  GUEST_BIND(cuMemCreate);
  GUEST_BIND(cuMemRelease);
  GUEST_BIND(cuModuleLoadData);
  GUEST_BIND(cuModuleGetFunction);
  GUEST_BIND(cuLaunchKernel);
#undef GUEST_BIND
  Must(cuda.cuInit(0), "cuInit");
  CUdevice device = 0;
  Must(cuda.cuDeviceGet(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  Must(cuda.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  return cuda;
}

void Must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "guest: %s failed with %d\n", what, static_cast<int>(result));
  std::exit(1);
}

void Report(const char* key, uint64_t value) {
  std::printf("%s %llu\n", key, static_cast<unsigned long long>(value));
  std::fflush(stdout);
}

void ReportViews(const Cuda& cuda) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  Must(cuda.cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
  Report("cuda_total", total_bytes);
  Report("cuda_free", free_bytes);

  void* handle = LoadLibrary("libnvidia-ml.so.1");
  decltype(&::nvmlInit_v2) init;
  decltype(&::nvmlShutdown) shutdown;
  decltype(&::nvmlDeviceGetHandleByIndex_v2) get_handle;
  decltype(&::nvmlDeviceGetMemoryInfo) get_memory;
  Bind(handle, "nvmlInit_v2", init);
  Bind(handle, "nvmlShutdown", shutdown);
  Bind(handle, "nvmlDeviceGetHandleByIndex_v2", get_handle);
  Bind(handle, "nvmlDeviceGetMemoryInfo", get_memory);
  nvmlDevice_t device{};
  nvmlMemory_t memory{};
  if (init() != NVML_SUCCESS || get_handle(0, &device) != NVML_SUCCESS || get_memory(device, &memory) != NVML_SUCCESS) {
    std::fprintf(stderr, "guest: NVML does not tell the memory of device 0\n");
    std::exit(1);
  }
  Report("nvml_total", memory.total);
  Report("nvml_used", memory.used);
  shutdown();
}

void Pause(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  timespec rest{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  while (nanosleep(&rest, &rest) != 0) {
  }
}

}  // namespace guest
