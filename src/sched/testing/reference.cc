// SPDX-License-Identifier: Apache-2.0

#include "sched/testing/reference.h"

#include <algorithm>
#include <vector>

namespace hami::sched {
namespace {

struct Wish {
  int count = 0;
  long memory = 0;  // 0: the whole card
  int cores = 0;
  bool pack_nodes = true;  // the default of the flags
  bool pack_cards = false;
};

std::optional<Wish> Understand(const device::Pod& pod) {
  if (!pod.init_containers.empty() || pod.containers.size() != 1 || pod.ns == "limited") return std::nullopt;
  Wish wish;
  for (const auto& [key, value] : pod.annotations) {
    const bool pack = value == "binpack";
    if (key == "hami.io/node-scheduler-policy") {
      wish.pack_nodes = pack;
    } else if (key == "hami.io/gpu-scheduler-policy" && (pack || value == "spread")) {
      wish.pack_cards = pack;
    } else {
      return std::nullopt;
    }
  }
  for (const auto& [key, value] : pod.containers[0].limits) {
    const int number = std::stoi(value);
    if (key == "nvidia.com/gpu") wish.count = number;
    if (key == "nvidia.com/gpumem") wish.memory = number;
    if (key == "nvidia.com/gpucores") wish.cores = number;
    if (key == "nvidia.com/gpumem-percentage") return std::nullopt;
  }
  if (wish.count == 0) return std::nullopt;
  return wish;
}

float ThreeParts(long a, long all_a, long b, long all_b, long c, long all_c) {
  if (all_a == 0 || all_b == 0 || all_c == 0) return 0;
  return 10.0F *
         (static_cast<float>(a) / static_cast<float>(all_a) + static_cast<float>(b) / static_cast<float>(all_b) +
          static_cast<float>(c) / static_cast<float>(all_c));
}

float NodeScoreOf(const Node& node) {
  long sums[6] = {};
  for (std::size_t i = 0; i < node.devices().size(); ++i) {
    sums[0] += node.used()[i].slots;
    sums[1] += node.devices()[i].count;
    sums[2] += node.used()[i].cores;
    sums[3] += node.devices()[i].cores;
    sums[4] += node.used()[i].memory;
    sums[5] += node.devices()[i].memory;
  }
  return ThreeParts(sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]);
}

bool CardFits(const Node& node, std::size_t i, const Wish& wish) {
  const device::Device& card = node.devices()[i];
  const device::CardState& used = node.used()[i];
  const long memory = wish.memory == 0 ? card.memory : wish.memory;
  if (!node.usable(i) || card.cordoned || used.slots >= card.count) return false;
  if (used.memory + memory > card.memory || used.cores + wish.cores > card.cores) return false;
  if (wish.cores == 100 && used.slots > 0) return false;
  return wish.cores > 0 || used.cores < card.cores;
}

// The cards to take, best first; empty when the node does not fit.
std::vector<std::size_t> CardsOf(const Node& node, const Wish& wish) {
  std::vector<std::size_t> cards;
  for (std::size_t i = 0; i < node.devices().size(); ++i) {
    if (CardFits(node, i, wish)) cards.push_back(i);
  }
  const auto score = [&](std::size_t i) {
    const device::Device& card = node.devices()[i];
    const device::CardState& used = node.used()[i];
    return ThreeParts(used.slots, card.count, used.cores, card.cores, used.memory, card.memory);
  };
  std::sort(cards.begin(), cards.end(), [&](std::size_t a, std::size_t b) {
    if (score(a) != score(b)) return wish.pack_cards ? score(a) > score(b) : score(a) < score(b);
    if (node.devices()[a].numa != node.devices()[b].numa) return node.devices()[a].numa > node.devices()[b].numa;
    return a > b;
  });
  if (cards.size() < static_cast<std::size_t>(wish.count)) return {};
  cards.resize(static_cast<std::size_t>(wish.count));
  return cards;
}

}  // namespace

std::optional<ReferenceAnswer> AskReference(const Ledger& ledger, const device::Pod& pod,
                                            std::span<const std::string_view> names) {
  const std::optional<Wish> wish = Understand(pod);
  if (!wish) return std::nullopt;
  ReferenceAnswer answer;
  float best = 0;
  for (const std::string_view name : names) {
    const NodeId id = ledger.Find(name);
    if (id == kNoNode) continue;
    const Node& node = ledger.node(id);
    for (const device::Device& card : node.devices()) {
      if (card.IsMig()) return std::nullopt;
    }
    const std::vector<std::size_t> cards = CardsOf(node, *wish);
    if (cards.empty()) continue;
    const float score = NodeScoreOf(node);
    const bool better = score == best ? name < answer.node : (wish->pack_nodes ? score > best : score < best);
    if (!answer.node.empty() && !better) continue;
    best = score;
    answer.node = std::string(name);
    answer.allocated.clear();
    for (const std::size_t card : cards) {
      const device::Device& device = node.devices()[card];
      const long memory = wish->memory == 0 ? device.memory : wish->memory;
      answer.allocated += device.uuid + ",NVIDIA," + std::to_string(memory) + "," + std::to_string(wish->cores) + ":";
    }
    answer.allocated += ";";
  }
  return answer;
}

}  // namespace hami::sched
