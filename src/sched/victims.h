// SPDX-License-Identifier: Apache-2.0
//
// Which pods would have to go so that another fits: of a node's pods of lower priority those of the lowest priorities
// that do, and of these as few as can be found. Changes nothing; whoever calls has them evicted.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/evaluate.h"
#include "sched/ledger.h"

namespace hami::sched {

// The pod that finds no room, as a decision asks for it.
struct Preemptor {
  const Plan& plan;
  std::span<const QuotaRoom> room;
  const FragmentView* fragments = nullptr;
  std::int32_t priority = 0;
};

struct Victims {
  std::string node;
  std::vector<const PodRecord*> pods;  // of the ledger, until it changes
  device::Allocation allocation;       // what the pod would get
};

// True: that pod stays.
using Spared = std::function<bool(std::string_view uid)>;

// On one node. GONE: pods that will go in any case. Nothing: the pod does not fit whoever goes.
std::optional<Victims> FewestVictims(const Ledger& ledger, NodeId id, const device::Vendors& vendors,
                                     const Preemptor& preemptor, std::span<const PodRecord* const> gone,
                                     const Spared& spared);

// As kube-scheduler prefers: a lower highest priority, fewer pods, a lower sum of priorities; then the smaller name.
bool CostsLess(const Victims& a, const Victims& b);

}  // namespace hami::sched
