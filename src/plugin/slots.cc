// SPDX-License-Identifier: Apache-2.0

#include "plugin/slots.h"

#include <algorithm>

#include "base/strings.h"

namespace hami::plugin {

std::string SlotId(std::string_view uuid, int number) { return base::Concat({uuid, "-", std::to_string(number)}); }

std::string_view CardOfSlot(std::string_view slot) {
  if (const std::size_t replica = slot.find("::"); replica != std::string_view::npos) return slot.substr(0, replica);
  constexpr auto kDashes = 6;  // five inside a uuid with its prefix, one before the number
  if (std::count(slot.begin(), slot.end(), '-') != kDashes) return slot;
  const std::size_t last = slot.rfind('-');
  return base::ParseNumber(slot.substr(last + 1)) ? slot.substr(0, last) : slot;
}

std::vector<std::string> Sorted(std::vector<std::string> slots) {
  std::sort(slots.begin(), slots.end());
  return slots;
}

std::vector<std::string> CardsOfSlots(const std::vector<std::string>& slots) {
  std::vector<std::string> cards;
  cards.reserve(slots.size());
  for (const std::string& slot : slots) cards.emplace_back(CardOfSlot(slot));
  return Sorted(std::move(cards));
}

bool Overlap(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const std::string& slot) { return std::binary_search(b.begin(), b.end(), slot); });
}

}  // namespace hami::plugin
