// SPDX-License-Identifier: Apache-2.0
//
// Messages to the operator, on stderr, one write per line, none unless something is wrong or LIBCUDA_LOG_LEVEL asks.
// No stdio, no allocation, no lock; errno is preserved. Only the stderr with which the process started is written to: a
// daemon closes it, and the number is another file's then. Levels as in HAMi: errors always, 2 adds warnings, 3
// information, 4 debugging.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace hami::vgpu {

enum class Level : int { kError = 0, kWarn = 2, kInfo = 3, kDebug = 4 };

bool LogEnabled(Level level);

// What descriptor 2 is now is stderr. Called when the library is loaded, before the program's first line.
void RememberStderr();

// A line under construction: LogLine(Level::kError).Text("no such file: ").Text(path).Number(errno). Written when it
// goes out of scope; cut at its capacity.
class LogLine {
 public:
  explicit LogLine(Level level);
  ~LogLine();
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;

  LogLine& Text(const char* text);
  // No more than the first `most` bytes of it, so that what follows has room.
  LogLine& Cut(const char* text, size_t most);
  LogLine& Number(uint64_t value);
  LogLine& Signed(int64_t value);

 private:
  static constexpr size_t kCapacity = 512;
  char line_[kCapacity];
  size_t length_ = 0;
  bool enabled_;
};

}  // namespace hami::vgpu
