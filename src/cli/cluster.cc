// SPDX-License-Identifier: Apache-2.0
//
// `hami sim cluster`: reads the lists, replays them under each policy, prints the rows.

#include <iostream>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "simcluster/report.h"
#include "simcluster/workloads.h"

namespace hami::cli {
namespace {

using simcluster::TraceNode;
using simcluster::TracePod;

constexpr std::size_t kMostBytes = 1U << 30U;  // a list of millions of pods
constexpr std::size_t kMostWorkloadBytes = 1U << 20U;
constexpr std::size_t kMostAdvised = 1000;  // cards that advice is sought for
constexpr double kUsualDemand = 1.3;        // of a made-up workload

struct Lists {
  std::vector<TraceNode> nodes;
  std::vector<TracePod> pods;
};

base::Result<Lists> ReadLists(const ClusterOptions& options) {
  const auto nodes_text = base::ReadLinkedFile(options.nodes, kMostBytes);
  HAMI_TRY(nodes_text);
  const auto pods_text = base::ReadLinkedFile(options.pods, kMostBytes);
  HAMI_TRY(pods_text);
  auto nodes = simcluster::ReadNodes(*nodes_text, options.nodes);
  HAMI_TRY(nodes);
  auto pods = simcluster::ReadPods(*pods_text, options.pods);
  HAMI_TRY(pods);
  return Lists{*std::move(nodes), *std::move(pods)};
}

base::Result<Lists> MakeLists(const ClusterOptions& options) {
  const simcluster::Mix* mix = simcluster::FindMix(options.mix);
  if (mix == nullptr) {
    std::string names;
    for (const simcluster::Mix& one : simcluster::Mixes()) names += "  " + one.name + ": " + one.about + "\n";
    return base::Fail("no mix is named '" + base::Printable(options.mix) + "'", "The mixes are:\n" + names);
  }
  const auto seed = static_cast<std::uint64_t>(options.seed);
  Lists lists{simcluster::UsualNodes(seed), {}};
  std::int64_t capacity = 0;
  for (const TraceNode& node : lists.nodes) capacity += std::int64_t{node.cards} * 1000;
  const double demand = options.demand > 0 ? options.demand : kUsualDemand;
  lists.pods = simcluster::MakePods(*mix, static_cast<std::int64_t>(demand * static_cast<double>(capacity)), seed);
  return lists;
}

int ListMixes() {
  for (const simcluster::Mix& mix : simcluster::Mixes()) {
    std::cout << mix.name << std::string(mix.name.size() < 16 ? 16 - mix.name.size() : 1, ' ') << mix.about << "\n";
  }
  return 0;
}

}  // namespace

int Cluster(const ClusterOptions& options) {
  if (options.mix == "list") return ListMixes();
  const auto policies = simcluster::ParsePolicies(options.policies);
  if (!policies) {
    base::LogError(policies.error());
    return kUsage;
  }
  const auto lists = options.mix.empty() ? ReadLists(options) : MakeLists(options);
  if (!lists) {
    base::LogError(lists.error());
    return kFailed;
  }
  std::vector<sched::RequestClass> workload;
  if (!options.workload.empty()) {
    const auto text = base::ReadLinkedFile(options.workload, kMostWorkloadBytes);
    auto read = text ? simcluster::ReadWorkload(*text, options.workload)
                     : base::Result<std::vector<sched::RequestClass>>(tl::unexpected(text.error()));
    if (!read) {
      base::LogError(read.error());
      return kFailed;
    }
    workload = *std::move(read);
  }
  std::vector<simcluster::Row> rows;
  for (const simcluster::NamedPolicy& policy : *policies) {
    simcluster::Simulation simulation(lists->nodes, {.policy = policy.policy,
                                                     .workload = workload,
                                                     .demand = options.demand,
                                                     .seed = static_cast<std::uint64_t>(options.seed),
                                                     .sample_percent = options.sample_percent});
    simcluster::Row row{policy.name, simulation.Run(lists->pods), {}};
    if (options.advise) row.advice = simulation.Advise(kMostAdvised);
    rows.push_back(std::move(row));
  }
  if (options.output == Output::kJson) {
    std::cout << base::Pretty(simcluster::JsonOf(rows, options.advise));
  } else {
    std::cout << simcluster::TableOf(rows, options.advise);
  }
  return 0;
}

}  // namespace hami::cli
