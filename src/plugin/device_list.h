// SPDX-License-Identifier: Apache-2.0
//
// The slots as the kubelet is told of them. Pure.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/inventory.h"

namespace hami::plugin {

struct SlotState {
  std::string id;
  bool healthy = true;
  std::optional<int> numa_node;
  bool operator==(const SlotState&) const = default;
};

// Every slot of every card, in the order of the cards; none before the driver was read. A MIG device that was there
// before is one slot, by its own name, and says its NUMA node always.
std::vector<SlotState> ListSlots(const Cards& cards);

// The slots of RESOURCE alone, one that counts MIG devices of a profile.
std::vector<SlotState> ListParts(const Cards& cards, std::string_view resource);

// "nvidia-gpu.sock" for "nvidia.com/gpu".
std::string SocketName(const std::string& resource_name);

}  // namespace hami::plugin
