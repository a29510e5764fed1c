// SPDX-License-Identifier: Apache-2.0

#include "sched/node_names.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace hami::sched {
namespace {

TEST(NodeNames, NothingIsFoundInNothing) {
  const NodeNames names;
  EXPECT_EQ(names.Find("n"), kNoNode);
  const std::vector<std::string_view> asked{"n", ""};
  EXPECT_EQ(names.FindAll(asked), (std::vector<NodeId>{kNoNode, kNoNode}));
}

TEST(NodeNames, ANumberThatIsFreeAgainTakesAnotherName) {
  NodeNames names;
  names.Add("old", 3);
  names.Remove(3);
  EXPECT_EQ(names.Find("old"), kNoNode);
  names.Add("new", 3);
  EXPECT_EQ(names.Find("new"), 3U);
  EXPECT_EQ(names.size(), 1U);
}

// Names short enough to lie in the table's own strings, and names that do not.
std::string NameOf(NodeId id) { return (id % 3 == 0 ? "n" : "node-with-a-long-name-") + std::to_string(id); }

TEST(NodeNames, AfterAnyAdditionsAndRemovalsEachNameLeadsToItsNumberAndNoOther) {
  constexpr NodeId kNames = 700;
  std::minstd_rand random(7);
  NodeNames names;
  std::map<NodeId, std::string> expected;
  std::vector<std::string> all;
  for (NodeId id = 0; id < kNames; ++id) all.push_back(NameOf(id));
  const std::vector<std::string_view> asked(all.begin(), all.end());
  for (int step = 0; step < 20'000; ++step) {
    // Now nearly full, now nearly empty.
    const auto id = static_cast<NodeId>(random() % kNames);
    const bool wanted = random() % 16 < (step / 2000 % 2 == 0 ? 14U : 2U);
    if (wanted == expected.contains(id)) continue;
    if (wanted) {
      names.Add(all[id], id);
      expected[id] = all[id];
    } else {
      names.Remove(id);
      expected.erase(id);
    }
    if (step % 64 != 0) continue;
    const std::vector<NodeId> found = names.FindAll(asked);
    for (NodeId other = 0; other < kNames; ++other) {
      const NodeId right = expected.contains(other) ? other : kNoNode;
      ASSERT_EQ(found[other], right) << all[other] << " after step " << step;
      ASSERT_EQ(names.Find(all[other]), right) << all[other] << " after step " << step;
    }
    ASSERT_EQ(names.size(), expected.size());
  }
}

}  // namespace
}  // namespace hami::sched
