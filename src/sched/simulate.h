// SPDX-License-Identifier: Apache-2.0
//
// A question about nodes that need not exist: the cluster autoscaler's. Looks at nothing of the books, so that nobody
// waits for it: thousands of nodes take a tenth of a second.

#pragma once

#include <span>
#include <string>

#include "sched/decision.h"
#include "sched/plan.h"
#include "sched/quota.h"

namespace hami::sched {

// What its cards are read from, and nothing else.
struct SimulatedNode {
  std::string name;
  device::StringMap annotations;
  device::StringMap capacity = {};
  std::string instance_type = {};

  device::NodeFacts facts() const { return {name, annotations, capacity, instance_type}; }
};

// Among NODES as if nothing ran on them; reasons are listed whatever the outcome. ROOM: what the quotas of the pod's
// namespace leave, of every vendor.
Decision Simulate(const device::Pod& pod, std::span<const SimulatedNode> nodes, const device::Vendors& vendors,
                  const PolicyDefaults& defaults, std::span<const QuotaRoom> room);

}  // namespace hami::sched
