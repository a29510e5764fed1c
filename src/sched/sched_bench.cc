// SPDX-License-Identifier: Apache-2.0
//
// Decisions per second: N nodes × 8 cards, 20 running pods a node, the common request for a fraction of one card. Each
// iteration decides, charges, and lets the oldest such pod go, so that the cluster stays as full as it is.

#include <benchmark/benchmark.h>

#include <deque>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "device/annotations.h"
#include "sched/policy.h"
#include "sched/testing/samples.h"
#include "sched/testing/vendors.h"

namespace hami::sched {
namespace {

using testing::Cards;
using testing::PodOf;
using testing::Wants;

constexpr device::UnixSeconds kNow = 1'800'000'000;
constexpr int kPodsPerNode = 20;
constexpr int kUids = 10'000;  // more of one kind would leave nothing of the other classes in the workload

std::string NodeName(int i) { return "node-" + std::to_string(i); }

struct Cluster {
  // MIXED: every vendor is configured, and each fourth node and pod is another's.
  explicit Cluster(int nodes, bool mixed = false)
      : vendors(mixed ? testing::AllVendors() : testing::NvidiaOnly()), ledger(vendors), filter(ledger, vendors, {}) {
    for (int i = 0; i < nodes; ++i) {
      names.push_back(NodeName(i));
      if (mixed && i % 4 == 3) {
        AddOthers(names.back(), i / 4);
        continue;
      }
      ledger.SetCards(names.back(), 0, Cards("GPU-0a1b2c3d-aaaa-bbbb-cccc-" + names.back(), 8, 81559));
    }
    for (int i = 0; i < nodes * kPodsPerNode; ++i) {
      device::Pod pod = PodOf("11111111-2222-3333-4444-running" + std::to_string(i), Wants(1, 8000 + i % 5));
      if (mixed && i % 4 == 3) {
        testing::VendorAsk ask = testing::AnyAsk(below);
        pod.containers[0] = ask.container;
        pod.annotations = ask.annotations;
      }
      Decision decision = filter.DecideAny(pod, {kNow});
      if (decision.outcome != Outcome::kPlaced) {  // the other vendors' cards are full: the number of pods stays
        pod = PodOf(pod.uid, Wants(1, 8000 + i % 5));
        decision = filter.DecideAny(pod, {kNow});
      }
      if (decision.outcome != Outcome::kPlaced) continue;
      ledger.UpsertPod(testing::Written(pod, decision, true));
    }
    views.assign(names.begin(), names.end());
  }

  void AddOthers(const std::string& name, int number) {
    SimulatedNode node{name, {}};
    testing::AddCards(node, number % testing::NodeKinds(), below);
    for (std::size_t v = 0; v < vendors.size(); ++v) {
      ledger.SetCards(name, static_cast<int>(v), *vendors[v]->ReadNode(node.facts()));
    }
  }

  std::mt19937_64 random{1};
  testing::Chance below = [this](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  device::Vendors vendors;
  Ledger ledger;
  Filter filter;
  std::vector<std::string> names;
  std::vector<std::string_view> views;
};

Cluster& At(int nodes, bool mixed = false) {
  static std::map<std::pair<int, bool>, std::unique_ptr<Cluster>> clusters;
  auto& cluster = clusters[{nodes, mixed}];
  if (cluster == nullptr) cluster = std::make_unique<Cluster>(nodes, mixed);
  return *cluster;
}

// Resident memory of this process in MiB.
double ResidentMiB() {
  std::ifstream statm("/proc/self/statm");
  double size = 0;
  double resident = 0;
  statm >> size >> resident;
  return resident * 4096 / (1 << 20);
}

template <typename DecideOne>
void Run(benchmark::State& state, Cluster& cluster, DecideOne decide) {
  std::deque<std::string> charged;
  int serial = 0;
  for (auto _ : state) {
    const device::Pod pod = PodOf("uid-" + std::to_string(serial++ % kUids), Wants(1, 2000));
    const Decision decision = decide(pod);
    if (decision.outcome != Outcome::kPlaced) state.SkipWithError("the pod was not placed");
    cluster.ledger.Assume(pod, decision.node, decision.allocation, kNow + 300);
    charged.push_back(pod.uid);
    if (charged.size() > 64) {
      cluster.ledger.Forget(charged.front());
      charged.pop_front();
    }
  }
  for (const std::string& uid : charged) cluster.ledger.Forget(uid);
  state.SetItemsProcessed(state.iterations());
  state.counters["pods"] = static_cast<double>(cluster.ledger.pod_count());
  state.counters["MiB"] = ResidentMiB();
}

void AllNodes(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)));
  Run(state, cluster, [&](const device::Pod& pod) { return cluster.filter.DecideAny(pod, {kNow}); });
}

// With every node's name in the request.
void EveryName(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)));
  Run(state, cluster, [&](const device::Pod& pod) { return cluster.filter.Decide(pod, cluster.views, {kNow}); });
}

// And with the list of fits and failures for the event.
void EveryNameExplained(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)));
  Run(state, cluster, [&](const device::Pod& pod) { return cluster.filter.Decide(pod, cluster.views, {kNow, true}); });
}

// The first pod of a shape: every node is asked.
void NewShape(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)));
  device::MiB memory = 1000;
  for (auto _ : state) {
    const device::Pod pod = PodOf("uid-new", Wants(1, ++memory));
    benchmark::DoNotOptimize(cluster.filter.DecideAny(pod, {kNow}));
    if (memory > 3000) memory = 1000;
  }
  state.SetItemsProcessed(state.iterations());
}

// Nothing fits; every node's reason is listed.
void NoFit(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)));
  const device::Pod pod = PodOf("uid-large", Wants(1, 90000));
  for (auto _ : state) benchmark::DoNotOptimize(cluster.filter.Decide(pod, cluster.views, {kNow}));
  state.SetItemsProcessed(state.iterations());
}

// The same two by fragmentation, with as many classes of requests as the policy goes by. Against EveryName and
// NewShape.
device::Pod ByFragmentation(device::Pod pod) {
  pod.annotations[device::kNodePolicy] = pod.annotations[device::kDevicePolicy] = kFragmentation;
  return pod;
}

void LearnManyClasses(Cluster& cluster) {
  for (int i = 0; i < 2000; ++i) {
    device::Container container = Wants(1, 1000 * (1 + i % 20), i % 4 * 25);
    container.requests["cpu"] = std::to_string(1 + i % 7);
    cluster.filter.Learn(PodOf("uid-learnt" + std::to_string(i), container));
  }
}

void EveryNameByFragmentation(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)));
  LearnManyClasses(cluster);
  Run(state, cluster,
      [&](const device::Pod& pod) { return cluster.filter.Decide(ByFragmentation(pod), cluster.views, {kNow}); });
  state.counters["classes"] = static_cast<double>(cluster.filter.workload().Current().classes.size());
}

void NewShapeByFragmentation(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)));
  LearnManyClasses(cluster);
  device::MiB memory = 1000;
  for (auto _ : state) {
    const device::Pod pod = ByFragmentation(PodOf("uid-new", Wants(1, ++memory)));
    benchmark::DoNotOptimize(cluster.filter.DecideAny(pod, {kNow}));
    if (memory > 3000) memory = 1000;
  }
  state.SetItemsProcessed(state.iterations());
}

// The same as EveryName and NewShape in a cluster of every vendor's nodes.
void EveryNameMixed(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)), true);
  Run(state, cluster, [&](const device::Pod& pod) { return cluster.filter.Decide(pod, cluster.views, {kNow}); });
}

void NewShapeMixed(benchmark::State& state) {
  Cluster& cluster = At(static_cast<int>(state.range(0)), true);
  device::MiB memory = 1000;
  for (auto _ : state) {
    const device::Pod pod = PodOf("uid-new", Wants(1, ++memory));
    benchmark::DoNotOptimize(cluster.filter.DecideAny(pod, {kNow}));
    if (memory > 3000) memory = 1000;
  }
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK(AllNodes)->Arg(100)->Arg(1000)->Arg(5000);
BENCHMARK(EveryName)->Arg(100)->Arg(1000)->Arg(5000);
BENCHMARK(EveryNameExplained)->Arg(5000);
BENCHMARK(NewShape)->Arg(100)->Arg(5000);
BENCHMARK(NoFit)->Arg(5000);
BENCHMARK(EveryNameMixed)->Arg(100)->Arg(5000);
BENCHMARK(NewShapeMixed)->Arg(100)->Arg(5000);
BENCHMARK(EveryNameByFragmentation)->Arg(100)->Arg(5000);
BENCHMARK(NewShapeByFragmentation)->Arg(100)->Arg(5000);

}  // namespace
}  // namespace hami::sched

BENCHMARK_MAIN();
