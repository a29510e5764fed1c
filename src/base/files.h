// SPDX-License-Identifier: Apache-2.0
//
// Files that others read while we write them: replaced as a whole, or not at all.

#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hami::base {

// PATH has CONTENT and MODE, on disk, when this returns well; whoever reads it meanwhile sees the old file or the new
// one. The folder must exist.
Status ReplaceFile(const std::string& path, std::string_view content, unsigned mode);

// PATH becomes a symbolic link to TARGET, whatever file it was before.
Status ReplaceLink(const std::string& path, const std::string& target);

// FOLDER and its parents, with MODE where they are made.
Status MakeFolders(const std::string& folder, unsigned mode);

}  // namespace hami::base
