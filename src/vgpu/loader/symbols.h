// SPDX-License-Identifier: Apache-2.0
//
// The symbols this library knows, all derived from the two lists in abi/: which names it replaces, and what each name
// means to cuGetProcAddress. Everything here is computed by the compiler; a look-up costs a hash and one comparison.
// A name that is not replaced is unknown here, and the callers hand out what the driver gives.
#pragma once

#include <cstdint>

namespace hami::vgpu {

enum class Library : uint8_t { kCuda, kNvml };

// Replaced symbols first, then those that are only called.
enum class Sym : uint16_t {
#define HAMI_CUDA_HOOK(symbol, ...) symbol,
#define HAMI_CUDA_PASS(...)
#define HAMI_CUDA_ALIAS(...)
#include "abi/cuda_api.inc"
#define HAMI_NVML_HOOK(symbol) symbol,
#define HAMI_NVML_PASS(symbol)
#include "abi/nvml_api.inc"
  kHookCount,
  kLastHook = kHookCount - 1,
#define HAMI_REAL_CUDA(symbol) symbol,
#define HAMI_REAL_NVML(symbol) symbol,
#include "vgpu/loader/real_functions.inc"
  kCount,
  kNone = 0xffff,
};
inline constexpr int kHooks = static_cast<int>(Sym::kHookCount);

enum class Flavour : uint8_t { PLAIN, PTDS, PTSZ };

// One meaning of a name given to cuGetProcAddress. `sym` is kNone where the driver's own function is handed out.
struct Variant {
  const char* asked_as;
  int since;
  Flavour flavour;
  Sym sym;
};
struct VariantRange {
  const Variant* first = nullptr;
  const Variant* last = nullptr;
};

const char* NameOf(Sym sym);
Library LibraryOf(Sym sym);

// The replaced symbol of this name, or kNone.
Sym FindHook(const char* name);

// All meanings of a name of which at least one is replaced; an empty range otherwise.
VariantRange FindVariants(const char* asked_as);

// The address of our replacement; `sym` is a hook.
void* HookAddress(Sym sym);

}  // namespace hami::vgpu
