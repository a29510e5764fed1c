// SPDX-License-Identifier: Apache-2.0

#include "monitor/remove.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "base/fd.h"

namespace hami::monitor {
namespace {

constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

using Stream = std::unique_ptr<DIR, int (*)(DIR*)>;

Stream OpenStream(int parent, const char* name) {
  base::Fd fd(::openat(parent, name, kFlags));
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

 private:
  // What can not be removed (a mount, say) is left for another time. False: the budget is used up.
  bool Drop(const char* name) {
    if (budget_-- <= 0) return false;
    if (::unlinkat(top_, name, 0) == 0 || ::unlinkat(top_, name, AT_REMOVEDIR) == 0) return true;
    if (!Hollow(name)) return false;
    static_cast<void>(::unlinkat(top_, name, AT_REMOVEDIR));
    return true;
  }

  // Empties a directory below the top: files go, directories move up.
  bool Hollow(const char* name) {
    const Stream stream = OpenStream(top_, name);
    if (!stream) return true;
    const int fd = ::dirfd(stream.get());
    return Walk(stream.get(), [&](const dirent& inner) {
      if (budget_-- <= 0) return false;
      if (::unlinkat(fd, inner.d_name, 0) == 0 || ::unlinkat(fd, inner.d_name, AT_REMOVEDIR) == 0) return true;
      // By its inode, which nobody else's is. Where a tenant took that name too, that directory goes first.
      const std::string up = ".up-" + std::to_string(inner.d_ino);
      static_cast<void>(::renameat(fd, inner.d_name, top_, up.c_str()));
      return true;
    });
  }

  const int top_;
  int& budget_;
};

}  // namespace

bool RemoveTree(int parent, const std::string& name, int& budget) {
  const base::Fd top(::openat(parent, name.c_str(), kFlags));
  if (!top) return errno == ENOENT || ::unlinkat(parent, name.c_str(), 0) == 0;
  // What was moved up while the directory was walked may not show in that walk.
  while (Remover(top.get(), budget).Empty()) {
    if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0) return true;
    if (errno != ENOTEMPTY && errno != EEXIST) return false;
    if (budget <= 0) return false;
  }
  return false;
}

}  // namespace hami::monitor
