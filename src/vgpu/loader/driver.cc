// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/driver.h"

#include <errno.h>

#include "vgpu/loader/elf_lookup.h"
#include "vgpu/loader/libc.h"

namespace hami::vgpu {
namespace {

constexpr const char* kSonames[] = {"libcuda.so.1", "libnvidia-ml.so.1"};

constinit std::atomic<void*> g_drivers[2];
constinit std::atomic<DlsymFn> g_dlsym{nullptr};
constinit std::atomic<void*> g_hook_targets[kHooks];

void* Open(Library library, int flags) {
  const auto index = static_cast<size_t>(library);
  void* handle = g_drivers[index].load(std::memory_order_acquire);
  if (handle != nullptr) return handle;
  const int saved_errno = errno;
  handle = libc::Open(kSonames[index], RTLD_LAZY | RTLD_LOCAL | flags);
  if (handle == nullptr) libc::ForgetError();  // the caller's own dlerror must not show our attempt
  errno = saved_errno;
  if (handle != nullptr) g_drivers[index].store(handle, std::memory_order_release);
  return handle;
}

}  // namespace

DlsymFn RealDlsym() {
  DlsymFn found = g_dlsym.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = reinterpret_cast<DlsymFn>(FindInLibc("dlsym"));
    g_dlsym.store(found, std::memory_order_release);
  }
  return found;
}

void* OpenDriver(Library library) { return Open(library, 0); }
void* LoadedDriver(Library library) { return Open(library, RTLD_NOLOAD); }

void* DriverSymbol(Sym sym) {
  const DlsymFn look_up = RealDlsym();
  void* const driver = OpenDriver(LibraryOf(sym));
  if (look_up == nullptr || driver == nullptr) return nullptr;
  void* const found = look_up(driver, NameOf(sym));
  if (found == nullptr) libc::ForgetError();
  return found;
}

void* DriverSymbolCached(Sym hook) {
  std::atomic<void*>& target = g_hook_targets[static_cast<size_t>(hook)];
  void* found = target.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = DriverSymbol(hook);
    target.store(found, std::memory_order_relaxed);
  }
  return found;
}

}  // namespace hami::vgpu
