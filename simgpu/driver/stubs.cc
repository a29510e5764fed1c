// SPDX-License-Identifier: Apache-2.0
//
// The answer of every driver function that nothing else in this library implements: CUDA_ERROR_NOT_SUPPORTED, whatever
// the arguments. The definitions are weak, so that a strong one elsewhere wins when the library is linked. No header of
// the API is included: a function without parameters can be called with any on the platforms that have this driver,
// and functions that the headers at hand do not know are covered, too.

namespace {
constexpr int kNotSupported = 801;
}

extern "C" {
// clang-format off
#define SIMGPU_STUB(symbol, asked_as, since, flavour) __attribute__((weak)) int symbol() { return kNotSupported; }
#define HAMI_CUDA_HOOK SIMGPU_STUB
#define HAMI_CUDA_PASS SIMGPU_STUB
#define HAMI_CUDA_ALIAS(symbol, asked_as, since, flavour)
#include "abi/cuda_api.inc"
#define SIMGPU_FOREIGN(symbol) int symbol() { return kNotSupported; }
#include "simgpu/driver/foreign_api.inc"
// clang-format on
}
