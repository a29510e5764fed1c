// SPDX-License-Identifier: Apache-2.0

#include "sched/policy.h"

#include <algorithm>
#include <string>

#include "base/strings.h"

namespace hami::sched {
namespace {

// `binpack,numa`: keys in the order written; words that are no key are passed over.
DevicePolicy ParseChain(std::string_view policy, bool numa_bind) {
  DevicePolicy out;
  if (numa_bind) out.keys.push_back(SortKey::kNumaUp);
  const std::size_t forced = out.keys.size();
  for (const std::string& part : base::Split(policy, ',')) {
    const std::string_view word = base::Trim(part);
    if (word == "binpack") out.keys.push_back(SortKey::kScoreUp);
    if (word == "spread") out.keys.push_back(SortKey::kScoreDown);
    if (word == "numa") out.keys.push_back(SortKey::kNumaUp);
  }
  if (out.keys.size() == forced) out.keys.push_back(SortKey::kScoreDown);
  out.keys.push_back(SortKey::kIndexUp);
  return out;
}

// < 0: A sorts before B.
int Compare(SortKey key, const CardRank& a, const CardRank& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : (y < x ? 1 : 0); };
  switch (key) {
    case SortKey::kScoreUp:
      return sign(a.score, b.score);
    case SortKey::kScoreDown:
      return sign(b.score, a.score);
    case SortKey::kNumaUp:
      return sign(a.numa, b.numa);
    case SortKey::kNumaDown:
      return sign(b.numa, a.numa);
    case SortKey::kUsedDown:
      return sign(b.used, a.used);
    case SortKey::kIndexUp:
      return sign(a.index, b.index);
    case SortKey::kFreeDown:
      return sign(b.free, a.free);
  }
  return 0;
}

}  // namespace

bool SpreadsNodes(std::string_view policy) { return policy == "spread"; }

bool KnownDevicePolicy(std::string_view policy) {
  if (policy == "mutex" || policy == "topology-aware" || policy == kFragmentation) return true;
  const std::vector<std::string> parts = base::Split(policy, ',');
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    const std::string_view word = base::Trim(part);
    return word == "binpack" || word == "spread" || word == "numa";
  });
}

DevicePolicy ParseDevicePolicy(std::string_view policy, bool numa_bind) {
  if (policy.find(',') != std::string_view::npos || policy == "numa") return ParseChain(policy, numa_bind);
  DevicePolicy out;
  out.mutex = policy == "mutex";
  out.topology = policy == "topology-aware";
  out.fragmentation = policy == kFragmentation;
  if (out.mutex) {
    out.keys = {SortKey::kUsedDown, SortKey::kNumaUp};
  } else if (out.fragmentation) {
    out.keys = {SortKey::kScoreUp, SortKey::kFreeDown, SortKey::kIndexUp};
    if (numa_bind) out.keys.insert(out.keys.begin(), SortKey::kNumaDown);
  } else if (policy == "binpack") {
    out.keys = {SortKey::kScoreUp, SortKey::kNumaUp};
    if (numa_bind) out.keys = {SortKey::kNumaDown, SortKey::kScoreUp};
  } else {
    out.keys = {SortKey::kScoreDown, SortKey::kNumaUp};
    if (numa_bind) out.keys = {SortKey::kNumaUp, SortKey::kScoreDown};
  }
  return out;
}

void OrderCards(std::span<CardRank> cards, const DevicePolicy& policy) {
  const auto before = [&](const CardRank& a, const CardRank& b) {
    for (const SortKey key : policy.keys) {
      if (const int order = Compare(key, a, b); order != 0) return order < 0;
    }
    return false;
  };
  // Insertion sort: stable, without memory of its own, and a node has a handful of cards.
  constexpr std::size_t kFew = 32;
  if (cards.size() > kFew) {
    std::stable_sort(cards.begin(), cards.end(), before);
  } else {
    for (std::size_t i = 1; i < cards.size(); ++i) {
      const CardRank card = cards[i];
      std::size_t j = i;
      for (; j > 0 && before(card, cards[j - 1]); --j) cards[j] = cards[j - 1];
      cards[j] = card;
    }
  }
  std::reverse(cards.begin(), cards.end());
}

}  // namespace hami::sched
