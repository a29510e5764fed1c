// SPDX-License-Identifier: Apache-2.0
//
// What mode mig does to the GPUs of a node: MIG is on while it is in force and off when it has been left. Excluded GPUs
// and those without MIG are left as they are. Refuses to switch MIG off while instances are there that are not ours.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "plugin/mig_driver.h"
#include "plugin/node_config.h"

namespace hami::plugin {

// Both are idempotent. An error names the first GPU of which it could not be done; the others are done.
base::Status EnterMig(NvmlMigDriver& driver, const Exclusion& excluded);
base::Status LeaveMig(NvmlMigDriver& driver, MigKeeper& keeper, const Exclusion& excluded);

// What uses the GPUs besides pods: processes other than OWN_PROCESSES, and instances that are not ours.
std::vector<std::string> UsersOf(NvmlMigDriver& driver, const MigEntries& own, const std::set<int>& own_processes,
                                 const Exclusion& excluded);

}  // namespace hami::plugin
