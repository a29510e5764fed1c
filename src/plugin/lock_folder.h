// SPDX-License-Identifier: Apache-2.0
//
// The folder of the lock that HAMi-core's processes take turns with, of one node's containers together. It lies in
// /tmp, where anybody can be first to make it, and every container gets it to write to: so it is used only where it is
// a folder of root's, or of ours, and no link to something else.

#pragma once

#include <string>

#include "base/result.h"

namespace hami::plugin {

inline constexpr const char* kLockFolder = "/tmp/vgpulock";  // HAMi-core's; the name is part of the protocol

// PATH is there, and open to every user.
// Whether FOLDER is a mount of a folder that was removed since.
bool IsRemoved(const std::string& folder);

base::Status MakeLockFolder(const std::string& path);

}  // namespace hami::plugin
