// SPDX-License-Identifier: Apache-2.0

#include "plugin/device_list.h"

#include "plugin/slots.h"

namespace hami::plugin {

std::vector<SlotState> ListSlots(const Cards& cards) {
  std::vector<SlotState> slots;
  for (const Card& card : cards.cards) {
    for (int i = 0; i < card.slots; ++i) {
      slots.push_back(
          {SlotId(card.uuid, i), card.healthy, cards.settings.numa_topology ? card.numa_node : std::nullopt});
    }
  }
  return slots;
}

std::string SocketName(const std::string& resource_name) {
  return "nvidia-" + resource_name.substr(resource_name.rfind('/') + 1) + ".sock";
}

}  // namespace hami::plugin
