// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/keep_errno.h"
#include "region/write_signals.h"

namespace hami::vgpu {
namespace {

// -1 = not read yet. Racing readers find the same.
constinit int g_level = -1;

struct Stderr {
  dev_t device;
  ino_t inode;
  bool open;
  bool operator==(const Stderr&) const = default;
};
constinit Stderr g_stderr{};

Stderr Descriptor2() {
  struct stat raw;
  // The wrapper became a symbol of its own in glibc 2.33; the system call has always been there.
  if (syscall(SYS_fstat, STDERR_FILENO, &raw) != 0) return {};
  return {raw.st_dev, raw.st_ino, true};
}

[[gnu::constructor]] void Loaded() {
  const region::KeepErrno keep;
  RememberStderr();
}

int CurrentLevel() {
  int level = __atomic_load_n(&g_level, __ATOMIC_RELAXED);
  if (level >= 0) return level;
  constexpr const char* kName = "LIBCUDA_LOG_LEVEL";
  const char* const value = getenv(kName);
  const char* text = value;
  level = 0;
  for (; text != nullptr && *text >= '0' && *text <= '9' && level < 100; ++text) level = level * 10 + (*text - '0');
  __atomic_store_n(&g_level, level, __ATOMIC_RELAXED);
  if (text != nullptr && *text != '\0') {
    LogLine(Level::kError)
        .Text(kName)
        .Text("=")
        .Text(value)
        .Text(": not a number, which levels are, taken as ")
        .Signed(level);
  }
  return level;
}

const char* LevelName(Level level) {
  switch (level) {
    case Level::kError:
      return "error";
    case Level::kWarn:
      return "warning";
    case Level::kInfo:
      return "info";
    case Level::kDebug:
      return "debug";
  }
  return "";
}

}  // namespace

void RememberStderr() { g_stderr = Descriptor2(); }

bool LogEnabled(Level level) { return level == Level::kError || CurrentLevel() >= static_cast<int>(level); }

LogLine::LogLine(Level level) : enabled_(LogEnabled(level)) {
  Text("[hami-vgpu ").Text(LevelName(level)).Text(" pid ").Number(static_cast<uint64_t>(getpid())).Text("] ");
}

LogLine::~LogLine() {
  if (!enabled_) return;
  const region::KeepErrno keep;
  if (const Stderr now = Descriptor2(); !now.open || now != g_stderr) return;
  line_[length_++] = '\n';
  // A partial or failed write is nobody's to repair, and no reason for a signal.
  const region::WithoutWriteSignals quiet;
  const ssize_t written = write(STDERR_FILENO, line_, length_);
  static_cast<void>(written);
}

LogLine& LogLine::Text(const char* text) {
  if (!enabled_ || text == nullptr) return *this;
  while (*text != '\0' && length_ < kCapacity - 1) line_[length_++] = *text++;
  return *this;
}

LogLine& LogLine::Cut(const char* text, size_t most) {
  for (; enabled_ && most != 0 && *text != '\0' && length_ < kCapacity - 1; --most) line_[length_++] = *text++;
  return *text != '\0' ? Text("…") : *this;
}

LogLine& LogLine::Number(uint64_t value) {
  char digits[21];
  size_t at = sizeof digits;
  digits[--at] = '\0';
  do {
    digits[--at] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  return Text(digits + at);
}

LogLine& LogLine::Signed(int64_t value) {
  if (value >= 0) return Number(static_cast<uint64_t>(value));
  return Text("-").Number(~static_cast<uint64_t>(value) + 1);
}

}  // namespace hami::vgpu
