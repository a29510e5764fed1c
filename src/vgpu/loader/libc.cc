// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/libc.h"

#include <atomic>

#include "vgpu/loader/elf_lookup.h"

namespace hami::vgpu::libc {
namespace {

constinit std::atomic<void*> g_open{nullptr};
constinit std::atomic<void*> g_error{nullptr};
constinit std::atomic<void*> g_locate{nullptr};

template <typename F>
F* Find(std::atomic<void*>& known, const char* name) {
  void* found = known.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = FindInLibc(name);
    known.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<F*>(found);
}

}  // namespace

void* Open(const char* soname, int flags) {
  auto* const open = Find<void*(const char*, int)>(g_open, "dlopen");
  return open == nullptr ? nullptr : open(soname, flags);
}

void ForgetError() {
  if (auto* const error = Find<char*()>(g_error, "dlerror"); error != nullptr) error();
}

int Locate(const void* address, Dl_info* out) {
  auto* const locate = Find<int(const void*, Dl_info*)>(g_locate, "dladdr");
  return locate == nullptr ? 0 : locate(address, out);
}

}  // namespace hami::vgpu::libc
