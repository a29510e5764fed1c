// SPDX-License-Identifier: Apache-2.0
//
// The CUjit_option arrays of cuModuleLoadDataEx, cuLibraryLoadData and cuLink*. Options that steer a compiler have no
// effect here; the ones that report something back do: log buffers, wall time. Refuses options nobody knows.
#pragma once

#include <string_view>

#include "abi/cuda_abi.h"

namespace simgpu {

class JitOptions {
 public:
  // The arrays are used until the last Report, as the API says of them.
  CUresult Read(unsigned count, CUjit_option* options, void** values);

  // CU_JIT_TARGET as major * 10 + minor; 0: not asked for.
  int target() const { return target_; }

  // Writes the logs and their lengths where the options ask for them. Each is cut to its buffer and ends in NUL.
  void Report(std::string_view info, std::string_view error);

 private:
  struct Log {
    char* buffer = nullptr;
    std::size_t size = 0;
    void** written = nullptr;  // the value of the size option receives what was written
  };
  static void Write(const Log& log, std::string_view text);

  Log info_;
  Log error_;
  void** wall_time_ = nullptr;
  int target_ = 0;
};

}  // namespace simgpu
