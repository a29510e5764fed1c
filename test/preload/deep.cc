// SPDX-License-Identifier: Apache-2.0
//
// Opened with RTLD_DEEPBIND, this finds the driver before anything preloaded: a way past the library, and the tests'
// way to make the driver hold memory that no hook was told of.
#include "abi/cuda_abi.h"

extern "C" __attribute__((visibility("default"))) CUresult deep_allocate(CUdeviceptr* out, size_t bytes) {
  return cuMemAlloc_v2(out, bytes);
}
