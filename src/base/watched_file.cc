// SPDX-License-Identifier: Apache-2.0

#include "base/watched_file.h"

#include <sys/stat.h>

#include "base/fd.h"

namespace hami::base {

std::string FileStamp(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) status = {};
  std::string stamp;
  for (const auto part : {static_cast<long long>(status.st_dev), static_cast<long long>(status.st_ino),
                          static_cast<long long>(status.st_size), static_cast<long long>(status.st_mtim.tv_sec),
                          static_cast<long long>(status.st_mtim.tv_nsec), static_cast<long long>(status.st_ctim.tv_sec),
                          static_cast<long long>(status.st_ctim.tv_nsec)}) {
    stamp += std::to_string(part) + " ";
  }
  return stamp;
}

Result<std::optional<std::string>> WatchedFile::Look() {
  // Before the text: what is written meanwhile is read at the next look.
  std::string stamp = FileStamp(path_);
  if (stamp == stamp_) return std::optional<std::string>();
  auto text = ReadLinkedFile(path_, most_bytes_);
  if (!text) return tl::unexpected(text.error());
  stamp_ = std::move(stamp);
  return std::optional<std::string>(*std::move(text));
}

}  // namespace hami::base
