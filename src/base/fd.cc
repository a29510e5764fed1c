// SPDX-License-Identifier: Apache-2.0

#include "base/fd.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

namespace hami::base {

void Fd::Reset() {
  // Linux has released the descriptor even when close reports EINTR; retrying could close somebody else's.
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void OccupyStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest that is free, which is this one. The wrong way round, so that using it fails as it would if it were
    // closed.
    const int occupied = ::open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    static_cast<void>(occupied);
  }
}

namespace {

Result<Fd> OpenAs(const std::string& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return FailErrno("can not open " + path);
  return Fd(fd);
}

Result<std::string> ReadOpened(const Result<Fd>& fd, const std::string& path, std::size_t most_bytes) {
  if (!fd) return tl::unexpected(fd.error());
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return FailErrno("can not examine " + path);
  if (!S_ISREG(status.st_mode)) return Fail(path + " is not a regular file");
  std::string content;
  std::array<char, 8192> buffer;
  while (true) {
    const ssize_t got = ::read(fd->get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FailErrno("can not read " + path);
    if (got == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(got));
    if (content.size() > most_bytes) return Fail(path + " is longer than " + std::to_string(most_bytes) + " bytes");
  }
}

}  // namespace

Result<Fd> Open(const std::string& path, int flags, unsigned mode) { return OpenAs(path, flags | O_NOFOLLOW, mode); }

// Both read without blocking, so that a named pipe planted under this name can not hold us up.
Result<std::string> ReadFile(const std::string& path, std::size_t most_bytes) {
  return ReadOpened(OpenAs(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0), path, most_bytes);
}

Result<std::string> ReadLinkedFile(const std::string& path, std::size_t most_bytes) {
  return ReadOpened(OpenAs(path, O_RDONLY | O_NONBLOCK, 0), path, most_bytes);
}

Status WriteNewFile(const std::string& path, std::string_view content, unsigned mode) {
  auto fd = Open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (!fd) return tl::unexpected(fd.error());
  const Status written = WriteAll(fd->get(), content);
  return written ? written : Status(Fail(path + ": " + written.error().message));
}

Status WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = ::write(fd, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FailErrno("can not write");
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Status WaitForLock(int fd, LockMode mode) {
  const int operation = mode == LockMode::kShared ? LOCK_SH : LOCK_EX;
  while (::flock(fd, operation) != 0) {
    if (errno != EINTR) return FailErrno("can not lock");
  }
  return {};
}

Result<bool> TryLock(int fd, LockMode mode) {
  const int operation = (mode == LockMode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (::flock(fd, operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return FailErrno("can not lock");
  }
  return true;
}

}  // namespace hami::base
