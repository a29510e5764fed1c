// SPDX-License-Identifier: Apache-2.0
//
// Answers of a control daemon: whatever it writes, what is read lies within its range.

#include <cstdint>
#include <cstdlib>

#include "mps/place.h"
#include "mps/replies.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami::mps;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto pids = ParsePids(text)) {
    for (const int pid : *pids) {
      if (pid <= 0) std::abort();
    }
  }
  if (const auto percent = ParsePercentage(text)) {
    if (!(*percent >= 0 && *percent <= 100)) std::abort();
  }
  if (const auto status = ParseServerStatus(text)) (void)ServerStatusName(*status);
  if (const auto process = ParseProcessFile(text)) {
    if (process->pid <= 0 || ParseProcessFile(ProcessFileText(*process)) != process) std::abort();
  }
  return 0;
}
