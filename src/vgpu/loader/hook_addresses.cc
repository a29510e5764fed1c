// SPDX-License-Identifier: Apache-2.0
#include "abi/cuda_abi.h"
#include "abi/nvml_abi.h"
#include "vgpu/loader/symbols.h"

namespace hami::vgpu {
namespace {

// Takes the address of each replacement, so a hook without a definition does not link.
void* const kHookAddresses[] = {
#define HAMI_CUDA_HOOK(symbol, ...) reinterpret_cast<void*>(&::symbol),
#define HAMI_CUDA_PASS(...)
#define HAMI_CUDA_ALIAS(...)
#include "abi/cuda_api.inc"
#define HAMI_NVML_HOOK(symbol) reinterpret_cast<void*>(&::symbol),
#define HAMI_NVML_PASS(symbol)
#include "abi/nvml_api.inc"
};

}  // namespace

void* HookAddress(Sym sym) { return kHookAddresses[static_cast<uint16_t>(sym)]; }

}  // namespace hami::vgpu
