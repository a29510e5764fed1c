// SPDX-License-Identifier: Apache-2.0
#include "region/adopt.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "region/keep_errno.h"
#include "region/layout.h"
#include "region/process.h"

namespace hami::region {
namespace {

constexpr char kDeleted[] = " (deleted)";

struct Directory {
  explicit Directory(const char* path) : fd(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  ~Directory() {
    if (fd >= 0) close(fd);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  // Calls `visit` with each name that is a number, until it returns false.
  template <typename Visit>
  void ForEachNumber(Visit visit) const {
    alignas(8) char buffer[4096];
    for (long got; fd >= 0 && (got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0;) {
      for (long at = 0; at < got;) {
        constexpr long kSizeAt = 16;
        constexpr long kNameAt = 19;
        uint16_t size;
        memcpy(&size, buffer + at + kSizeAt, sizeof size);
        const char* const name = buffer + at + kNameAt;
        if (*name >= '0' && *name <= '9' && !visit(name)) return;
        at += size;
      }
    }
  }
  const int fd;
};

void Append(char* to, size_t room, const char* text) {
  const size_t size = strlen(to);
  const size_t more = strlen(text);
  if (size + more < room) memcpy(to + size, text, more + 1);
}

// The path as the kernel shows it when the file is gone, and the file system it was on.
struct Wanted {
  char text[1200] = {};
  uint64_t device = 0;
};

bool Describe(const char* path, Wanted* out) {
  const char* const slash = strrchr(path, '/');
  char folder[1024] = ".";
  const size_t length = slash == nullptr ? 0 : static_cast<size_t>(slash - path);
  if (length >= sizeof folder) return false;
  if (slash != nullptr) {
    memcpy(folder, length == 0 ? "/" : path, length == 0 ? 1 : length);
    folder[length == 0 ? 1 : length] = '\0';
  }
  const Directory opened(folder);
  const FileStatus status = StatFile(opened.fd);
  if (!status.ok) return false;
  char link[40] = "/proc/thread-self/fd/";
  AppendNumber(link + strlen(link), static_cast<uint32_t>(opened.fd));
  const ssize_t size = readlink(link, out->text, sizeof folder);
  if (size <= 0 || size >= static_cast<ssize_t>(sizeof folder)) return false;
  if (size != 1) Append(out->text, sizeof out->text, "/");
  Append(out->text, sizeof out->text, slash == nullptr ? path : slash + 1);
  Append(out->text, sizeof out->text, kDeleted);
  out->device = status.device;
  return true;
}

int OpenIfWanted(const char* descriptor, const Wanted& wanted) {
  char target[sizeof wanted.text];
  const ssize_t size = readlink(descriptor, target, sizeof target);
  if (size != static_cast<ssize_t>(strlen(wanted.text)) ||
      memcmp(target, wanted.text, static_cast<size_t>(size)) != 0) {
    return -1;
  }
  const int fd = open(descriptor, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  const FileStatus status = StatFile(fd);
  if (status.regular && status.device == wanted.device && status.size >= static_cast<int64_t>(kFileBytes)) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

int OpenDeleted(const char* path) {
  const KeepErrno keep;
  Wanted wanted;
  if (!Describe(path, &wanted)) return -1;
  int found = -1;
  const Directory processes("/proc");
  processes.ForEachNumber([&](const char* pid) {
    char folder[64] = "/proc/";
    Append(folder, sizeof folder, pid);
    Append(folder, sizeof folder, "/fd");
    const Directory descriptors(folder);
    descriptors.ForEachNumber([&](const char* number) {
      char descriptor[96] = {};
      Append(descriptor, sizeof descriptor, folder);
      Append(descriptor, sizeof descriptor, "/");
      Append(descriptor, sizeof descriptor, number);
      found = OpenIfWanted(descriptor, wanted);
      return found < 0;
    });
    return found < 0;
  });
  return found;
}

void GuardAgainstCleaners(int fd) {
  constexpr uint64_t kLocal[] = {0x01021994 /* tmpfs */, 0xEF53 /* ext */,         0x58465342 /* xfs */,
                                 0x9123683E /* btrfs */, 0x794C7630 /* overlay */, 0x2FC12FC1 /* zfs */};
  const KeepErrno keep;
  struct statfs system;
  if (syscall(SYS_fstatfs, fd, &system) != 0) return;
  for (const uint64_t local : kLocal) {
    if (static_cast<uint32_t>(system.f_type) == local) syscall(SYS_flock, fd, LOCK_SH | LOCK_NB);
  }
}

}  // namespace hami::region
