// SPDX-License-Identifier: Apache-2.0
//
// Fd owns one file descriptor and closes it exactly once. Around it, the few file operations the programs need: whole
// small files in and out, and advisory locks. Refuses files longer than the caller allows: what is read may have been
// written by a stranger.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace hami::base {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset();
  // Gives the descriptor up without closing it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Standard input, output and error that are closed are occupied by something that can not be read, nor written to, and
// is closed again for whom this process starts. Else the next files opened would be taken for them. To be called first.
void OccupyStandardDescriptors();

// open(2) with O_CLOEXEC and O_NOFOLLOW: a symbolic link in the last place is refused.
Result<Fd> Open(const std::string& path, int flags, unsigned mode = 0);

Result<std::string> ReadFile(const std::string& path, std::size_t most_bytes);
// As ReadFile, but follows a symbolic link in the last place: files of a mounted Secret or ConfigMap are such links.
Result<std::string> ReadLinkedFile(const std::string& path, std::size_t most_bytes);

// Creates PATH (which must not exist) with CONTENT.
Status WriteNewFile(const std::string& path, std::string_view content, unsigned mode);

Status WriteAll(int fd, std::string_view content);

enum class LockMode { kShared, kExclusive };

// flock(2): held by the open file description, therefore by every process that inherited the descriptor, and dropped by
// the kernel when the last of them is gone, however it died.
Status WaitForLock(int fd, LockMode mode);
// True when the lock was taken; false when another description holds it against us.
Result<bool> TryLock(int fd, LockMode mode);

}  // namespace hami::base
