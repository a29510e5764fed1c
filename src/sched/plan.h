// SPDX-License-Identifier: Apache-2.0
//
// What a pod asks, worked out once and then put to every node: requests per container, the rules of its annotations,
// its policies. Two pods with the same shape get the same answer from the same node; that is what decisions are cached
// by.

#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "device/lists.h"
#include "device/vendor.h"
#include "sched/accounting.h"
#include "sched/host_books.h"
#include "sched/policy.h"

namespace hami::sched {

struct PolicyDefaults {
  std::string node = "binpack";
  std::string device = "spread";
};

struct Ask {
  int vendor = 0;  // position in the list of vendors
  device::Request request;
};

struct ContainerPlan {
  Role role = Role::kApp;
  std::vector<Ask> asks;
};

struct Plan {
  std::vector<ContainerPlan> containers;  // init first
  std::vector<device::CardRules> rules;   // one per vendor
  std::vector<device::Marks> marks;       // one per vendor
  std::vector<DevicePolicy> policies;     // one per vendor: NUMA binding changes the order
  bool spread_nodes = false;
  bool fragment_nodes = false;  // by what the placement costs, not by how full the node is
  HostAmounts host;             // what the pod requests of its node beside devices
  device::ScoringWeights weights;
  std::string shape;

  // Whether some container asks for VENDOR, or for anything.
  bool Asks(int vendor) const;
  // Whether nodes or cards are chosen by fragmentation.
  bool Fragments() const;
  bool empty() const;
};

// What the containers ask, init first. Errors: an amount that cannot be taken.
base::Result<std::vector<ContainerPlan>> PlanContainers(const device::Pod& pod, const device::Vendors& vendors);

// Errors: the same, or scoring weights that are not understood.
base::Result<Plan> MakePlan(const device::Pod& pod, const device::Vendors& vendors, const PolicyDefaults& defaults);

}  // namespace hami::sched
