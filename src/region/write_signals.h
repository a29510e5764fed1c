// SPDX-License-Identifier: Apache-2.0
//
// A write or a growing file may send its thread SIGXFSZ (`ulimit -f`) or SIGPIPE, which end a program that expects
// neither. While this lives the thread's own writes answer with the error alone: EFBIG, EPIPE. The program's handlers,
// mask and pending signals stay as they are. No C library: its wrappers of these calls are places to be cancelled at.
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace hami::region {

class WithoutWriteSignals {
 public:
  WithoutWriteSignals() {
    const int saved_errno = errno;
    syscall(SYS_rt_sigpending, &pending_, sizeof pending_);
    const uint64_t blocked = kSignals;
    held_ = syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, &mask_, sizeof mask_) == 0;
    errno = saved_errno;
  }
  ~WithoutWriteSignals() {
    const int saved_errno = errno;
    // What was not there before is the own doing.
    const uint64_t own = kSignals & ~pending_;
    const timespec now{};
    while (held_ && own != 0 && syscall(SYS_rt_sigtimedwait, &own, nullptr, &now, sizeof own) > 0) {
    }
    if (held_) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask_, nullptr, sizeof mask_);
    errno = saved_errno;
  }
  WithoutWriteSignals(const WithoutWriteSignals&) = delete;
  WithoutWriteSignals& operator=(const WithoutWriteSignals&) = delete;

 private:
  static constexpr uint64_t kSignals = uint64_t{1} << (SIGXFSZ - 1) | uint64_t{1} << (SIGPIPE - 1);
  uint64_t pending_ = 0;
  uint64_t mask_ = 0;
  bool held_ = false;
};

}  // namespace hami::region
