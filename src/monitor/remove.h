// SPDX-License-Identifier: Apache-2.0
//
// Deletes a directory that a tenant could fill: links are removed and not followed, the depth of the tree costs neither
// stack nor descriptors (what lies deeper is moved up first), and one call does no more than it is allowed to.

#pragma once

#include <string>

namespace hami::monitor {

// Deletes NAME in PARENT. BUDGET is what may be deleted or moved; what was used is taken off. False when something is
// left: call again.
bool RemoveTree(int parent, const std::string& name, int& budget);

}  // namespace hami::monitor
