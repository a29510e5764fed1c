// SPDX-License-Identifier: Apache-2.0
// What a profiler preloads: it wraps a driver function and asks for the next one, each time anew.
#include <dlfcn.h>

#include "abi/cuda_abi.h"

namespace {

int g_calls = 0;

}  // namespace

extern "C" __attribute__((visibility("default"))) int shim_calls() { return g_calls; }

extern "C" __attribute__((visibility("default"))) CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  ++g_calls;
  const auto next = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
  return next == nullptr ? CUDA_ERROR_NOT_FOUND : next(out, bytes);
}
