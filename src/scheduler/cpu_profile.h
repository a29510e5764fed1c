// SPDX-License-Identifier: Apache-2.0
//
// Where this process spends its CPU time: profiles taken by gperftools' libprofiler (a signal per 10 ms of CPU time,
// whichever thread it meets), in the format that it writes and pprof reads, and the names of the functions in them.
// Nothing of it is loaded, and no signal is sent, before a profile is wanted.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace hami::scheduler {

class CpuProfiler {
 public:
  // Loads LIBRARY. The error says what to install.
  static base::Result<CpuProfiler> Load(const char* library = "libprofiler.so.0");

  // Samples every thread for SPAN, or until ENOUGH; then returns the profile. One at a time in a process: a second one
  // is an error.
  base::Result<std::string> Record(std::chrono::milliseconds span, const std::function<bool()>& enough) const;

 private:
  int (*start_)(const char* file) = nullptr;
  void (*stop_)() = nullptr;
};

// The function of this process that ADDRESS lies in, as the linker knows it (not demangled); empty when nobody does.
std::string FunctionAt(std::uintptr_t address);

}  // namespace hami::scheduler
