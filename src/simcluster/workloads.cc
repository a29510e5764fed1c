// SPDX-License-Identifier: Apache-2.0

#include "simcluster/workloads.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace hami::simcluster {
namespace {

constexpr int kWhole = 1000;
constexpr int kMostCpu = 88000;   // a pod with eight cards fits a node of 96 CPUs
constexpr int kLeastCpu = 500;    // thousandths
constexpr double kCpuAlone = 4;   // CPUs of a pod without a card
constexpr int kMemoryPerCpu = 4;  // MiB for a thousandth of a CPU: 4 GiB a CPU

struct NodeKind {
  int nodes;
  const char* model;
  int cards;
  int cpus;
};
constexpr NodeKind kNodeKinds[] = {
    {549, "G2", 8, 96},     {387, "T4", 2, 104},   {107, "P100", 2, 16},   {39, "G3", 8, 128},
    {28, "V100M16", 4, 32}, {22, "P100", 2, 64},   {21, "V100M32", 8, 96}, {19, "V100M16", 1, 8},
    {17, "T4", 4, 96},      {9, "V100M32", 4, 48}, {6, "A10", 2, 128},
};

const Parts kTraceShares = {{810, 1078}, {470, 750}, {320, 328}, {650, 253}, {230, 140}, {460, 128}, {100, 60},
                            {150, 60},   {250, 70},  {500, 90},  {600, 50},  {700, 40},  {900, 30}};
const Parts kTraceCards = {{1, 3836}, {2, 16}, {4, 15}, {8, 44}};
const Parts kEighths = {{125, 1}, {250, 1}, {500, 1}};
const Parts kPowers = {{1, 6}, {2, 2}, {4, 1}, {8, 1}};
const Parts kFineShares = {{125, 1}, {250, 2}, {375, 1}, {500, 2}, {625, 1}, {750, 1}};
const Parts kFewCards = {{1, 8}, {2, 1}, {4, 0.5}, {8, 0.5}};

using Random = std::mt19937_64;

// Distributions of the standard library differ between libraries; these do not.
double Uniform(Random& random) { return static_cast<double>(random() >> 11U) / 9007199254740992.0; }

int Choose(const Parts& parts, Random& random) {
  double sum = 0;
  for (const auto& [value, part] : parts) sum += part;
  double at = Uniform(random) * sum;
  for (const auto& [value, part] : parts) {
    at -= part;
    if (at < 0) return value;
  }
  return parts.back().first;
}

double LogNormal(double median, double spread, Random& random) {
  const double u = std::max(Uniform(random), 1e-12);
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * Uniform(random));
  return median * std::exp(spread * normal);
}

std::vector<std::string> ChooseModels(int cards, Random& random) {
  if (cards > 2) return {"G2", "G3"};
  const double u = Uniform(random);
  if (u < 0.45) return {"G2"};
  if (u < 0.70) return {"T4"};
  if (u < 0.85) return {"G2", "G3"};
  if (u < 0.95) return {"P100"};
  return {"V100M16", "V100M32"};
}

}  // namespace

const std::vector<Mix>& Mixes() {
  static const std::vector<Mix> mixes = {
      {"trace", "the shares and counts of the public trace", 0.13, 0.44, kTraceShares, kTraceCards, 0, 8, 0.5},
      {"trace-shares", "the same, shares only", 0.13, 1, kTraceShares, kTraceCards, 0, 8, 0.5},
      {"trace-typed", "the same, a third names models", 0.13, 0.44, kTraceShares, kTraceCards, 0.33, 8, 0.5},
      {"trace-cpu", "the same, with more CPU a card, and more varied", 0.13, 0.44, kTraceShares, kTraceCards, 0, 9.2,
       0.8},
      {"many-cards",
       "half of the whole-card pods ask for several",
       0.1,
       0.3,
       kTraceShares,
       {{1, 50}, {2, 20}, {4, 15}, {8, 15}},
       0,
       8,
       0.5},
      {"eighths", "shares of 1/8, 1/4 and 1/2; 1, 2, 4 and 8 cards", 0, 0.6, kEighths, kPowers, 0, 8, 0.4},
      {"eighths-typed", "the same, a third names models", 0, 0.6, kEighths, kPowers, 0.33, 8, 0.4},
      {"mostly-shares", "nine of ten ask for a share, with varied CPU", 0.05, 0.9, kFineShares, kFewCards, 0, 9.2, 0.8},
  };
  return mixes;
}

const Mix* FindMix(std::string_view name) {
  const auto found = std::find_if(Mixes().begin(), Mixes().end(), [&](const Mix& mix) { return mix.name == name; });
  return found == Mixes().end() ? nullptr : &*found;
}

std::vector<TraceNode> UsualNodes(std::uint64_t seed) {
  std::vector<TraceNode> nodes;
  for (const NodeKind& kind : kNodeKinds) {
    for (int i = 0; i < kind.nodes; ++i) {
      TraceNode node;
      node.host = {std::int64_t{kind.cpus} * 1000, std::int64_t{kind.cpus} * 8192};
      node.cards = kind.cards;
      node.model = kind.model;
      node.card_memory = 16000;
      nodes.push_back(std::move(node));
    }
  }
  Random random(seed);
  for (std::size_t i = nodes.size() - 1; i > 0; --i) std::swap(nodes[i], nodes[random() % (i + 1)]);
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].name = "node-" + std::to_string(i);
  return nodes;
}

std::vector<TracePod> MakePods(const Mix& mix, std::int64_t demand, std::uint64_t seed) {
  Random random(seed);
  std::vector<TracePod> pods;
  for (std::int64_t so_far = 0; so_far < demand;) {
    TracePod pod;
    pod.name = "pod-" + std::to_string(pods.size());
    pod.arrives = static_cast<Seconds>(pods.size());
    double median = kCpuAlone;
    if (Uniform(random) >= mix.without_cards) {
      const bool share = Uniform(random) < mix.shares;
      pod.cards = share ? 1 : Choose(mix.card_counts, random);
      pod.milli = share ? Choose(mix.share_sizes, random) : kWhole;
      median = mix.cpu_per_card * pod.cards * pod.milli / kWhole;
      if (Uniform(random) < mix.typed) pod.models = ChooseModels(pod.cards, random);
    }
    const double cpu =
        std::clamp(LogNormal(median * 1000, mix.cpu_spread, random), double{kLeastCpu}, double{kMostCpu});
    pod.host = {static_cast<std::int64_t>(cpu), static_cast<std::int64_t>(cpu) * kMemoryPerCpu};
    so_far += pod.demand();
    pods.push_back(std::move(pod));
  }
  return pods;
}

void ComeInBursts(std::vector<TracePod>& pods, std::size_t burst) {
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const TracePod& first = pods[i - i % burst];
    TracePod& pod = pods[i];
    pod.host = first.host;
    pod.cards = first.cards;
    pod.milli = first.milli;
    pod.models = first.models;
    pod.arrives = first.arrives;
  }
}

void EndInTime(std::vector<TracePod>& pods, std::int64_t held, std::uint64_t seed) {
  Random random(seed);
  std::int64_t demand = 0;
  for (const TracePod& pod : pods) demand += pod.demand();
  if (pods.empty() || demand == 0) return;
  // Little's law: what is held is what comes in a second, times how long it stays.
  const double a_second =
      static_cast<double>(demand) / static_cast<double>(pods.back().arrives - pods.front().arrives + 1);
  const double mean = static_cast<double>(held) / a_second;
  for (TracePod& pod : pods) {
    pod.ends = pod.arrives + 1 + static_cast<Seconds>(-mean * std::log(std::max(Uniform(random), 1e-12)));
  }
}

}  // namespace hami::simcluster
