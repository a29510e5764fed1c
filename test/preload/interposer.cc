// SPDX-License-Identifier: Apache-2.0
// A program that brings functions of the C library with it, as databases, allocators and sanitizers do: each finds the
// real one by dlsym when it is first called, and must not be called from there. Then it uses a GPU through dlopen.
#include <dlfcn.h>
#include <link.h>
#include <sys/types.h>

#include <cstdarg>
#include <cstddef>
#include <cstdlib>

#include "abi/cuda_abi.h"

// No header of the C library's that declares these, and nothing of it before main.
namespace {

// What runs while dlsym looks something up is our question, so it would never end.
int g_asking = 0;

template <typename F>
F* Real(F*& known, const char* name) {
  if (known == nullptr) {
    if (g_asking++ != 0) abort();
    known = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
    --g_asking;
  }
  return known;
}

}  // namespace

#define INTERPOSE(result, name, parameters, ...) \
  extern "C" result name parameters noexcept {   \
    static result(*real) parameters = nullptr;   \
    return Real(real, #name)(__VA_ARGS__);       \
  }

#pragma GCC diagnostic ignored "-Wnonnull-compare"
extern "C" int dl_iterate_phdr(int (*visit)(dl_phdr_info*, size_t, void*), void* data) {
  static int (*real)(int (*)(dl_phdr_info*, size_t, void*), void*) = nullptr;
  return Real(real, "dl_iterate_phdr")(visit, data);
}
INTERPOSE(void*, memcpy, (void* to, const void* from, size_t size), to, from, size)
INTERPOSE(void*, memmove, (void* to, const void* from, size_t size), to, from, size)
INTERPOSE(void*, memset, (void* to, int value, size_t size), to, value, size)
INTERPOSE(size_t, strlen, (const char* text), text)
INTERPOSE(int, strcmp, (const char* a, const char* b), a, b)
INTERPOSE(int, strncmp, (const char* a, const char* b, size_t most), a, b, most)
INTERPOSE(int, access, (const char* path, int mode), path, mode)
INTERPOSE(char*, getenv, (const char* name), name)
INTERPOSE(void*, malloc, (size_t size), size)
INTERPOSE(void, free, (void* block), block)
INTERPOSE(pid_t, getpid, ())

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 2;
  const auto find = [driver](auto* type, const char* name) {
    return reinterpret_cast<decltype(type)>(dlsym(driver, name));
  };
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  if (find(&::cuInit, "cuInit")(0) != CUDA_SUCCESS) return 3;
  if (find(&::cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, 0) != CUDA_SUCCESS) return 4;
  if (find(&::cuCtxSetCurrent, "cuCtxSetCurrent")(context) != CUDA_SUCCESS) return 5;
  const auto allocate = find(&::cuMemAlloc_v2, "cuMemAlloc_v2");
  if (allocate(&block, size_t{2} << 30) != CUDA_ERROR_OUT_OF_MEMORY) return 6;
  return allocate(&block, size_t{1} << 20) == CUDA_SUCCESS ? 0 : 7;
}
