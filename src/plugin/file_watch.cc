// SPDX-License-Identifier: Apache-2.0

#include "plugin/file_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/strings.h"

namespace hami::plugin {

FileWatch::FileWatch(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::size_t slash = file.rfind('/');
    if (!file.empty()) folders_.push_back(slash == std::string::npos ? "." : file.substr(0, slash + 1));
  }
  Watch();
}

// Again and again: a folder that is there already is not watched twice, and one that was replaced is found.
void FileWatch::Watch() {
  constexpr std::uint32_t kEvents =
      IN_CREATE | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
  trouble_.clear();
  if (!notify_) notify_ = base::Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!notify_) {
    trouble_ = base::Concat({"inotify: ", std::strerror(errno), " (fs.inotify.max_user_instances, or ulimit -n)"});
    return;
  }
  for (const std::string& folder : folders_) {
    // A folder that is not there is no trouble: it may come.
    if (::inotify_add_watch(notify_.get(), folder.c_str(), kEvents) >= 0 || errno == ENOENT || errno == ENOTDIR)
      continue;
    trouble_ = base::Concat({"inotify of ", folder, ": ", std::strerror(errno), " (fs.inotify.max_user_watches)"});
  }
}

bool FileWatch::Wait(net::Duration span, int stop) {
  Watch();
  std::array<pollfd, 2> sources = {pollfd{stop, POLLIN, 0}, pollfd{notify_.get(), POLLIN, 0}};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(span).count();
  ::poll(sources.data(), sources.size(), static_cast<int>(ms) + 1);
  bool news = false;
  std::array<char, 4096> buffer;  // what happened is of no interest
  while (notify_ && ::read(notify_.get(), buffer.data(), buffer.size()) > 0) news = true;
  return news;
}

}  // namespace hami::plugin
