// SPDX-License-Identifier: Apache-2.0
//
// Is what a pod's annotations say a grant of hami-scheduler's? A pod writes its own annotations, so that they say so is
// no proof. Proof is a seal that only the scheduler can make, or the node's lock, which no tenant can write. Without
// either, where no key is configured, a pod must look as the scheduler leaves it: its scheduler's name, the time of its
// binding. And whatever is not sealed must be no more than the pod asks for and than its cards have left. Pure.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/vendors/nvidia.h"
#include "plugin/inventory.h"
#include "plugin/pod_view.h"
#include "plugin/record.h"

namespace hami::plugin {

// By whom a pod may have been placed.
struct OriginRules {
  std::vector<std::string> schedulers;  // spec.schedulerName, or patterns of it
  bool keyed = false;                   // grants are sealed
  // Whether POD's claims are sealed for its node; only asked when there are keys.
  std::function<bool(const PodView& pod)> sealed;
  // The seal of POD if it claimed CLAIMS. Without it what is written on a pod is not sealed anew.
  std::function<std::string(const PodView& pod, const device::StringMap& claims)> seal;
};

// CHANGES to POD's annotations, sealed anew where they change what is sealed.
device::StringMap WithSeal(const PodView& pod, device::StringMap changes, const OriginRules& rules);

// What a judgement goes by.
struct OriginInput {
  const OriginRules* rules = nullptr;
  const Cards* cards = nullptr;
  const std::vector<PodPtr>* pods = nullptr;  // of this node, whose records count
  const Records* records = nullptr;
  std::int64_t now = 0;  // unix seconds
};

// How a pod's requests are read: as the scheduler reads them.
device::NvidiaVendor VendorOf(const NodeSettings& settings);

// How many devices each container of POD asks for.
std::vector<int> CountsOf(const PodView& pod, const device::NvidiaVendor& vendor);

// Why what POD's annotations say is not to be given, as a sentence about it; empty: the scheduler gave it.
std::string Distrust(const PodView& pod, bool owns_lock, const OriginInput& input);

// HAMi's scheduler writes no row for a container that asks for nothing, so that rows stand at the places of others.
// POD with its rows where its own requests say; nothing when they are there already, or when it cannot be told.
std::optional<PodView> PutInPlace(const PodView& pod, const device::NvidiaVendor& vendor);

}  // namespace hami::plugin
