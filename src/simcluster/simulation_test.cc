// SPDX-License-Identifier: Apache-2.0

#include "simcluster/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simcluster/report.h"
#include "simcluster/workloads.h"

namespace hami::simcluster {
namespace {

using ::testing::HasSubstr;

TraceNode NodeOf(const std::string& name, int cards, std::int64_t cpus = 100) {
  TraceNode node;
  node.name = name;
  node.host = {cpus * 1000, 1 << 20};
  node.cards = cards;
  node.model = "T4";
  node.card_memory = 16000;
  return node;
}

TracePod PodOf(const std::string& name, int cards, int milli, Seconds arrives = 0, Seconds ends = kNever) {
  TracePod pod;
  pod.name = name;
  pod.host = {1000, 1024};
  pod.cards = cards;
  pod.milli = milli;
  pod.arrives = arrives;
  pod.ends = ends;
  return pod;
}

SimulationOptions With(const std::string& policy) { return {.policy = {policy, policy}}; }

TEST(SimulationTest, APodThatWaitsRunsWhenRoomIsMade) {
  Simulation simulation({NodeOf("a", 1)}, With("binpack"));
  const Report report = simulation.Run({PodOf("p", 1, 1000, 0, 10), PodOf("q", 1, 1000, 5, 20)});
  EXPECT_EQ(report.waited, 1U);
  EXPECT_EQ(report.refused, 0U);
  EXPECT_EQ(report.allocated, 0);
  EXPECT_EQ(report.most_allocated, 1000);
}

TEST(SimulationTest, ANodeWithoutCpuIsNotNamed) {
  Simulation simulation({NodeOf("a", 2, 1)}, With("binpack"));
  const Report report = simulation.Run({PodOf("p", 1, 500), PodOf("q", 1, 500, 1)});
  EXPECT_EQ(report.refused, 1U);
  EXPECT_EQ(report.allocated, 500);
}

TEST(SimulationTest, PodsOfAFailedNodeGoElsewhere) {
  TraceNode failing = NodeOf("a", 1);
  failing.fails_at = 5;
  failing.back_at = 50;
  Simulation simulation({failing, NodeOf("b", 1)}, With("binpack"));
  const Report report = simulation.Run({PodOf("p", 1, 1000), PodOf("q", 1, 1000, 1)});
  EXPECT_EQ(report.lost, 1U);
  EXPECT_EQ(report.waited, 1U);  // until the node is back
  EXPECT_EQ(report.refused, 0U);
  EXPECT_EQ(report.allocated, 2000);
}

TEST(SimulationTest, AShareGoesWhereItLeavesWholeCards) {
  // Pods of 500 and 1000 come; a third 500 would open a new card under spread.
  const std::vector<TracePod> pods = {PodOf("p0", 1, 500), PodOf("p1", 1, 500, 1), PodOf("p2", 2, 1000, 2)};
  const std::vector<TraceNode> nodes = {NodeOf("a", 3)};
  EXPECT_EQ(Simulation(nodes, With("spread")).Run(pods).refused, 1U);
  EXPECT_EQ(Simulation(nodes, With("fragmentation")).Run(pods).refused, 0U);
}

TEST(SimulationTest, WhatIsHeldInTheMeanIsOfTheSecondHalf) {
  Simulation simulation({NodeOf("a", 2)}, With("binpack"));
  // Arrivals from 0 to 100: one card all the time, and one more from 50 to 75.
  const Report report = simulation.Run({PodOf("p", 1, 1000, 0), PodOf("q", 1, 1000, 50, 75), PodOf("r", 2, 1000, 100)});
  EXPECT_DOUBLE_EQ(report.mean_allocated, 1500);
}

TEST(SimulationTest, PodsThatComeAndGoHoldWhatWasWanted) {
  std::vector<TracePod> pods = MakePods(*FindMix("eighths"), 400'000, 1);
  EndInTime(pods, 20'000, 2);
  Simulation simulation({NodeOf("a", 8), NodeOf("b", 8), NodeOf("c", 8), NodeOf("d", 8), NodeOf("e", 8)},
                        With("binpack"));
  const Report report = simulation.Run(pods);
  EXPECT_NEAR(report.mean_allocated, 20'000, 7'000);
  EXPECT_EQ(report.allocated, 0);
}

TEST(SimulationTest, ABurstIsOfOneKindAtOneTime) {
  std::vector<TracePod> pods = MakePods(*FindMix("trace-typed"), 100'000, 1);
  ComeInBursts(pods, 16);
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const TracePod& first = pods[i - i % 16];
    EXPECT_EQ(pods[i].arrives, first.arrives);
    EXPECT_EQ(pods[i].demand(), first.demand());
    EXPECT_EQ(pods[i].models, first.models);
    EXPECT_NE(pods[i].name, pods[(i + 1) % pods.size()].name);
  }
}

TEST(SimulationTest, AGivenWorkloadIsWhatPlacementsGoBy) {
  // For whole cards alone: a half goes where a half is. For halves alone it does not matter; learnt from one pod
  // neither.
  const auto whole = ReadWorkload("nvidia.com/gpu,nvidia.com/gpucores\n1,100\n", "w");
  ASSERT_TRUE(whole);
  SimulationOptions options = With("fragmentation");
  options.workload = *whole;
  Simulation simulation({NodeOf("a", 1), NodeOf("b", 1)}, options);
  const Report report = simulation.Run({PodOf("p0", 1, 500), PodOf("p1", 1, 500, 1), PodOf("p2", 1, 1000, 2)});
  EXPECT_EQ(report.refused, 0U);
  EXPECT_NEAR(report.fragmented, 0, 1e-9);
}

TEST(SimulationTest, TheSameSeedGivesTheSameReport) {
  const std::vector<TracePod> pods = MakePods(*FindMix("trace"), 200000, 3);
  const std::vector<TraceNode> nodes = {NodeOf("a", 8), NodeOf("b", 8), NodeOf("c", 2)};
  const Report one = Simulation(nodes, With("fragmentation")).Run(pods);
  const Report two = Simulation(nodes, With("fragmentation")).Run(pods);
  EXPECT_EQ(one.allocated, two.allocated);
  EXPECT_EQ(one.fragmented, two.fragmented);
}

TEST(SimulationTest, AdviceMovesSharesOntoUsedCards) {
  Simulation simulation({NodeOf("a", 3)}, With("spread"));
  simulation.Run({PodOf("p0", 1, 300), PodOf("p1", 1, 300, 1), PodOf("p2", 1, 300, 2)});
  const Advice advice = simulation.Advise(10);
  EXPECT_EQ(advice.freed, 2U);
  EXPECT_EQ(advice.moves.size(), 2U);
  for (const Move& move : advice.moves) EXPECT_EQ(move.to_card, advice.moves.front().to_card);
}

TEST(ReportTest, PoliciesAreReadAndRefusedByName) {
  const auto policies = ParsePolicies({"fragmentation", "binpack/spread"});
  ASSERT_TRUE(policies);
  EXPECT_EQ((*policies)[0].policy.device, "fragmentation");
  EXPECT_EQ((*policies)[1].policy.node, "binpack");
  EXPECT_EQ((*policies)[1].policy.device, "spread");
  const auto wrong = ParsePolicies({"binpak"});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("is it binpack?"));
}

TEST(ReportTest, TheTableHasARowForEachPolicy) {
  Row row;
  row.policy = "spread";
  row.report.capacity = 2000;
  row.report.allocated = 500;
  EXPECT_THAT(TableOf({row}, true), HasSubstr("spread     25.00 %"));
}

}  // namespace
}  // namespace hami::simcluster
