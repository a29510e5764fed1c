// SPDX-License-Identifier: Apache-2.0

#include "monitor/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/trash.h"

namespace hami::monitor {
namespace {

constexpr int kMostEntries = 8192;  // of containers/, which only the node's agents write
constexpr int kMostFiles = 1024;    // looked at in a tenant's directory
constexpr std::size_t kMostCaches = 64;
constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;

// A tenant may give its file any time (utimensat), a clock of nanoseconds ends in 2262: what is further away is the
// nearest of 1970 to 2223, so that no difference of two overflows.
WallTime ToWallTime(const timespec& time) {
  const std::chrono::seconds whole(std::clamp<std::int64_t>(time.tv_sec, 0, 8'000'000'000));
  return WallTime(std::chrono::duration_cast<WallTime::duration>(whole + std::chrono::nanoseconds(time.tv_nsec)));
}

// Calls each(name) for at most MOST entries; false when there may be more that could not be read. A fresh descriptor,
// because a directory stream owns its own.
template <typename Each>
bool ForEachName(int directory, int most, Each each) {
  const int fd = ::openat(directory, ".", kDirectoryFlags);
  if (fd < 0) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), &::closedir);
  if (!stream) {
    ::close(fd);
    return false;
  }
  for (int i = 0; i < most; ++i) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) return errno == 0;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") each(std::string(name));
  }
  return true;
}

std::string LinkTarget(int directory, const std::string& name) {
  std::array<char, 256> target;
  const ssize_t size = ::readlinkat(directory, name.c_str(), target.data(), target.size());
  if (size <= 0 || size >= static_cast<ssize_t>(target.size())) return {};
  std::string text(target.data(), static_cast<std::size_t>(size));
  return IsShareTarget(text) ? text : std::string();
}

std::optional<Entry> Examine(int directory, const std::string& name) {
  auto container = ParseContainerName(name);
  if (!container) return std::nullopt;
  Entry entry;
  entry.name = name;
  entry.container = *std::move(container);
  struct stat status {};
  if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  entry.changed = ToWallTime(status.st_ctim);
  entry.inode = status.st_ino;
  if (S_ISLNK(status.st_mode)) {
    entry.is_link = true;
    entry.directory = LinkTarget(directory, name);
    return entry;
  }
  if (!S_ISDIR(status.st_mode)) return std::nullopt;
  entry.directory = name;
  return entry;
}

// A regular file and nothing else is opened: the mere opening of a device can do something.
// OTHER, when given, becomes true if there is something else of that name.
base::Result<base::Fd> OpenRegular(int directory, const std::string& name, int flags, bool* other = nullptr) {
  const base::Fd place(::openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!place) return base::FailErrno("can not find " + name);
  struct stat status {};
  if (::fstat(place.get(), &status) != 0) return base::FailErrno("can not examine " + name);
  if (!S_ISREG(status.st_mode)) {
    if (other != nullptr) *other = true;
    return base::Fail(name + " is not a regular file");
  }
  const std::string reopened = "/proc/self/fd/" + std::to_string(place.get());
  const int common = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int fd = ::open(reopened.c_str(), common | O_NOATIME);
  if (fd < 0 && errno == EPERM) fd = ::open(reopened.c_str(), common);  // only the owner may leave the time alone
  if (fd < 0) return base::FailErrno("can not open " + name);
  return base::Fd(fd);
}

// Names of possible regions, the newest first; nothing when the directory can not be listed.
std::optional<std::vector<std::string>> Candidates(int directory) {
  std::vector<std::pair<WallTime, std::string>> found;
  const bool listed = ForEachName(directory, kMostFiles, [&](const std::string& name) {
    struct stat status {};
    if (found.size() >= kMostCaches || !IsCacheName(name)) return;
    if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
    found.emplace_back(ToWallTime(status.st_mtim), name);
  });
  if (!listed) return std::nullopt;
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<std::string> names;
  for (auto& [time, name] : found) names.push_back(std::move(name));
  return names;
}

Problem ProblemOf(region::Status status) {
  switch (status) {
    case region::Status::kOk:
      return Problem::kNone;
    case region::Status::kUnsupported:
      return Problem::kUnsupported;
    case region::Status::kCorrupt:
      return Problem::kCorrupt;
    default:
      return Problem::kUnreadable;
  }
}

}  // namespace

const char* ProblemName(Problem problem) {
  switch (problem) {
    case Problem::kNone:
      return "none";
    case Problem::kNoFile:
      return "no_file";
    case Problem::kUnsupported:
      return "unsupported";
    case Problem::kCorrupt:
      return "corrupt";
    case Problem::kUnreadable:
      break;
  }
  return "unreadable";
}

base::Result<std::vector<Entry>> Folder::List() {
  fd_ = base::Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_ && errno == ENOENT && ::access(hook_path_.c_str(), F_OK) == 0) return std::vector<Entry>{};
  if (!fd_) return base::FailErrno("can not open " + path_);
  std::vector<Entry> entries;
  trash_.clear();
  const bool listed = ForEachName(fd_.get(), kMostEntries, [&](const std::string& name) {
    if (name.starts_with(base::kTrashPrefix)) trash_.push_back(name);
    if (auto entry = Examine(fd_.get(), name)) entries.push_back(*std::move(entry));
  });
  if (!listed) return base::FailErrno("can not list " + path_);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

Reading Folder::ReadFile(int directory, const std::string& name) const {
  Reading reading;
  reading.file = name;
  bool other = false;
  const auto file = OpenRegular(directory, name, O_RDONLY, &other);
  reading.problem = other ? Problem::kCorrupt : Problem::kUnreadable;
  struct stat status {};
  if (!file || ::fstat(file->get(), &status) != 0) return reading;
  reading.inode = status.st_ino;
  reading.written = ToWallTime(status.st_mtim);
  reading.problem = ProblemOf(region::ReadSnapshot(file->get(), true, snapshot_.get()));
  if (reading.problem == Problem::kNone) reading.region = Summarise(*snapshot_);
  return reading;
}

Reading Folder::Read(const Entry& entry) {
  Reading first;
  if (entry.directory.empty()) return first;
  const base::Fd directory(::openat(fd_.get(), entry.directory.c_str(), kDirectoryFlags));
  if (!directory && errno == ENOENT) return first;
  const auto names = directory ? Candidates(directory.get()) : std::nullopt;
  if (!names) {
    first.problem = Problem::kUnreadable;
    return first;
  }
  for (const std::string& name : *names) {
    Reading reading = ReadFile(directory.get(), name);
    if (reading.problem == Problem::kNone) return reading;
    if (first.file.empty()) first = std::move(reading);
  }
  return first;
}

base::Result<base::Fd> Folder::OpenForWriting(const Entry& entry, const Reading& reading) const {
  const base::Fd directory(::openat(fd_.get(), entry.directory.c_str(), kDirectoryFlags));
  if (!directory) return base::FailErrno("can not open " + entry.name);
  auto file = OpenRegular(directory.get(), reading.file, O_RDWR);
  if (!file) return file;
  struct stat status {};
  if (::fstat(file->get(), &status) != 0 || status.st_ino != reading.inode) {
    return base::Fail(entry.name + "/" + reading.file + " was replaced");
  }
  return file;
}

base::Status Folder::Remove(const Entry& entry) {
  if (entry.is_link) {
    if (::unlinkat(fd_.get(), entry.name.c_str(), 0) != 0)
      return base::FailErrno("can not remove the link " + entry.name);
    return {};
  }
  struct stat status {};
  if (::fstatat(fd_.get(), entry.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return base::FailErrno("can not examine " + entry.name);
  if (status.st_ino != entry.inode || ToWallTime(status.st_ctim) != entry.changed)
    return base::Fail(entry.name + " changed meanwhile");
  auto trash = base::MoveToTrash(fd_.get(), entry.name);
  if (!trash) return tl::unexpected(std::move(trash).error());
  if (!trash->empty()) trash_.push_back(*std::move(trash));
  return {};
}

bool Folder::EmptyTrash(int most_files) {
  static_cast<void>(base::EmptyTrash(fd_.get(), trash_, most_files));
  return trash_.empty();
}

}  // namespace hami::monitor
