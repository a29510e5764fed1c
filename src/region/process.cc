// SPDX-License-Identifier: Apache-2.0
#include "region/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "region/keep_errno.h"

// Locks of an open file: glibc has the names since 2.20.
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

namespace hami::region {
namespace {

constexpr size_t kLifePage = 4096;

// Builds "/proc/<pid>/<leaf>".
void ProcPath(int32_t pid, const char* leaf, char (&path)[40]) {
  constexpr char kProc[] = "/proc/";
  memcpy(path, kProc, sizeof kProc);
  char* out = AppendNumber(path + sizeof kProc - 1, static_cast<uint32_t>(pid));
  *out++ = '/';
  memcpy(out, leaf, strlen(leaf) + 1);
}

ssize_t ReadAgain(int fd, void* buffer, size_t size) {
  ssize_t got;
  do got = read(fd, buffer, size);
  while (got < 0 && errno == EINTR);
  return got;
}

struct flock Range(int16_t type, int64_t start, int64_t length) {
  struct flock range;
  memset(&range, 0, sizeof range);
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = start;
  range.l_len = length;
  return range;
}

// Reads a file line by line, keeping the first bytes of each: a line of /proc/<pid>/maps is as long as a path may be.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}
  bool Next() {
    size_ = 0;
    for (bool any = false;; any = true) {
      if (at_ == end_) {
        const ssize_t got = ReadAgain(fd_, buffer_, sizeof buffer_);
        if (got <= 0) {
          failed_ = got < 0;
          line_[size_] = '\0';
          return any && !failed_;
        }
        at_ = 0;
        end_ = static_cast<size_t>(got);
      }
      const char next = buffer_[at_++];
      if (next == '\n') break;
      if (size_ + 1 < sizeof line_) line_[size_++] = next;
    }
    line_[size_] = '\0';
    return true;
  }
  const char* line() const { return line_; }
  bool failed() const { return failed_; }

 private:
  int fd_;
  size_t at_ = 0, end_ = 0, size_ = 0;
  bool failed_ = false;
  char buffer_[4096];
  char line_[160];
};

// "start-end perms offset dev inode path": copies "dev inode" and parses start.
bool ParseMapsLine(const char* line, uintptr_t* start, char (&file)[64]) {
  uintptr_t value = 0;
  for (; *line != '-'; ++line) {
    const char c = *line;
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<uintptr_t>(c - 'a' + 10);
    } else {
      return false;
    }
  }
  *start = value;
  for (int field = 0; field < 3; ++field) {
    line = strchr(line, ' ');
    if (line == nullptr) return false;
    ++line;
  }
  size_t size = 0;
  for (int spaces = 0; *line != '\0' && size + 1 < sizeof file; ++line) {
    if (*line == ' ' && ++spaces == 2) break;
    file[size++] = *line;
  }
  file[size] = '\0';
  return size > 0;
}

int OpenProc(int32_t pid, const char* leaf) {
  char path[40];
  ProcPath(pid, leaf, path);
  return open(path, O_RDONLY | O_CLOEXEC);
}

}  // namespace

char* AppendNumber(char* out, uint32_t number) {
  char digits[12];
  int count = 0;
  for (uint32_t rest = number; rest != 0 || count == 0; rest /= 10) {
    digits[count++] = static_cast<char>('0' + rest % 10);
  }
  while (count > 0) *out++ = digits[--count];
  *out = '\0';
  return out;
}

bool ParseProcessStat(const char* text, size_t size, char* state, uint64_t* threads, uint64_t* start_time) {
  size_t at = size;
  while (at > 0 && text[at - 1] != ')') --at;
  if (at == 0 || at + 2 >= size || text[at] != ' ') return false;
  ++at;
  *state = text[at];
  const auto number = [&](uint64_t* out) {
    const size_t begin = at;
    *out = 0;
    for (; at < size && text[at] >= '0' && text[at] <= '9'; ++at) {
      *out = *out * 10 + static_cast<uint64_t>(text[at] - '0');
    }
    return at != begin;
  };
  for (int field = 3; field < 22; ++at) {
    if (at >= size) return false;
    if (text[at] != ' ') continue;
    if (++field != 20) continue;
    ++at;
    if (!number(threads)) return false;
    --at;
  }
  return number(start_time);
}

ProcessStat ReadProcessStat(int32_t pid) {
  ProcessStat result;
  if (pid <= 0) {
    result.presence = Presence::kGone;
    return result;
  }
  const int fd = OpenProc(pid, "stat");
  if (fd < 0) {
    // No descriptors left, or a /proc that hides other users' processes: ask the kernel in another way.
    if (kill(pid, 0) != 0 && errno == ESRCH) result.presence = Presence::kGone;
    return result;
  }
  char text[1024];
  const ssize_t got = ReadAgain(fd, text, sizeof text);
  const int error = errno;
  close(fd);
  if (got < 0) {
    if (error == ESRCH) result.presence = Presence::kGone;
    return result;
  }
  char state = '\0';
  uint64_t threads = 0;
  if (!ParseProcessStat(text, static_cast<size_t>(got), &state, &threads, &result.start_time)) return result;
  // A main thread that has ended is a zombie while the others go on, and counts as one of them.
  const bool zombie = state == 'Z' || state == 'X' || state == 'x';
  result.presence = zombie && threads <= 1 ? Presence::kGone : Presence::kThere;
  result.stopped = state == 'T' || state == 't';
  return result;
}

void ForEachDescriptorLine(int fd, bool (*visit)(const char* line, void* context), void* context) {
  if (fd < 0) return;
  // Not "self": the thread that gave the process its name may have ended.
  char path[40] = "/proc/thread-self/fdinfo/";
  AppendNumber(path + strlen(path), static_cast<uint32_t>(fd));
  const int info = open(path, O_RDONLY | O_CLOEXEC);
  if (info < 0) return;
  LineReader lines(info);
  while (lines.Next() && visit(lines.line(), context)) {
  }
  close(info);
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  constexpr unsigned kNonBlocking = 1;
  if (syscall(SYS_getrandom, &number, sizeof number, kNonBlocking) == sizeof number) return number;
  // A kernel before 3.17, or one that has just started.
  number = static_cast<uint64_t>(MonotonicNanos()) ^ static_cast<uint64_t>(UnixSeconds()) << 20;
  number = (number ^ static_cast<uint64_t>(getpid()) << 40) * 0x9e37'79b9'7f4a'7c15;
  return number ^ number >> 29;
}

uint64_t OwnPidNamespace() {
  char text[64];
  ssize_t got = readlink("/proc/self/ns/pid", text, sizeof text);              // "pid:[4026531836]"
  if (got < 0) got = readlink("/proc/thread-self/ns/pid", text, sizeof text);  // the main thread has ended
  uint64_t inode = 0;
  for (ssize_t i = 0; i < got; ++i) {
    if (text[i] >= '0' && text[i] <= '9') inode = inode * 10 + static_cast<uint64_t>(text[i] - '0');
  }
  return inode;
}

void OwnCommand(char (*command)[16]) {
  memset(*command, 0, sizeof *command);
  const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = ReadAgain(fd, *command, sizeof *command);
  close(fd);
  if (got > 0 && (*command)[got - 1] == '\n') (*command)[got - 1] = '\0';
}

Presence ProcessMapsSameFile(int32_t pid, const void* address) {
  char wanted[64] = {};
  char file[64];
  uintptr_t start = 0;
  int own = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);  // the main thread may have ended
  if (own < 0) own = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (own < 0) return Presence::kUnknown;
  LineReader mine(own);
  while (mine.Next()) {
    if (ParseMapsLine(mine.line(), &start, file) && start == reinterpret_cast<uintptr_t>(address)) {
      memcpy(wanted, file, sizeof wanted);
      break;
    }
  }
  close(own);
  if (wanted[0] == '\0') return Presence::kUnknown;

  const int other = OpenProc(pid, "maps");
  if (other < 0) return Presence::kUnknown;
  LineReader theirs(other);
  bool any = false;
  bool same = false;
  while (!same && theirs.Next()) {
    any = true;
    same = ParseMapsLine(theirs.line(), &start, file) && strcmp(file, wanted) == 0;
  }
  close(other);
  if (same) return Presence::kThere;
  // A process in the middle of its exit, or one that may not be looked at, shows an empty file.
  return any && !theirs.failed() ? Presence::kGone : Presence::kUnknown;
}

FileStatus StatFile(int fd) {
  FileStatus status = {};
  struct stat raw;
  // The wrapper became a symbol of its own in glibc 2.33; the system call has always been there.
  if (fd < 0 || syscall(SYS_fstat, fd, &raw) != 0) return status;
  status.ok = true;
  status.regular = S_ISREG(raw.st_mode);
  status.device = raw.st_dev;
  status.inode = raw.st_ino;
  status.size = raw.st_size;
  return status;
}

bool TryRecordLock(int fd, int64_t start, int64_t length) {
  struct flock range = Range(F_WRLCK, start, length);
  return fcntl(fd, F_SETLK, &range) == 0;
}

void RecordUnlock(int fd, int64_t start, int64_t length) {
  struct flock range = Range(F_UNLCK, start, length);
  fcntl(fd, F_SETLK, &range);
}

LockHeld AskRecordLock(int fd, int64_t start, int64_t length, int32_t* holder) {
  struct flock range = Range(F_WRLCK, start, length);
  if (fd < 0 || fcntl(fd, F_GETLK, &range) != 0) return LockHeld::kUnknown;
  if (range.l_type == F_UNLCK) return LockHeld::kNo;
  *holder = range.l_pid > 0 ? range.l_pid : 0;
  return LockHeld::kYes;
}

void* HoldLifeLine(int fd, int64_t byte) {
  // Another opening of the same file, whatever became of its name.
  char path[40] = "/proc/thread-self/fd/";
  AppendNumber(path + strlen(path), static_cast<uint32_t>(fd));
  const int own = fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (own < 0) return nullptr;
  struct flock range = Range(F_WRLCK, byte, 1);
  void* page = MAP_FAILED;
  // The mapping keeps the opened file, and with it the lock, when the descriptor is closed.
  if (fcntl(own, F_OFD_SETLK, &range) == 0) page = mmap(nullptr, kLifePage, PROT_NONE, MAP_SHARED, own, 0);
  if (page != MAP_FAILED && madvise(page, kLifePage, MADV_DONTFORK) != 0) {
    munmap(page, kLifePage);
    page = MAP_FAILED;
  }
  close(own);
  return page == MAP_FAILED ? nullptr : page;
}

void DropLifeLine(void* line) {
  if (line != nullptr) munmap(line, kLifePage);
}

LockHeld AskLifeLine(int fd, int64_t byte) {
  struct flock range = Range(F_WRLCK, byte, 1);
  if (fd < 0 || fcntl(fd, F_OFD_GETLK, &range) != 0) return LockHeld::kUnknown;
  return range.l_type == F_UNLCK ? LockHeld::kNo : LockHeld::kYes;
}

int64_t MonotonicNanos() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t UnixSeconds() {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

void SleepNanos(int64_t nanos) {
  const KeepErrno keep;
  struct timespec duration;
  duration.tv_sec = nanos / 1'000'000'000;
  duration.tv_nsec = nanos % 1'000'000'000;
  syscall(SYS_nanosleep, &duration, nullptr);
}

void FutexWait(const uint32_t* word, uint32_t expected, int64_t timeout_ns) {
  struct timespec timeout;
  timeout.tv_sec = timeout_ns / 1'000'000'000;
  timeout.tv_nsec = timeout_ns % 1'000'000'000;
  const KeepErrno keep;
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void FutexWake(const uint32_t* word, int count) { syscall(SYS_futex, word, FUTEX_WAKE, count, nullptr, nullptr, 0); }

}  // namespace hami::region
