// SPDX-License-Identifier: Apache-2.0
//
// The C library's functions at which a thread can be cancelled, as far as this library uses them, without that: it
// would die there with locks that nobody opens again, for its own process and, in the region, for all others. Whatever
// is linked into libvgpu.so finds these first; tools/abi_gate.sh sees to it that none of the C library's is left. fcntl
// is a place like that with F_SETLKW only, which nobody here uses.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned) : 0;
  va_end(rest);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int close(int fd) { return static_cast<int>(syscall(SYS_close, fd)); }

ssize_t read(int fd, void* to, size_t size) { return syscall(SYS_read, fd, to, size); }
ssize_t write(int fd, const void* from, size_t size) { return syscall(SYS_write, fd, from, size); }
ssize_t pread(int fd, void* to, size_t size, off_t at) { return syscall(SYS_pread64, fd, to, size, at); }
ssize_t pwrite(int fd, const void* from, size_t size, off_t at) { return syscall(SYS_pwrite64, fd, from, size, at); }

int fallocate(int fd, int mode, off_t at, off_t size) {
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, at, size));
}

int connect(int fd, const sockaddr* to, socklen_t size) { return static_cast<int>(syscall(SYS_connect, fd, to, size)); }
ssize_t recvmsg(int fd, msghdr* to, int flags) { return syscall(SYS_recvmsg, fd, to, flags); }

int poll(pollfd* fds, nfds_t count, int timeout_ms) {
  timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000};
  return static_cast<int>(syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? nullptr : &timeout, nullptr, 0));
}

}  // extern "C"
