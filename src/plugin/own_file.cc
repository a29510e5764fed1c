// SPDX-License-Identifier: Apache-2.0

#include "plugin/own_file.h"

#include <filesystem>

#include "base/fd.h"
#include "base/strings.h"

namespace hami::plugin {

base::Result<std::optional<std::string>> ReadOwnFile(const std::string& path, std::size_t most_bytes) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    if (!error || error == std::errc::no_such_file_or_directory) return std::nullopt;
    return base::Fail(base::Concat({"cannot read ", path, ": ", error.message()}));
  }
  auto text = base::ReadFile(path, most_bytes);
  if (!text) return tl::unexpected(text.error());
  return *std::move(text);
}

}  // namespace hami::plugin
