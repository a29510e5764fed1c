// SPDX-License-Identifier: Apache-2.0
//
// What the tests of this folder share: a temporary region path, children by fork with their verdict as exit status, and
// raw access to the bytes of a region file by absolute offset, independent of the structs under test.

#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "region/ledger.h"
#include "region/region.h"

namespace hami::region {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// A folder of its own, gone at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "regionXXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    const int ignored = std::system(("rm -rf '" + path_ + "'").c_str());
    static_cast<void>(ignored);
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Config TestConfig(uint64_t limit = 1000) {
  Config config;
  config.device_count = 2;
  for (DeviceConfig& device : config.devices) device.memory_limit = limit;
  return config;
}

// Detaches at the end of its scope; unmoved, as an attachment must be.
struct Attached : Attachment {
  Attached() = default;
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  ~Attached() { Detach(this); }
};

// Runs `body` in a child; its result is the exit status. 77 can not happen by accident.
template <typename Body>
pid_t Spawn(Body body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  return pid;
}
// Exit status, or 1000 + signal.
inline int Join(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// A pipe by which a child says "I am there" and the parent says "go on".
class Signal {
 public:
  Signal() {
    if (pipe2(ends_, O_CLOEXEC) != 0) abort();
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void Raise() const {
    if (write(ends_[1], "x", 1) != 1) abort();
  }
  void Await() const {
    char byte;
    while (read(ends_[0], &byte, 1) < 0) {
    }
  }

 private:
  int ends_[2];
};

// The bytes of a file.
class RawFile {
 public:
  explicit RawFile(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {}
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile() { close(fd_); }
  template <typename T>
  T Get(int64_t offset) const {
    T value{};
    EXPECT_EQ(pread(fd_, &value, sizeof value, offset), static_cast<ssize_t>(sizeof value)) << "offset " << offset;
    return value;
  }
  template <typename T>
  void Set(int64_t offset, T value) const {
    EXPECT_EQ(pwrite(fd_, &value, sizeof value, offset), static_cast<ssize_t>(sizeof value));
  }
  void Resize(int64_t size) const { EXPECT_EQ(ftruncate(fd_, size), 0); }
  int64_t Size() const { return lseek(fd_, 0, SEEK_END); }
  std::string Bytes() const {
    std::string bytes(static_cast<size_t>(Size()), '\0');
    EXPECT_EQ(pread(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

inline constexpr int64_t SlotAt(int index) { return 1856 + int64_t{1960} * index; }

// A region as HAMi-core 1.2 leaves it: its size, its words, nothing of ours.
inline void MakeHamiFile(const std::string& path, uint32_t minor_version = 2) {
  const RawFile file(path);
  file.Resize(2'008'953);
  file.Set<int32_t>(0, 19920718);
  file.Set<uint32_t>(4, 1);
  file.Set<uint32_t>(8, minor_version);
  file.Set<uint32_t>(24, 1);
  file.Set<uint64_t>(1600, 1000);
  file.Set<int32_t>(2'008'900, 1);
  file.Set<int32_t>(2'008'904, 2);
  if (minor_version >= 2) file.Set<uint32_t>(2'008'920, 1);
}

}  // namespace hami::region
