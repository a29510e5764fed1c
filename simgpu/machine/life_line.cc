// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/life_line.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace simgpu {
namespace {

constexpr off_t kFirstByte = off_t{1} << 40;  // far behind the machine; locks need no bytes
constexpr std::size_t kPage = 4096;

std::string& File() {
  static std::string* const file = new std::string;
  return *file;
}

struct flock ByteOf(int slot) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kFirstByte + slot;
  lock.l_len = 1;
  return lock;
}

}  // namespace

void SetLifeLineFile(const std::string& path) {
  // The program may go to another folder before a child of it comes here.
  char* const whole = realpath(path.c_str(), nullptr);
  File() = whole != nullptr ? whole : path;
  std::free(whole);
}

bool HoldLifeLine(int slot) {
  const int fd = open(File().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  struct flock lock = ByteOf(slot);
  bool held = fcntl(fd, F_OFD_SETLK, &lock) == 0;
  if (held) {
    void* const page = mmap(nullptr, kPage, PROT_NONE, MAP_SHARED, fd, 0);
    held = page != MAP_FAILED && madvise(page, kPage, MADV_DONTFORK) == 0;
    if (!held && page != MAP_FAILED) munmap(page, kPage);
  }
  close(fd);
  return held;
}

bool LifeLineHeld(int slot) {
  const int fd = open(File().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return true;
  struct flock lock = ByteOf(slot);
  const bool held = fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  close(fd);
  return held;
}

}  // namespace simgpu
