// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/share_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

#include "region/keep_errno.h"
#include "vgpu/loader/libc.h"
#include "vgpu/runtime/log.h"
#include "vgpu/runtime/mapped_vector.h"

namespace hami::vgpu {
namespace {

constexpr char kLifeLine[] = "/alive";
constexpr size_t kPathRoom = sizeof Settings{}.region_path;
constexpr size_t kMostText = size_t{2} << 20;  // of an environment; what is not touched costs nothing
constexpr int kFirstLifeLine = 100;            // where `hami run` puts it, and a few behind
constexpr int kMostLifeLines = 8;

// Entries "NAME=value", each ended by a zero, and an empty one. One thread reads one at a time, once.
constinit char* g_text = nullptr;

char* Get(const char* name) {
  const size_t n = strlen(name);
  for (char* entry = g_text; *entry != '\0'; entry += strlen(entry) + 1) {
    if (strncmp(entry, name, n) == 0 && entry[n] == '=') return entry + n + 1;
  }
  return nullptr;
}

// Reads all of a file into pages of its own. nullptr, with errno: it cannot be had.
char* ReadAll(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return nullptr;
  auto* const text = static_cast<char*>(MapPages(kMostText));
  size_t length = 0;
  ssize_t got = text == nullptr ? -1 : 1;
  if (text == nullptr) errno = ENOMEM;
  while (got > 0 && length < kMostText - 2) {
    got = read(fd, text + length, kMostText - 2 - length);
    if (got > 0) length += static_cast<size_t>(got);
    if (got < 0 && errno == EINTR) got = 1;
  }
  const int error = errno;
  close(fd);
  if (got >= 0) return text;
  UnmapPages(text, kMostText);
  errno = error;
  return nullptr;
}

void KeepToText(Settings* environment, char* text) {
  auto* const share = static_cast<Settings*>(MapPages(sizeof(Settings)));  // too large for a stranger's stack
  if (share != nullptr) {
    g_text = text;
    ReadSettings(share, &Get);
    KeepToShare(environment, *share);
    g_text = nullptr;
    UnmapPages(share, sizeof(Settings));
  } else {
    environment->unread_memory_limits = ~uint32_t{0};
  }
  UnmapPages(text, kMostText);
}

// Appends to `path`; false when that is too long.
bool Append(char (&path)[kPathRoom], size_t length, const char* name) {
  const size_t n = strlen(name);
  if (length + n >= sizeof path) return false;
  memcpy(path + length, name, n + 1);
  return true;
}

bool AppendFile(char (&path)[kPathRoom], size_t length) {
  return Append(path, length, "/") && Append(path, length + 1, region::kShareFile);
}

// The folder of this library without its last slash; how long that is, 0 = not known.
size_t OwnFolder(char (&path)[kPathRoom]) {
  Dl_info self{};
  if (libc::Locate(&g_text, &self) == 0 || self.dli_fname == nullptr) return 0;
  const char* const slash = strrchr(self.dli_fname, '/');
  if (slash == nullptr || static_cast<size_t>(slash - self.dli_fname) >= sizeof path) return 0;
  const auto length = static_cast<size_t>(slash - self.dli_fname);
  memcpy(path, self.dli_fname, length);
  path[length] = '\0';
  return length;
}

bool BesideLibrary(Settings* environment) {
  char path[kPathRoom];
  const size_t length = OwnFolder(path);
  return length != 0 && AppendFile(path, length) && KeepToShareFile(environment, path);
}

// HAMi's plugin leaves no file, but mounts the container's region beside the library: the only one there.
void FindRegionBesideLibrary(Settings* environment) {
  char path[kPathRoom];
  const size_t length = OwnFolder(path);
  const int fd = length == 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  alignas(8) char entries[2048];
  int found = 0;
  for (long n = 0; (n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
    uint16_t size = 0;
    for (long at = 0; at < n; at += size) {
      memcpy(&size, entries + at + 16, sizeof size);
      const char* const name = entries + at + 19;
      const size_t name_length = strlen(name);
      if (*name == '.' || name_length < 7 || strcmp(name + name_length - 6, ".cache") != 0) continue;
      path[length] = '/';
      if (length + 1 < sizeof path && Append(path, length + 1, name)) ++found;
    }
  }
  close(fd);
  if (found == 1) memcpy(environment->region_path, path, strlen(path) + 1);
}

bool BesideLifeLine(Settings* environment) {
  for (int fd = kFirstLifeLine; fd < kFirstLifeLine + kMostLifeLines; ++fd) {
    char link[] = "/proc/self/fd/100";
    link[sizeof link - 2] = static_cast<char>('0' + fd % 10);
    char path[kPathRoom];
    const ssize_t n = readlink(link, path, sizeof path - 1);
    const auto length = static_cast<size_t>(n < 0 ? 0 : n) - (n < 0 ? 0 : sizeof kLifeLine - 1);
    if (n < static_cast<ssize_t>(sizeof kLifeLine - 1)) continue;
    if (memcmp(path + length, kLifeLine, sizeof kLifeLine - 1) != 0) continue;
    if (AppendFile(path, length) && KeepToShareFile(environment, path)) return true;
  }
  return false;
}

bool IsSetting(const char* entry) {
  for (const char* prefix : {"CUDA_DEVICE_MEMORY_", "CUDA_DEVICE_SM_LIMIT",
                             "CUDA_OVERSUBSCRIBE=", "CUDA_TASK_PRIORITY=", "GPU_CORE_UTILIZATION_POLICY=", "HAMI_"}) {
    if (strncmp(entry, prefix, strlen(prefix)) == 0) return true;
  }
  return false;
}

// Whether the environment still says what this entry said.
bool StillSays(const char* entry) {
  const char* const equals = strchr(entry, '=');
  char name[64];
  const auto length = static_cast<size_t>(equals == nullptr ? 0 : equals - entry);
  if (length == 0 || length >= sizeof name) return true;
  memcpy(name, entry, length);
  name[length] = '\0';
  const char* const now = getenv(name);
  return now != nullptr && strcmp(now, equals + 1) == 0;
}

// A process that names another region now was made another container's by its parent, without an exec.
bool NamesAnotherRegion(const Settings& environment, const char* entry) {
  constexpr char kName[] = "CUDA_DEVICE_MEMORY_SHARED_CACHE=";
  return (environment.says & kSaysRegion) != 0 && strncmp(entry, kName, sizeof kName - 1) == 0 && !StillSays(entry);
}

// A program may have written over it, to be called something else in `ps`: what is left has none of our names.
void AsStarted(Settings* environment) {
  char* const text = ReadAll("/proc/self/environ");
  bool changed = false;
  for (char* entry = text; entry != nullptr && *entry != '\0'; entry += strlen(entry) + 1) {
    if (NamesAnotherRegion(*environment, entry)) {
      changed = false;
      break;
    }
    changed = changed || (IsSetting(entry) && !StillSays(entry));
  }
  if (changed) return KeepToText(environment, text);
  UnmapPages(text, kMostText);
}

}  // namespace

bool KeepToShareFile(Settings* environment, const char* path) {
  char* const text = ReadAll(path);
  if (text == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    LogLine(Level::kError)
        .Text(path)
        .Text(": ")
        .Text(strerror(errno))
        .Text("; it says what this share may have, so nothing is granted where no other limit holds");
    environment->unread_memory_limits = ~uint32_t{0};
    return true;
  }
  for (char* c = text; *c != '\0'; ++c) {
    if (*c == '\n') *c = '\0';
  }
  KeepToText(environment, text);
  return true;
}

void KeepToOwnShare(Settings* environment) {
  const region::KeepErrno keep;
  if (BesideLibrary(environment) || BesideLifeLine(environment)) return;
  AsStarted(environment);
  if ((environment->says & kSaysRegion) == 0) FindRegionBesideLibrary(environment);
}

}  // namespace hami::vgpu
