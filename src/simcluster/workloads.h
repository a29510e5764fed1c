// SPDX-License-Identifier: Apache-2.0
//
// Made-up workloads and clusters, by their marginals: how large shares are, how many cards, which models, how much CPU.
// Deterministic by seed. The first cluster has the node types of Alibaba's public trace cluster-trace-gpu-v2023.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simcluster/trace.h"

namespace hami::simcluster {

// A value and how often it comes; the parts need not add up to 1.
using Parts = std::vector<std::pair<int, double>>;

struct Mix {
  std::string name;
  std::string about;
  double without_cards = 0;  // of all pods: ask for CPU alone
  double shares = 0;         // of the others: a part of one card
  Parts share_sizes;         // thousandths
  Parts card_counts;         // whole cards
  double typed = 0;          // of those that ask for at most two cards: name models
  double cpu_per_card = 8;   // the median
  double cpu_spread = 0.5;   // standard deviation of its logarithm
};

const std::vector<Mix>& Mixes();
const Mix* FindMix(std::string_view name);

// 1,204 nodes with 6,182 cards, in an order that SEED chooses.
std::vector<TraceNode> UsualNodes(std::uint64_t seed);
// Pods whose demand is at least DEMAND thousandths of a card, one a second, without an end.
std::vector<TracePod> MakePods(const Mix& mix, std::int64_t demand, std::uint64_t seed);
// PODS come in bursts of BURST of the same kind at once: each is as the first of its burst.
void ComeInBursts(std::vector<TracePod>& pods, std::size_t burst);
// Each of PODS ends after a time of its own, so long that pods which never waited would hold HELD thousandths of a card
// in the mean; exponentially distributed.
void EndInTime(std::vector<TracePod>& pods, std::int64_t held, std::uint64_t seed);

}  // namespace hami::simcluster
