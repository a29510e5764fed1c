// SPDX-License-Identifier: Apache-2.0
//
// Slots: what the kubelet counts. `<GPU uuid>-<i>`, i = 0 … count - 1, are the shares a GPU can be cut into; the
// kubelet picks slots, the scheduler picks GPUs. Owns the form of their names. The kubelet promises no order of the
// slots it names, so sets of them are sorted before they are compared or used as a key.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hami::plugin {

std::string SlotId(std::string_view uuid, int number);

// The card that SLOT belongs to: what is before "::" (a replica of time slicing), or, for a name with exactly six '-'
// and digits after the last, what is before that. Anything else is a card by itself.
std::string_view CardOfSlot(std::string_view slot);

std::vector<std::string> Sorted(std::vector<std::string> slots);

// The cards of SLOTS, sorted, each as often as it has slots there.
std::vector<std::string> CardsOfSlots(const std::vector<std::string>& slots);

// A ∩ B ≠ ∅; both sorted.
bool Overlap(const std::vector<std::string>& a, const std::vector<std::string>& b);

}  // namespace hami::plugin
