// SPDX-License-Identifier: Apache-2.0
//
// Every NVML name that nothing else in this library defines. The definitions are weak, so a real one elsewhere wins at
// link time; no NVML header is included, as the true signatures do not matter to an answer that reads no argument.

namespace simgpu::nvml {
bool Initialised();
}

namespace {
constexpr int kUninitialised = 1, kNotSupported = 3;  // NVML_ERROR_*
int Answer() { return simgpu::nvml::Initialised() ? kNotSupported : kUninitialised; }
}  // namespace

#define SIMGPU_STUB(symbol) \
  extern "C" __attribute__((weak, visibility("default"))) int symbol() { return Answer(); }
#define HAMI_NVML_HOOK(symbol) SIMGPU_STUB(symbol)
#define HAMI_NVML_PASS(symbol) SIMGPU_STUB(symbol)
#include "abi/nvml_api.inc"
