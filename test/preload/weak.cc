// SPDX-License-Identifier: Apache-2.0
// A program that is not linked with the driver, and asks by weak references whether it is there.
//   weak none    no function is
//   weak all     each is, and the limit of 1 GiB holds
#include <cstdio>
#include <cstring>

#include "abi/cuda_abi.h"

#pragma weak cuInit
#pragma weak cuDeviceGetCount
#pragma weak cuDevicePrimaryCtxRetain
#pragma weak cuCtxSetCurrent
#pragma weak cuMemAlloc_v2

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "weak: %s\n", what);
  return 1;
}

int FindNone() {
  if (&cuDeviceGetCount != nullptr) return Fail("cuDeviceGetCount, which is the driver's alone");
  if (&cuInit != nullptr) return Fail("cuInit");
  if (&cuMemAlloc_v2 != nullptr) return Fail("cuMemAlloc_v2");
  return 0;
}

int FindAll() {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  int count = 0;
  if (&cuDeviceGetCount == nullptr || &cuInit == nullptr || &cuMemAlloc_v2 == nullptr) return Fail("no function");
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) return Fail("no device");
  if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS) {
    return Fail("no context");
  }
  if (cuMemAlloc_v2(&block, size_t{2} << 30) != CUDA_ERROR_OUT_OF_MEMORY) return Fail("2 GiB are given");
  return cuMemAlloc_v2(&block, size_t{1} << 20) == CUDA_SUCCESS ? 0 : Fail("1 MiB is refused");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "none") == 0) return FindNone();
  if (argc == 2 && std::strcmp(argv[1], "all") == 0) return FindAll();
  return Fail("none or all?");
}
