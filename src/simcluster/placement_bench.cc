// SPDX-License-Identifier: Apache-2.0
//
// The tables of docs/results/placement.md: how much of 6,182 cards each policy gives away, by workload, in the mean of
// the seeds. As pods come that stay, to 130 % of the cards; or in bursts of 16 alike; or as they come and go.
//   placement_bench [--seeds N] [--bursts | --departures] [--policies NAME,...] [--fullness PART] [--ahead N] [MIX...]
// --fullness adds the column `tried`: the policy with that part of the fullness in place of a tenth. --ahead: pods that
// come at one moment are learnt from before any of them is placed, each as N; 0: when its turn comes.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/strings.h"
#include "simcluster/report.h"
#include "simcluster/workloads.h"

namespace {

using namespace hami::simcluster;

constexpr double kDemand = 1.3;
constexpr std::size_t kBurst = 16;
constexpr double kTurnover = 4;  // with departures: so many times the cards are asked for in all
constexpr double kHeld = 1.05;   // and this part of them at a time, if none waited

enum class Kind { kStay, kBursts, kDepartures };

const std::vector<std::string> kPolicies = {"binpack/spread", "binpack/binpack", "spread/spread", "spread/binpack"};

std::vector<NamedPolicy> Policies() {
  std::vector<NamedPolicy> policies = *ParsePolicies(kPolicies);
  const auto fragmentation = [&](const char* name, const hami::sched::FragmentTuning& tuning) {
    policies.push_back({name, {"fragmentation", "fragmentation"}, tuning});
  };
  fragmentation("best-fit", {.growth = 0, .fullness = 1, .by_host = false});
  fragmentation("FGD", {.growth = 1, .fullness = 0, .by_host = false});
  fragmentation("FGD+best-fit", {.growth = 1, .fullness = 0.1, .by_host = false});
  fragmentation("fragmentation", {});
  return policies;
}

double Allocated(const Mix& mix, Kind kind, const NamedPolicy& policy, int ahead, std::uint64_t seed) {
  const std::vector<TraceNode> nodes = UsualNodes(seed);
  std::int64_t capacity = 0;
  for (const TraceNode& node : nodes) capacity += std::int64_t{node.cards} * 1000;
  const auto part = [&](double of) { return static_cast<std::int64_t>(of * static_cast<double>(capacity)) + 1; };
  std::vector<TracePod> pods = MakePods(mix, part(kind == Kind::kDepartures ? kTurnover : kDemand), 1000 + seed);
  if (kind == Kind::kBursts) ComeInBursts(pods, kBurst);
  if (kind == Kind::kDepartures) EndInTime(pods, part(kHeld), 2000 + seed);
  const double demand = kind == Kind::kDepartures ? 0 : kDemand;
  Simulation simulation(
      nodes, {.policy = policy.policy, .tuning = policy.tuning, .demand = demand, .seed = seed, .ahead = ahead});
  const Report report = simulation.Run(pods);
  const double given = kind == Kind::kDepartures ? report.mean_allocated : static_cast<double>(report.allocated);
  return 100.0 * given / static_cast<double>(report.capacity);
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seeds = 3;
  Kind kind = Kind::kStay;
  std::vector<std::string> wanted;
  std::vector<std::string> columns;
  double fullness = -1;
  int ahead = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--seeds" && i + 1 < argc) {
      seeds = hami::base::ParseNumber(argv[++i]).value_or(3);
    } else if (std::string(argv[i]) == "--policies" && i + 1 < argc) {
      columns = hami::base::Split(argv[++i], ',');
    } else if (std::string(argv[i]) == "--fullness" && i + 1 < argc) {
      fullness = std::strtod(argv[++i], nullptr);
    } else if (std::string(argv[i]) == "--ahead" && i + 1 < argc) {
      ahead = std::atoi(argv[++i]);
    } else if (std::string(argv[i]) == "--bursts") {
      kind = Kind::kBursts;
    } else if (std::string(argv[i]) == "--departures") {
      kind = Kind::kDepartures;
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  std::vector<NamedPolicy> policies = Policies();
  if (fullness >= 0) policies.push_back({"tried", {"fragmentation", "fragmentation"}, {.fullness = fullness}});
  std::erase_if(policies, [&](const NamedPolicy& policy) {
    return !columns.empty() && std::find(columns.begin(), columns.end(), policy.name) == columns.end();
  });
  std::printf("%-15s", "workload");
  for (const NamedPolicy& policy : policies) std::printf(" %15s", policy.name.c_str());
  std::printf("\n");
  for (const Mix& mix : Mixes()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), mix.name) == wanted.end()) continue;
    std::printf("%-15s", mix.name.c_str());
    for (const NamedPolicy& policy : policies) {
      double sum = 0;
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) sum += Allocated(mix, kind, policy, ahead, seed);
      std::printf(" %15.2f", sum / static_cast<double>(seeds));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  return 0;
}
