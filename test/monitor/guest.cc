// SPDX-License-Identifier: Apache-2.0
//
//   monitor_guest MIB [spin]     monitor_guest inject STATEMENT
//
// A program on GPU 0 of the machine: takes as many MiB as its first argument says, writes "holds" and, if the second is
// "spin", launches kernels one after another, a dot for each hundred. Ends when its stdin does. The second form
// changes the machine instead, as simgpu_inject does.

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi/cuda_abi.h"
#include "simgpu/simgpu.h"

namespace {

constexpr const char* kImage = "simgpu-image 1\nkernel us20\n  cost total 2640us\n";

void Must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
}

void Say(const char* text) {
  if (write(STDOUT_FILENO, text, std::strlen(text)) < 0) std::exit(1);
}

bool InputEnded(int timeout_ms) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, timeout_ms) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (argc > 2 && std::strcmp(argv[1], "inject") == 0) {
    char error[256] = "";
    if (simgpu_inject(argv[2], error, sizeof error) == 0) std::fprintf(stderr, "%s\n", error);
    Say("holds\n");
    return 0;
  }
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  Must(cuInit(0), "cuInit");
  Must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Must(cuMemAlloc_v2(&memory, std::strtoull(argv[1], nullptr, 10) << 20), "cuMemAlloc");
  Must(cuModuleLoadData(&module, kImage), "cuModuleLoadData");
  Must(cuModuleGetFunction(&kernel, module, "us20"), "cuModuleGetFunction");
  Say("holds\n");
  if (argc < 3) {
    while (!InputEnded(-1)) {
    }
    return 0;
  }
  for (int launched = 0; !InputEnded(0);) {
    Must(cuLaunchKernel(kernel, 264, 1, 1, 1024, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
    if (++launched % 20 == 0) Must(cuCtxSynchronize(), "cuCtxSynchronize");
    if (launched % 100 == 0) Say(".");
  }
  return 0;
}
