// SPDX-License-Identifier: Apache-2.0
// Every way to find a driver function gives the same replacement, and nothing but the replacement.
#include <dlfcn.h>

#include <cerrno>
#include <cstring>

#include "test/preload/guest.h"

namespace guest {
namespace {

constexpr uint64_t kPerThread = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

void* Asked(const char* name, int version, uint64_t flags = 0) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  OK(cuGetProcAddress_v2(name, &found, version, flags, &status));
  EXPECT_SAME(status, CU_GET_PROC_ADDRESS_SUCCESS);
  void* by_first_form = nullptr;
  OK(cuGetProcAddress(name, &by_first_form, version, flags));
  EXPECT(found == by_first_form);
  return found;
}

void* Driver() { return dlopen("libcuda.so.1", RTLD_NOW); }

bool InLibrary(void* address, const char* part) {
  Dl_info info;
  return dladdr(address, &info) != 0 && std::strstr(info.dli_fname, part) != nullptr;
}

SCENARIO(same_hook_everywhere) {
  OK(cuInit(0));
  void* const linked = reinterpret_cast<void*>(&cuMemAlloc_v2);
  EXPECT(InLibrary(linked, "libvgpu.so"));
  for (int i = 0; i < 3; ++i) {  // the second time as the first (C8)
    EXPECT(dlsym(Driver(), "cuMemAlloc_v2") == linked);
    EXPECT(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == linked);
    EXPECT(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == linked);
    EXPECT(dlsym(dlopen(nullptr, RTLD_NOW), "cuMemAlloc_v2") == linked);
    EXPECT(Asked("cuMemAlloc", 3020) == linked);
    EXPECT(Asked("cuMemAlloc", 13000) == linked);
  }
  EXPECT(dlvsym(Driver(), "cuMemAlloc_v2", "NO_SUCH_VERSION") == nullptr ||
         dlvsym(Driver(), "cuMemAlloc_v2", "NO_SUCH_VERSION") == linked);
}

// A version asked for by name: unhooked names get exactly that one, and with it no replacement is lost.
SCENARIO(versioned) {
  void* const versioned = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5");
  EXPECT(versioned != nullptr && InLibrary(versioned, "libc"));
  EXPECT(dlvsym(RTLD_DEFAULT, "memcpy", "NO_SUCH_VERSION") == nullptr);
  EXPECT(dlerror() != nullptr);
  // Through either of the two, whoever asks for the C library's look-up functions finds ours.
  const auto find = reinterpret_cast<decltype(&::dlsym)>(dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5"));
  if (find != nullptr) EXPECT(find(Driver(), "cuMemAlloc_v2") != nullptr);
  EXPECT(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == reinterpret_cast<void*>(&cuMemAlloc_v2));
}

// CUDA_DISABLE_CONTROL: by whatever way a function is found, it does what the driver does.
SCENARIO(disabled_everywhere) {
  Begin();
  void* const found[] = {reinterpret_cast<void*>(&cuMemAlloc_v2),
                         dlsym(Driver(), "cuMemAlloc_v2"),
                         dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"),
                         dlsym(RTLD_NEXT, "cuMemAlloc_v2"),
                         Asked("cuMemAlloc", 3020),
                         Asked("cuMemAlloc", 13000, kPerThread)};
  for (void* const address : found) {
    const auto allocate = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(address);
    EXPECT(allocate != nullptr);
    CUdeviceptr block = 0;
    OK(allocate(&block, 20 * kGiB));
    OK(cuMemFree_v2(block));
  }
  const auto get_info = reinterpret_cast<decltype(&::cuMemGetInfo_v2)>(Asked("cuMemGetInfo", 12000));
  size_t free = 0;
  size_t total = 0;
  OK(get_info(&free, &total));
  EXPECT(total > 60 * kGiB);
  const auto from_pool = reinterpret_cast<decltype(&::cuMemAllocAsync)>(Asked("cuMemAllocAsync", 12000, kPerThread));
  CUdeviceptr block = 0;
  OK(from_pool(&block, 20 * kGiB, nullptr));
  EXPECT_SAME(nvmlInit_v2(), NVML_SUCCESS);
  nvmlDevice_t device = nullptr;
  nvmlMemory_t memory{};
  EXPECT_SAME(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_SUCCESS);
  EXPECT_SAME(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
  EXPECT(memory.total > 60 * kGiB);
}

// errno is the program's: not even the first call, which opens files, may show. (The simulated driver keeps it too.)
SCENARIO(errno_kept) {
  constexpr int kMark = 4711;
  const auto kept = [](const char* what) {
    if (errno != kMark) Fail(what, 0, "errno", errno, kMark);
  };
  errno = kMark;
  dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
  kept("dlsym");
  cuMemFree_v2(0);  // before cuInit: attaches
  kept("first call");
  Begin();
  CUdeviceptr block = 0;
  errno = kMark;
  OK(cuMemAlloc_v2(&block, kMiB));
  kept("cuMemAlloc_v2");
  OOM(cuMemAlloc_v2(&block, 2 * kGiB));
  kept("a refusal");
  OK(cuMemFree_v2(block));
  kept("cuMemFree_v2");
  MemInfo();
  kept("cuMemGetInfo_v2");
  Asked("cuMemAlloc", 12000);
  kept("cuGetProcAddress");
}

// A function without policy is the driver's own pointer.
SCENARIO(passed_on) {
  OK(cuInit(0));
  for (const char* name : {"cuStreamQuery", "cuMemcpyHtoD_v2", "cuEventQuery", "cuMemsetD8Async", "cuStreamCreate"}) {
    void* const found = dlsym(Driver(), name);
    EXPECT(InLibrary(found, "libcuda.so.1"));
    EXPECT(dlsym(RTLD_DEFAULT, name) == found);
  }
  EXPECT(InLibrary(Asked("cuStreamQuery", 12000), "libcuda.so.1"));
  EXPECT(InLibrary(Asked("cuMemcpyHtoD", 12000), "libcuda.so.1"));
}

// Version and flags decide, by the driver's rules (C2).
SCENARIO(proc_address_versions) {
  OK(cuInit(0));
  const auto symbol = [](const char* name) { return dlsym(Driver(), name); };
  EXPECT(Asked("cuMemAllocAsync", 11020) == symbol("cuMemAllocAsync"));
  EXPECT(Asked("cuMemAllocAsync", 11020, kPerThread) == symbol("cuMemAllocAsync_ptsz"));
  EXPECT(Asked("cuStreamSynchronize", 7000, kPerThread) == symbol("cuStreamSynchronize_ptsz"));
  EXPECT(Asked("cuDevicePrimaryCtxRelease", 7000) == symbol("cuDevicePrimaryCtxRelease"));
  EXPECT(Asked("cuDevicePrimaryCtxRelease", 12000) == symbol("cuDevicePrimaryCtxRelease_v2"));
  EXPECT(Asked("cuCtxSynchronize", 12000) == symbol("cuCtxSynchronize"));
  EXPECT(Asked("cuCtxSynchronize", 13000) == symbol("cuCtxSynchronize_v2"));
  EXPECT(Asked("cuGraphInstantiate", 10000) == symbol("cuGraphInstantiate"));
  EXPECT(Asked("cuGraphInstantiate", 11000) == symbol("cuGraphInstantiate_v2"));
  EXPECT(Asked("cuGraphInstantiate", 12000) == symbol("cuGraphInstantiateWithFlags"));
  EXPECT(Asked("cuMemAdvise", 8000) == symbol("cuMemAdvise"));
  EXPECT(Asked("cuMemAdvise", 12020) == symbol("cuMemAdvise_v2"));
  EXPECT(Asked("cuMemPrefetchAsync", 8000) == symbol("cuMemPrefetchAsync"));
  EXPECT(Asked("cuGetProcAddress", 11030) == reinterpret_cast<void*>(&cuGetProcAddress));
  EXPECT(Asked("cuGetProcAddress", 12000) == reinterpret_cast<void*>(&cuGetProcAddress_v2));
  for (const char* name : {"cuMemAllocAsync", "cuStreamSynchronize", "cuCtxSynchronize", "cuGraphInstantiate"}) {
    EXPECT(InLibrary(Asked(name, 13000), "libvgpu.so"));
  }
}

// The status is the driver's, also through a pointer that was itself looked up.
SCENARIO(proc_address_status) {
  OK(cuInit(0));
  const auto look_up = reinterpret_cast<decltype(&::cuGetProcAddress_v2)>(Asked("cuGetProcAddress", 12000));
  void* found = reinterpret_cast<void*>(uintptr_t{1});
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;  // to be overwritten
  OK(look_up("cuMemAlloc", &found, 12000, 0, &status));
  EXPECT_SAME(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_SAME(look_up("", &found, 0, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT(found == nullptr);
  EXPECT_SAME(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_SAME(look_up("cuGLInit", &found, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_SAME(look_up("cuMemAllocAsync", &found, 11000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_SAME(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT(look_up(nullptr, &found, 12000, 0, &status) != CUDA_SUCCESS);
}

// Names that are nobody's business: other libraries' cu…, and names that do not exist.
SCENARIO(other_names) {
  EXPECT(dlsym(RTLD_DEFAULT, "curl_easy_init") == nullptr);
  EXPECT(dlerror() != nullptr);
  EXPECT(dlsym(RTLD_DEFAULT, "cuNoSuchFunction") == nullptr);
  EXPECT(dlsym(RTLD_DEFAULT, "nvmlNoSuchFunction") == nullptr);
  void* const mine = dlsym(RTLD_DEFAULT, "malloc");
  EXPECT(mine != nullptr && dlsym(RTLD_DEFAULT, "malloc") == mine);
  EXPECT(InLibrary(mine, "libc"));
  EXPECT(dlvsym(RTLD_DEFAULT, "pthread_create", "NO_SUCH_VERSION") == nullptr);
}

// The export tables of the driver pass through, result and all.
SCENARIO(export_table) {
  const void* table = nullptr;
  CUuuid unknown{};
  const CUresult result = cuGetExportTable(&table, &unknown);
  EXPECT(result != CUDA_SUCCESS);
  EXPECT(InLibrary(reinterpret_cast<void*>(&cuGetExportTable), "libcuda.so.1"));
}

// NVML by the same rules.
SCENARIO(nvml_lookup) {
  void* const handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  void* const linked = reinterpret_cast<void*>(&nvmlDeviceGetMemoryInfo);
  EXPECT(InLibrary(linked, "libvgpu.so"));
  EXPECT(dlsym(handle, "nvmlDeviceGetMemoryInfo") == linked);
  EXPECT(dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") == linked);
  EXPECT(InLibrary(dlsym(handle, "nvmlDeviceGetName"), "libnvidia-ml.so.1"));
}

// A profiler's library wraps the same function: whoever asks that library gets its wrapper, and it reaches us.
SCENARIO(shim) {
  Begin();
  void* const shim = dlopen(arguments.at(0).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT(shim != nullptr);
  const auto wrapped = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(dlsym(shim, "cuMemAlloc_v2"));
  EXPECT(InLibrary(reinterpret_cast<void*>(wrapped), "preload_shim"));
  CUdeviceptr block = 0;
  OOM(wrapped(&block, 2 * kGiB));
  OK(wrapped(&block, kMiB));
  const auto calls = reinterpret_cast<int (*)()>(dlsym(shim, "shim_calls"));
  EXPECT_SAME(calls(), 2);
  Balanced();
}

}  // namespace
}  // namespace guest
