// SPDX-License-Identifier: Apache-2.0

#include "plugin/topology_score.h"

#include <gtest/gtest.h>

namespace hami::plugin {
namespace {

using nvml::Ancestor;
using nvml::LinkPeer;
using nvml::NvLink;
using nvml::Topology;

// GPUs A, B, … at bus ids "bus-A", …, all pairs under ANCESTOR, without links.
Topology Machine(const std::string& names, std::optional<Ancestor> ancestor) {
  Topology topology;
  for (const char name : names) {
    topology.gpus.push_back({std::string(1, name), std::string("bus-") + name, {}});
  }
  for (std::size_t a = 0; a < names.size(); ++a) {
    for (std::size_t b = 0; b < names.size(); ++b) topology.ancestors.push_back(a == b ? std::nullopt : ancestor);
  }
  return topology;
}

void AddDirect(Topology& topology, std::size_t from, std::size_t to, int count, bool up = true) {
  for (int i = 0; i < count; ++i) {
    auto& links = topology.gpus[from].links;
    links.push_back({static_cast<unsigned>(links.size()), up, LinkPeer::kGpu, topology.gpus[to].bus_id});
  }
}

void AddSwitched(Topology& topology, std::size_t from, int count, bool up = true) {
  for (int i = 0; i < count; ++i) {
    auto& links = topology.gpus[from].links;
    links.push_back({static_cast<unsigned>(links.size()), up, LinkPeer::kSwitch, "bus-switch"});
  }
}

TEST(TopologyScoreTest, GivenAncestors_WhenScored_ThenNearerIsMore) {
  const std::pair<Ancestor, int> rows[] = {{Ancestor::kSystem, 10},     {Ancestor::kNumaNode, 20},
                                           {Ancestor::kHostBridge, 30}, {Ancestor::kManySwitches, 40},
                                           {Ancestor::kOneSwitch, 50},  {Ancestor::kSameBoard, 60}};
  for (const auto& [ancestor, score] : rows) {
    const auto scored = ScoreTopology(Machine("AB", ancestor));
    EXPECT_EQ(scored.scores.at("A").at("B"), score);
    EXPECT_EQ(scored.scores.at("B").at("A"), score);
    EXPECT_FALSE(scored.scores.at("A").contains("A"));
  }
  EXPECT_EQ(ScoreTopology(Machine("AB", std::nullopt)).scores.at("A").at("B"), 0);
}

TEST(TopologyScoreTest, GivenDirectLinks_WhenScored_ThenEachUpLinkIsWorthAHundred) {
  Topology machine = Machine("ABC", Ancestor::kSystem);
  AddDirect(machine, 0, 1, 4);
  AddDirect(machine, 1, 0, 4);
  AddDirect(machine, 0, 2, 2, false);
  AddDirect(machine, 2, 0, 2, false);
  const auto scored = ScoreTopology(machine);
  EXPECT_EQ(scored.scores.at("A").at("B"), 410);
  EXPECT_EQ(scored.scores.at("A").at("C"), 10);
  EXPECT_TRUE(scored.one_sided.empty());
}

TEST(TopologyScoreTest, GivenSwitches_WhenOneLinkIsDown_ThenTheWeakerSideCounts) {
  Topology machine = Machine("AB", Ancestor::kNumaNode);
  AddSwitched(machine, 0, 18);
  AddSwitched(machine, 1, 17);
  AddSwitched(machine, 1, 1, false);
  EXPECT_EQ(ScoreTopology(machine).scores.at("A").at("B"), 1720);
}

TEST(TopologyScoreTest, GivenOneSidedLink_WhenScored_ThenOnlyThatPairIsNothing) {
  Topology machine = Machine("ABC", Ancestor::kSystem);
  AddDirect(machine, 0, 1, 4);
  AddDirect(machine, 0, 2, 1);
  AddDirect(machine, 2, 0, 1);
  const auto scored = ScoreTopology(machine);
  EXPECT_EQ(scored.scores.at("A").at("B"), 0);
  EXPECT_EQ(scored.scores.at("B").at("A"), 0);
  EXPECT_EQ(scored.scores.at("A").at("C"), 110);
  ASSERT_EQ(scored.one_sided.size(), 1U);
  EXPECT_EQ(scored.one_sided[0].first, "A");
  EXPECT_EQ(scored.one_sided[0].second, "B");
}

TEST(TopologyScoreTest, GivenOneGpu_WhenScored_ThenItHasAnEmptyRow) {
  const auto scored = ScoreTopology(Machine("A", Ancestor::kSystem));
  ASSERT_TRUE(scored.scores.contains("A"));
  EXPECT_TRUE(scored.scores.at("A").empty());
}

}  // namespace
}  // namespace hami::plugin
