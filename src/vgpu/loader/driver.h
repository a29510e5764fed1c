// SPDX-License-Identifier: Apache-2.0
//
// The driver behind us: libcuda.so.1 and libnvidia-ml.so.1, opened when the first of their functions is needed, and a
// typed slot `real::<symbol>` for each function that this library replaces or calls. A slot binds itself at its first
// call; afterwards a call is one indirect call. A function (or a whole library) that is absent answers with an error
// of its API and is looked for again next time; no slot ever calls through a null pointer.
#pragma once

#include <atomic>

#include "abi/cuda_abi.h"
#include "abi/nvml_abi.h"
#include "vgpu/loader/symbols.h"

namespace hami::vgpu {

// The C library's own dlsym and dlvsym, past whatever is exported by preloaded libraries. nullptr if there are none.
using DlsymFn = void* (*)(void*, const char*);
DlsymFn RealDlsym();

// The driver library, loaded now if it is not; nullptr when the machine has none.
void* OpenDriver(Library library);
// The driver library if the process has it loaded already.
void* LoadedDriver(Library library);

// The driver's own function; nullptr when it has none of this name.
void* DriverSymbol(Sym sym);
// As DriverSymbol, remembered per hook: for comparing pointers often.
void* DriverSymbolCached(Sym hook);

inline CUresult Absent(CUresult, Sym) { return CUDA_ERROR_NOT_FOUND; }
inline nvmlReturn_t Absent(nvmlReturn_t, Sym) { return NVML_ERROR_FUNCTION_NOT_FOUND; }

template <Sym kSym, typename F>
class Slot;

template <Sym kSym, typename R, typename... A>
class Slot<kSym, R(A...)> {
 public:
  R operator()(A... args) const { return function_.load(std::memory_order_relaxed)(args...); }
  // The same function under a type of the same calling convention.
  template <typename F>
  F* As() const {
    return reinterpret_cast<F*>(reinterpret_cast<void*>(function_.load(std::memory_order_relaxed)));
  }
  // False when the driver lacks the function.
  explicit operator bool() const {
    return function_.load(std::memory_order_relaxed) != &Bind || DriverSymbol(kSym) != nullptr;
  }

 private:
  static R Bind(A... args) {
    void* const found = DriverSymbol(kSym);
    if (found == nullptr) return Absent(R{}, kSym);
    const auto bound = reinterpret_cast<R (*)(A...)>(found);
    function_.store(bound, std::memory_order_relaxed);
    return bound(args...);
  }
  static inline constinit std::atomic<R (*)(A...)> function_{&Bind};
};

namespace real {
#define HAMI_SLOT(symbol) inline constexpr Slot<Sym::symbol, decltype(::symbol)> symbol{};  // NOLINT: a declaration
#define HAMI_CUDA_HOOK(symbol, ...) HAMI_SLOT(symbol)
#define HAMI_CUDA_PASS(...)
#define HAMI_CUDA_ALIAS(...)
#include "abi/cuda_api.inc"
#define HAMI_NVML_HOOK(symbol) HAMI_SLOT(symbol)
#define HAMI_NVML_PASS(symbol)
#include "abi/nvml_api.inc"
#define HAMI_REAL_CUDA(symbol) HAMI_SLOT(symbol)
#define HAMI_REAL_NVML(symbol) HAMI_SLOT(symbol)
#include "vgpu/loader/real_functions.inc"
#undef HAMI_SLOT
}  // namespace real

}  // namespace hami::vgpu

// Before the definition of a replacement: the only names that leave the library, besides dlsym and dlvsym.
#define HAMI_EXPORT extern "C" __attribute__((visibility("default")))
