// SPDX-License-Identifier: Apache-2.0
//
// A file that is read anew when it changes, be it written in place, renamed over, or behind a symbolic link that is
// swapped, as kubelet updates a mounted Secret.

#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace hami::base {

// Another text whenever what PATH leads to is another file or was changed; also for a file that is not there.
std::string FileStamp(const std::string& path);

class WatchedFile {
 public:
  // A file of more than MOST_BYTES is an error.
  WatchedFile(std::string path, std::size_t most_bytes) : path_(std::move(path)), most_bytes_(most_bytes) {}

  // The file's text when it is another file than at the last call, and the first time; else nothing. A file that
  // cannot be read is an error each time, until it can.
  Result<std::optional<std::string>> Look();

 private:
  std::string path_;
  std::size_t most_bytes_;
  std::string stamp_;
};

}  // namespace hami::base
