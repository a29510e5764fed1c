// SPDX-License-Identifier: Apache-2.0
//
// The slots as the kubelet is told of them. Pure.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugin/inventory.h"

namespace hami::plugin {

struct SlotState {
  std::string id;
  bool healthy = true;
  std::optional<int> numa_node;
  bool operator==(const SlotState&) const = default;
};

// Every slot of every card, in the order of the cards; none before the driver was read.
std::vector<SlotState> ListSlots(const Cards& cards);

// "nvidia-gpu.sock" for "nvidia.com/gpu".
std::string SocketName(const std::string& resource_name);

}  // namespace hami::plugin
