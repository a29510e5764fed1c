// SPDX-License-Identifier: Apache-2.0
//
// Deletes directories that a tenant could fill. What goes disappears at once, by a rename to a name that is nobody's;
// it is emptied later and in portions, so that nobody waits for it. Links are removed and not followed, the depth of
// the tree costs neither stack nor descriptors (what lies deeper is moved up first). The name is all that is kept of
// it: what a process that died left behind, the next one finds.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hami::base {

// What a directory on its way out is called, beside where it was.
inline constexpr std::string_view kTrashPrefix = ".removed-";

// NAME in PARENT is there no more: a directory became trash, of the name returned; whatever else it was is deleted.
// Absent is fine.
Result<std::string> MoveToTrash(int parent, const std::string& name);
// The trash in PARENT, whoever left it there.
std::vector<std::string> FindTrash(int parent);

// Deletes NAME in PARENT. BUDGET is what may be deleted or moved; what was used is taken off. False when something is
// left: call again, or, if there is budget left, it can not be removed.
bool RemoveTree(int parent, const std::string& name, int& budget);

// Deletes the directories NAMES in PARENT, at most MOST files per call, and takes those off the list that are gone.
// True when another call would delete more; what is left else can not be removed.
bool EmptyTrash(int parent, std::vector<std::string>& names, int most);

}  // namespace hami::base
