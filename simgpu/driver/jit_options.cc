// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace simgpu {
namespace {

// The last option of the newest toolkit this driver was written against (CU_JIT_BINARY_LOADER_THREAD_COUNT), so that
// older headers build the same library.
constexpr int kLastOption = 35;

}  // namespace

CUresult JitOptions::Read(unsigned count, CUjit_option* options, void** values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const int option = static_cast<int>(options[i]);
    if (option < 0 || option > kLastOption) return CUDA_ERROR_INVALID_VALUE;
    // Numbers travel as the pointer's own bits.
    const auto number = static_cast<std::size_t>(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i])));
    switch (option) {
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.size = number;
        info_.written = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.size = number;
        error_.written = &values[i];
        break;
      case CU_JIT_TARGET:
        target_ = static_cast<int>(number & 0xffff);  // arch-specific and family targets have a mark above
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        break;
      default:
        break;
    }
  }
  return CUDA_SUCCESS;
}

void JitOptions::Write(const Log& log, std::string_view text) {
  std::size_t length = 0;
  if (log.buffer != nullptr && log.size > 0) {
    length = std::min(text.size(), log.size - 1);
    std::memcpy(log.buffer, text.data(), length);
    log.buffer[length] = '\0';
  }
  if (log.written != nullptr) *log.written = reinterpret_cast<void*>(length);
}

void JitOptions::Report(std::string_view info, std::string_view error) {
  Write(info_, info);
  Write(error_, error);
  // Milliseconds as a float; nothing was compiled.
  if (wall_time_ != nullptr) *wall_time_ = nullptr;
}

}  // namespace simgpu
