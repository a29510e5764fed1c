// SPDX-License-Identifier: Apache-2.0
//
// `hami set`: new limits for a share that is running. Owns the rule of what may be granted: as `hami run`, a change
// never sells more memory or cores of a GPU than it has, unless the share may oversubscribe. Nothing is changed when a
// part of the request does not fit. Refuses to guess what a percentage is of when the size of the GPU is not known.

#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "cli/plan.h"
#include "cli/share.h"

namespace hami::cli {

// The record with the change made. `totals` are the sizes of the GPUs of its grants, 0 = not known; `others` are all
// other shares.
base::Result<ShareRecord> PlanChange(const ShareRecord& record, const SetOptions& change,
                                     const std::vector<std::uint64_t>& totals, const std::vector<Holder>& others);

}  // namespace hami::cli
