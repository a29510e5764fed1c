// SPDX-License-Identifier: Apache-2.0

#include "scheduler/cpu_profile.h"

#include <backtrace.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <thread>

#include "base/fd.h"

namespace hami::scheduler {
namespace {

using base::Fail;

constexpr auto kLook = std::chrono::milliseconds(50);
constexpr std::size_t kMostBytes = 256U << 20U;

}  // namespace

base::Result<CpuProfiler> CpuProfiler::Load(const char* library) {
  // Not linked, and kept to itself: it brings libunwind, whose functions have the names of those that throw our
  // exceptions. It stays loaded, since its signal handler does.
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return Fail(std::string("can not take CPU profiles: ") + (why == nullptr ? library : why),
                "install gperftools' libprofiler (Debian: libgoogle-perftools4)");
  }
  CpuProfiler profiler;
  profiler.start_ = reinterpret_cast<decltype(start_)>(::dlsym(handle, "ProfilerStart"));
  profiler.stop_ = reinterpret_cast<decltype(stop_)>(::dlsym(handle, "ProfilerStop"));
  if (profiler.start_ == nullptr || profiler.stop_ == nullptr) {
    return Fail(std::string("can not take CPU profiles: ") + library + " is not gperftools' profiler");
  }
  return profiler;
}

base::Result<std::string> CpuProfiler::Record(std::chrono::milliseconds span,
                                              const std::function<bool()>& enough) const {
  // The library writes to a file by name; this one is in memory, as there may be no folder to write to.
  const base::Fd file(::memfd_create("cpu-profile", MFD_CLOEXEC));
  if (!file) return Fail("no memory for a CPU profile");
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  if (start_(path.c_str()) == 0) return Fail("the profiler does not start: it runs already, or SIGPROF is taken");
  const auto end = std::chrono::steady_clock::now() + span;
  while (std::chrono::steady_clock::now() < end && !enough()) std::this_thread::sleep_for(std::min(kLook, span));
  stop_();
  return base::ReadLinkedFile(path, kMostBytes);
}

std::string FunctionAt(std::uintptr_t address) {
  // Reads the symbol tables of the program and its libraries once and keeps them.
  static backtrace_state* const state = ::backtrace_create_state(nullptr, 1, nullptr, nullptr);
  std::string name;
  const auto found = [](void* out, std::uintptr_t, const char* symbol, std::uintptr_t, std::uintptr_t) {
    if (symbol != nullptr) *static_cast<std::string*>(out) = symbol;
  };
  const auto failed = [](void*, const char*, int) {};
  if (state != nullptr) ::backtrace_syminfo(state, address, found, failed, &name);
  return name;
}

}  // namespace hami::scheduler
