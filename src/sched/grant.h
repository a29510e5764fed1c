// SPDX-License-Identifier: Apache-2.0
//
// From chosen cards to what is charged and what is written on the pod.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sched/evaluate.h"

namespace hami::sched {

// For every vendor that the pod asks, a row per container: an empty one where the container has none of its cards.
device::Allocation MakeAllocation(const Node& node, const Plan& plan, const device::Vendors& vendors,
                                  const Placement& placement);

// The merge patch. A MIG annotation of an earlier decision is removed when this one has no instances.
std::vector<std::pair<std::string, std::optional<std::string>>> MakeAnnotations(const device::Pod& pod,
                                                                                const Node& node, const Plan& plan,
                                                                                const device::Allocation& allocation,
                                                                                const device::Vendors& vendors,
                                                                                device::UnixSeconds now);

}  // namespace hami::sched
