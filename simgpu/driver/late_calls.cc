// SPDX-License-Identifier: Apache-2.0
// Calls the driver from an exit handler that was registered before it was loaded into use, from a static destructor and
// from the destructor of a thread_local: all of them run after main.
#include <cstdio>
#include <cstdlib>

#include "abi/cuda_abi.h"

namespace {

int g_succeeded = 0;

void AllocateAndFree() {
  CUcontext ctx = nullptr;
  CUdeviceptr p = 0;
  const bool ok = cuDevicePrimaryCtxRetain(&ctx, 0) == CUDA_SUCCESS && cuCtxSetCurrent(ctx) == CUDA_SUCCESS &&
                  cuMemAlloc_v2(&p, 1 << 20) == CUDA_SUCCESS && cuMemAllocAsync(&p, 1000, nullptr) == CUDA_SUCCESS &&
                  cuMemFreeAsync(p, nullptr) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS;
  g_succeeded += ok ? 1 : 0;
}

void Report() {
  AllocateAndFree();
  std::printf("late calls: %d of 3 succeeded\n", g_succeeded);
  std::fflush(stdout);
}

struct Late {
  ~Late() { AllocateAndFree(); }
};

const int g_first_handler = std::atexit(Report);  // registered first, so run last
const Late g_late;

}  // namespace

int main() {
  static thread_local Late late;
  static_cast<void>(late);
  return cuInit(0) == CUDA_SUCCESS && g_first_handler == 0 ? 0 : 1;
}
