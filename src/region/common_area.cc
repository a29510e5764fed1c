// SPDX-License-Identifier: Apache-2.0
#include "region/common_area.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "region/process.h"
#include "region/write_signals.h"

namespace hami::region {
namespace {

constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;

bool IsWhole(const FileStatus& status) {
  return status.ok && status.regular && status.size >= static_cast<int64_t>(sizeof(CommonArea));
}

constexpr int kPatience = 20;  // ms

#ifndef F_GET_SEALS
constexpr int F_GET_SEALS = 1034;
constexpr int F_SEAL_SHRINK = 2;
#endif

struct Place {
  bool ok = false, socket = false;
  uint64_t device = 0, inode = 0;
};

// Without opening it, and without following a link.
Place Look(const char* path) {
  Place place;
  const int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
  struct stat raw;
  // The wrapper became a symbol of its own in glibc 2.33; the system call has always been there.
  if (fd >= 0 && syscall(SYS_fstat, fd, &raw) == 0) place = {true, S_ISSOCK(raw.st_mode), raw.st_dev, raw.st_ino};
  if (fd >= 0) close(fd);
  return place;
}

// The one descriptor that comes with the message; -1 without it.
int ReceiveDescriptor(int socket) {
  char byte;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0) return -1;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int fd = -1;
  memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

// What is handed out at a socket; -1 when it is nothing, or could be cut short.
int AskForArea(const char* path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = strlen(path);
  if (length >= sizeof address.sun_path) return -1;
  memcpy(address.sun_path, path, length);
  const int asking = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (asking < 0) return -1;
  pollfd answer = {asking, POLLIN, 0};
  int fd = -1;
  if (connect(asking, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      poll(&answer, 1, kPatience) == 1) {
    fd = ReceiveDescriptor(asking);
  }
  close(asking);
  if (fd < 0) return -1;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) return fd;
  close(fd);
  return -1;
}

CommonArea* Map(int fd) {
  if (!IsWhole(StatFile(fd))) return nullptr;
  void* const map = mmap(nullptr, sizeof(CommonArea), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return nullptr;
  if (Load(static_cast<CommonArea*>(map)->magic) == kCommonMagic) return static_cast<CommonArea*>(map);
  munmap(map, sizeof(CommonArea));
  return nullptr;
}

}  // namespace

bool CreateCommonArea(const char* path) {
  const int fd = open(path, kFlags | O_CREAT, 0600);
  if (fd < 0) return false;
  const WithoutWriteSignals quiet;
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
  const Place place = Look(path);
  const int fd = place.socket ? AskForArea(path) : open(path, kFlags);
  file.area = Map(fd);
  file.sealed = place.socket;
  const FileStatus status = StatFile(fd);
  file.device = place.socket ? place.device : status.device;
  file.inode = place.socket ? place.inode : status.inode;
  if (fd >= 0) close(fd);  // a program that closes all it finds would not spare it
  errno = saved_errno;
  return file;
}

bool CommonIsWhole(const CommonFile& file, const char* path) {
  const int saved_errno = errno;
  bool whole = false;
  if (file.sealed) {
    const Place place = Look(path);
    whole = !place.ok || (place.device == file.device && place.inode == file.inode);
  } else {
    const int fd = open(path, kFlags);
    const FileStatus status = StatFile(fd);
    if (fd >= 0) close(fd);
    whole = IsWhole(status) && status.device == file.device && status.inode == file.inode;
  }
  errno = saved_errno;
  return whole;
}

}  // namespace hami::region
