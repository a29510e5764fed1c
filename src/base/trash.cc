// SPDX-License-Identifier: Apache-2.0

#include "base/trash.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "base/fd.h"

namespace hami::base {
namespace {

constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

using Stream = std::unique_ptr<DIR, int (*)(DIR*)>;

Stream OpenStream(int parent, const char* name) {
  Fd fd(::openat(parent, name, kFlags));
  if (!fd) return {nullptr, &::closedir};
  DIR* const stream = ::fdopendir(fd.get());
  if (stream != nullptr) static_cast<void>(fd.Release());
  return {stream, &::closedir};
}

// Calls each(entry) until it says no. True at the end of the directory.
template <typename Each>
bool Walk(DIR* stream, Each each) {
  while (const dirent* const entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (!each(*entry)) return false;
  }
  return true;
}

class Remover {
 public:
  Remover(int top, int& budget) : top_(top), budget_(budget) {}

  // Deletes what is in the top directory.
  bool Empty() {
    const Stream stream = OpenStream(top_, ".");
    return stream && Walk(stream.get(), [&](const dirent& entry) { return Drop(entry.d_name); });
  }
  // Whether anything was deleted or moved since the last call. Without that the next walk finds the same.
  bool TakeProgress() { return std::exchange(progress_, false); }

 private:
  // What can not be removed (a mount, say) is left for another time. False: the budget is used up.
  bool Drop(const char* name) {
    if (budget_-- <= 0) return false;
    if (Unlink(top_, name)) return true;
    if (!Hollow(name)) return false;
    static_cast<void>(Unlink(top_, name));
    return true;
  }

  bool Unlink(int directory, const char* name) {
    return Progress(::unlinkat(directory, name, 0) == 0 || ::unlinkat(directory, name, AT_REMOVEDIR) == 0);
  }
  bool Progress(bool done) {
    progress_ = progress_ || done;
    return done;
  }

  // Empties a directory below the top: files go, directories move up.
  bool Hollow(const char* name) {
    const Stream stream = OpenStream(top_, name);
    if (!stream) return true;
    const int fd = ::dirfd(stream.get());
    return Walk(stream.get(), [&](const dirent& inner) {
      if (budget_-- <= 0) return false;
      if (Unlink(fd, inner.d_name)) return true;
      // By its inode, which nobody else's is. Where a tenant took that name too, that directory goes first.
      const std::string up = ".up-" + std::to_string(inner.d_ino);
      static_cast<void>(Progress(::renameat(fd, inner.d_name, top_, up.c_str()) == 0));
      return true;
    });
  }

  const int top_;
  int& budget_;
  bool progress_ = false;
};

}  // namespace

Result<std::string> MoveToTrash(int parent, const std::string& name) {
  struct stat status {};
  if (::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::string();
    return FailErrno("can not examine " + name);
  }
  // By its inode, which no other trash has for as long as this one is there.
  const std::string trash = std::string(kTrashPrefix) + std::to_string(status.st_ino);
  const int done = S_ISDIR(status.st_mode) ? ::renameat(parent, name.c_str(), parent, trash.c_str())
                                           : ::unlinkat(parent, name.c_str(), 0);
  if (done != 0 && errno != ENOENT) return FailErrno("can not remove " + name);
  return S_ISDIR(status.st_mode) ? trash : std::string();
}

std::vector<std::string> FindTrash(int parent) {
  std::vector<std::string> names;
  const Stream stream = OpenStream(parent, ".");
  if (stream) {
    Walk(stream.get(), [&](const dirent& entry) {
      if (std::string_view(entry.d_name).starts_with(kTrashPrefix)) names.emplace_back(entry.d_name);
      return true;
    });
  }
  return names;
}

bool RemoveTree(int parent, const std::string& name, int& budget) {
  const Fd top(::openat(parent, name.c_str(), kFlags));
  if (!top) return errno == ENOENT || ::unlinkat(parent, name.c_str(), 0) == 0;
  // What was moved up while the directory was walked may not show in that walk.
  Remover remover(top.get(), budget);
  while (remover.Empty()) {
    if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
    if (errno != ENOTEMPTY && errno != EEXIST) return false;
    if (budget <= 0 || !remover.TakeProgress()) return false;
  }
  return false;
}

bool EmptyTrash(int parent, std::vector<std::string>& names, int most) {
  // Each gets its part, so that one which can not be removed does not keep the others.
  const int share = names.empty() ? 0 : std::max(1, most / static_cast<int>(names.size()));
  bool more = false;
  std::erase_if(names, [&](const std::string& name) {
    int budget = std::min(share, most);
    most -= budget;
    const bool gone = budget > 0 && RemoveTree(parent, name, budget);
    more = more || (!gone && budget <= 0);
    return gone;
  });
  return more;
}

}  // namespace hami::base
