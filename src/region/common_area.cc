// SPDX-License-Identifier: Apache-2.0
#include "region/common_area.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "region/process.h"

namespace hami::region {
namespace {

constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;

bool IsWhole(const FileStatus& status) {
  return status.ok && status.regular && status.size >= static_cast<int64_t>(sizeof(CommonArea));
}

}  // namespace

bool CreateCommonArea(const char* path) {
  const int fd = open(path, kFlags | O_CREAT, 0600);
  if (fd < 0) return false;
  // Growing a file fills it with zeros; whoever comes second finds it so and changes nothing.
  const FileStatus status = StatFile(fd);
  const uint64_t magic = kCommonMagic;
  const bool made = status.regular && (IsWhole(status) || ftruncate(fd, sizeof(CommonArea)) == 0) &&
                    pwrite(fd, &magic, sizeof magic, 0) == sizeof magic;
  const int saved_errno = status.regular ? errno : EINVAL;
  close(fd);
  errno = saved_errno;
  return made;
}

CommonFile OpenCommonArea(const char* path) {
  const int saved_errno = errno;
  CommonFile file;
  const int fd = open(path, kFlags);
  const FileStatus status = StatFile(fd);
  if (IsWhole(status)) {
    void* const map = mmap(nullptr, sizeof(CommonArea), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED && Load(static_cast<CommonArea*>(map)->magic) == kCommonMagic) {
      file = {static_cast<CommonArea*>(map), status.device, status.inode};
    } else if (map != MAP_FAILED) {
      munmap(map, sizeof(CommonArea));
    }
  }
  if (fd >= 0) close(fd);  // a program that closes all it finds would not spare it
  errno = saved_errno;
  return file;
}

bool CommonIsWhole(const CommonFile& file, const char* path) {
  const int saved_errno = errno;
  const int fd = open(path, kFlags);
  const FileStatus status = StatFile(fd);
  if (fd >= 0) close(fd);
  errno = saved_errno;
  return IsWhole(status) && status.device == file.device && status.inode == file.inode;
}

}  // namespace hami::region
