// SPDX-License-Identifier: Apache-2.0
//
// A guest's look at the promise itself, at every moment at which it could be broken: each time the simulated driver's
// books grow in this process, while they stand still, the region's sum must not be less. A watcher that takes samples
// sees a gap only when it is lucky; this sees each one, however short, whether or not the container is full.
#pragma once

#include <cstdint>

#include "test/stress/board.h"

namespace stress {

// Once the region exists. `region` is its path.
void BeginAudit(const char* region, const Board* board);
// By how much the driver's books exceeded the count at worst, in this thread, since the last call; 0 = never.
uint64_t TakeShortfall();

}  // namespace stress
