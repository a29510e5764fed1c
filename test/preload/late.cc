// SPDX-License-Identifier: Apache-2.0
// A program that meets the driver late: not linked against it, it looks for it, loads it and calls through what dlsym
// gives. Until then the library must not pretend that there is a driver.
#include <dlfcn.h>

#include <cstdio>

#include "abi/cuda_abi.h"

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "late: %s\n", what);
  return 1;
}

template <typename F>
F* Find(void* handle, const char* name) {
  return reinterpret_cast<F*>(dlsym(handle, name));
}

}  // namespace

int main() {
  if (dlsym(RTLD_DEFAULT, "cuInit") != nullptr) return Fail("a driver function before there is a driver");
  if (dlerror() == nullptr) return Fail("no reason given");
  void* const program = dlopen(nullptr, RTLD_LAZY);
  if (dlsym(program, "cuMemAlloc_v2") != nullptr) return Fail("one that the main program's handle finds");
  if (dlerror() == nullptr) return Fail("no reason given for that");
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr) return Fail("the driver was loaded by a question");
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return Fail(dlerror());
  const auto init = Find<decltype(::cuInit)>(driver, "cuInit");
  const auto retain = Find<decltype(::cuDevicePrimaryCtxRetain)>(driver, "cuDevicePrimaryCtxRetain");
  const auto make_current = Find<decltype(::cuCtxSetCurrent)>(driver, "cuCtxSetCurrent");
  const auto allocate = Find<decltype(::cuMemAlloc_v2)>(driver, "cuMemAlloc_v2");
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS || make_current(context) != CUDA_SUCCESS) {
    return Fail("no context");
  }
  if (allocate(&block, size_t{2} << 30) != CUDA_ERROR_OUT_OF_MEMORY) return Fail("the limit of 1 GiB does not hold");
  if (allocate(&block, size_t{1} << 20) != CUDA_SUCCESS) return Fail("1 MiB is refused");
  if (dlsym(driver, "cuNoSuchFunction") != nullptr) return Fail("a function that does not exist");
  dlclose(driver);
  return 0;
}
