// SPDX-License-Identifier: Apache-2.0
//
// `hami set`: new limits for a share that is running. Owns the rule of what may be granted: as `hami run`, a change
// never sells more memory or cores of a GPU than it has, unless the share may oversubscribe; to take less is always
// possible. Nothing is changed when a part of the request does not fit, or when nobody can tell what another share
// holds. Refuses to guess what a percentage is of when the size of the GPU is not known.

#pragma once

#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "cli/plan.h"
#include "cli/share.h"

namespace hami::cli {

// The record with the change made. `devices` has the GPUs of its grants (total_bytes 0 = not known); `others` are all
// other shares.
base::Result<ShareRecord> PlanChange(const ShareRecord& record, const SetOptions& change,
                                     const std::vector<Device>& devices, const std::vector<Holder>& others);

}  // namespace hami::cli
