// SPDX-License-Identifier: Apache-2.0
// Descriptors of exported memory. Nobody is told when the last one is closed, in whatever process it came to; but an
// open file that was given out holds a shared lock, which ends with the last copy of its descriptor.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "simgpu/driver/mem_vmm.h"

namespace simgpu {

int OpenAgain(int fd) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return open(path, O_RDWR | O_CLOEXEC);
}

int GiveOut(int fd) {
  const int given = OpenAgain(fd);
  if (given < 0) return fcntl(fd, F_DUPFD_CLOEXEC, 3);    // no /proc: the memory then ends with its last handle
  while (flock(given, LOCK_SH) != 0 && errno == EINTR) {  // somebody who looks has it for a moment
  }
  return given;
}

bool IsGivenOut(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return true;
  flock(fd, LOCK_UN);
  return false;
}

}  // namespace simgpu
