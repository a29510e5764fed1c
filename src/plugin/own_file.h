// SPDX-License-Identifier: Apache-2.0
//
// A file that an earlier life of the plugin may have left. Refuses to take one that cannot be read for one that is not
// there: what it says would be forgotten.

#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace hami::plugin {

// Nothing: there is none. A symbolic link is an error.
base::Result<std::optional<std::string>> ReadOwnFile(const std::string& path, std::size_t most_bytes);

}  // namespace hami::plugin
