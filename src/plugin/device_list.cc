// SPDX-License-Identifier: Apache-2.0

#include "plugin/device_list.h"

#include "plugin/mig_static.h"
#include "plugin/slots.h"

namespace hami::plugin {

std::vector<SlotState> ListSlots(const Cards& cards) {
  std::vector<SlotState> slots;
  for (const Card& card : cards.cards) {
    const bool tells_numa = card.part || cards.settings.numa_topology;
    for (int i = 0; i < card.slots; ++i) {
      slots.push_back(
          {card.part ? card.uuid : SlotId(card.uuid, i), card.healthy, tells_numa ? card.numa_node : std::nullopt});
    }
  }
  return slots;
}

std::vector<SlotState> ListParts(const Cards& cards, std::string_view resource) {
  std::vector<SlotState> slots;
  for (const Card& card : cards.parts) {
    if (MigResource(card.part->profile) == resource) slots.push_back({card.uuid, card.healthy, card.numa_node});
  }
  return slots;
}

std::string SocketName(const std::string& resource_name) {
  return "nvidia-" + resource_name.substr(resource_name.rfind('/') + 1) + ".sock";
}

}  // namespace hami::plugin
