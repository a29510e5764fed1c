// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that only loads the driver proper, as WSL2's does: it exports every name of the API, and each is a
// jump to what dlsym said of the library behind it, libcuda.so.1.1 beside it.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define HAMI_CUDA_HOOK(symbol, ...) HAMI_LOADED(symbol)
#define HAMI_CUDA_PASS(symbol, ...) HAMI_LOADED(symbol)
#define HAMI_CUDA_ALIAS(...)

#if defined(__x86_64__)
#define HAMI_JUMP(symbol) "jmp *loaded_" #symbol "(%rip)\n"
#elif defined(__aarch64__)
#define HAMI_JUMP(symbol) "adrp x16, loaded_" #symbol "\nldr x16, [x16, #:lo12:loaded_" #symbol "]\nbr x16\n"
#else
#error "a jump needs a line for this architecture"
#endif

extern "C" {
#define HAMI_LOADED(symbol)                                                                \
  __attribute__((visibility("hidden"))) void* loaded_##symbol = nullptr;                   \
  __asm__(".pushsection .text\n.globl " #symbol "\n.type " #symbol ", %function\n" #symbol \
          ":\n" HAMI_JUMP(symbol) ".popsection\n");
#include "abi/cuda_api.inc"
#undef HAMI_LOADED
}

namespace {

struct Loader {
  Loader() {
    Dl_info self{};
    dladdr(&loaded_cuInit, &self);
    char path[4096];
    std::snprintf(path, sizeof path, "%s.1", self.dli_fname);
    void* const proper = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (proper == nullptr) std::fprintf(stderr, "loader: %s\n", dlerror());
    if (proper == nullptr) std::abort();
    struct Row {
      const char* name;
      void** slot;
    };
#undef HAMI_CUDA_HOOK
#undef HAMI_CUDA_PASS
#undef HAMI_CUDA_ALIAS
#define HAMI_CUDA_HOOK(symbol, ...) Row{#symbol, &loaded_##symbol},
#define HAMI_CUDA_PASS(symbol, ...) Row{#symbol, &loaded_##symbol},
#define HAMI_CUDA_ALIAS(...)
    static const Row kRows[] = {
#include "abi/cuda_api.inc"
    };
    for (const Row& row : kRows) *row.slot = dlsym(proper, row.name);
  }
} g_loader;

}  // namespace
