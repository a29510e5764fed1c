// SPDX-License-Identifier: Apache-2.0
//
// The table of docs/results/placement.md: how much of 6,182 cards each policy gives away when 130 % is asked for, by
// workload, in the mean of the seeds.
//   placement_bench [--seeds N] [MIX...]

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/strings.h"
#include "simcluster/report.h"
#include "simcluster/workloads.h"

namespace {

using namespace hami::simcluster;

constexpr double kDemand = 1.3;
const std::vector<std::string> kPolicies = {"binpack/spread", "binpack/binpack", "spread/spread", "spread/binpack",
                                            "fragmentation"};

double Allocated(const Mix& mix, const NamedPolicy& policy, std::uint64_t seed) {
  const std::vector<TraceNode> nodes = UsualNodes(seed);
  std::int64_t capacity = 0;
  for (const TraceNode& node : nodes) capacity += std::int64_t{node.cards} * 1000;
  Simulation simulation(nodes, {.policy = policy.policy, .demand = kDemand, .seed = seed});
  const Report report = simulation.Run(
      MakePods(mix, static_cast<std::int64_t>(kDemand * static_cast<double>(capacity)) + 1, 1000 + seed));
  return 100.0 * static_cast<double>(report.allocated) / static_cast<double>(report.capacity);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seeds = 3;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--seeds" && i + 1 < argc) {
      seeds = hami::base::ParseNumber(argv[++i]).value_or(3);
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  const auto policies = ParsePolicies(kPolicies);
  std::printf("%-15s", "workload");
  for (const NamedPolicy& policy : *policies) std::printf(" %15s", policy.name.c_str());
  std::printf("\n");
  for (const Mix& mix : Mixes()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), mix.name) == wanted.end()) continue;
    std::printf("%-15s", mix.name.c_str());
    for (const NamedPolicy& policy : *policies) {
      double sum = 0;
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) sum += Allocated(mix, policy, seed);
      std::printf(" %15.2f", sum / static_cast<double>(seeds));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  return 0;
}
