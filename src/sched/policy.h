// SPDX-License-Identifier: Apache-2.0
//
// Which node and which card come first. A node policy is one bit: the fullest node or the emptiest. A device policy is
// a list of sort keys, plus the two policies that change what fits. Names that nobody knows mean the default (binpack
// for nodes, spread for cards), as they always did.

#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>
#include <string_view>

namespace hami::sched {

bool SpreadsNodes(std::string_view policy);

// Of nodes and of cards: what is placed costs the least capacity for the pods that usually come
// (sched/fragmentation.h).
inline constexpr std::string_view kFragmentation = "fragmentation";

enum class SortKey : std::uint8_t { kScoreUp, kScoreDown, kNumaUp, kNumaDown, kUsedDown, kIndexUp, kFreeDown };

struct DevicePolicy {
  boost::container::small_vector<SortKey, 4> keys;
  bool mutex = false;
  bool topology = false;
  bool fragmentation = false;  // the score is what the card's use costs
};

// Whether every word of POLICY says something; empty does: the default.
bool KnownDevicePolicy(std::string_view policy);

DevicePolicy ParseDevicePolicy(std::string_view policy, bool numa_bind);

// What the keys look at.
struct CardRank {
  int card = 0;
  double score = 0;
  int numa = 0;
  int used = 0;
  int index = 0;
  double free = 0;  // the free share of the card, where the policy asks for it
};

// Sorts by the keys, equal cards in the order given, and reverses: cards are taken from the end of the sorted list, so
// that what comes first here is tried first.
void OrderCards(std::span<CardRank> cards, const DevicePolicy& policy);

}  // namespace hami::sched
