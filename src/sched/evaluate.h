// SPDX-License-Identifier: Apache-2.0
//
// The answer of one node to one plan: whether the pod fits, at which score, or why not; and, when asked, on which
// cards. Looks at nothing but its arguments. Sidecars are placed first, every init container alone on a fresh copy of
// what they leave, app containers together on another.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/vendor.h"
#include "sched/fragmentation.h"
#include "sched/node.h"
#include "sched/plan.h"
#include "sched/quota.h"

namespace hami::sched {

// The cards of one container for one vendor.
struct Placed {
  int container = 0;
  int vendor = 0;
  device::Picks picks;
};
using Placement = std::vector<Placed>;

struct Verdict {
  bool fits = false;
  float score = 0;
  std::string reason;  // when it does not fit
};

// ROOM: what the namespace's quota leaves, one per vendor; empty when no quota can matter. FRAGMENTS: what the
// fragmentation policy goes by; without it a plan that asks for that policy is scored as under binpack.
Verdict Evaluate(const Node& node, const Plan& plan, const device::Vendors& vendors, std::span<const QuotaRoom> room,
                 const FragmentView* fragments = nullptr, Placement* placement = nullptr);

// 10 × (ws·slots + wc·cores + wm·memory), each as a part of the card's, ASKS of the card's own type included.
float CardScore(const device::Device& device, const device::CardState& used, const ContainerPlan& container,
                const device::Vendors& vendors, const device::ScoringWeights& weights);

}  // namespace hami::sched
