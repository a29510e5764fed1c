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

TEST(NodeNames, GivenAnyAdditionsAndRemovals_ThenNameLeadsToItsNumberOnly) {
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
    const std::vector<NodeId> guessed = names.Guess(asked);
    for (NodeId other = 0; other < kNames; ++other) {
      const NodeId right = expected.contains(other) ? other : kNoNode;
      ASSERT_EQ(found[other], right) << all[other] << " after step " << step;
      ASSERT_EQ(names.Find(all[other]), right) << all[other] << " after step " << step;
      if (right == kNoNode) continue;
      ASSERT_EQ(guessed[other], right) << all[other] << " after step " << step;
    }
    ASSERT_EQ(names.size(), expected.size());
  }
}

// A stranger that has the hash of one of them is found among many.
TEST(NodeNames, WhenNamesShareAHashThenEachIsGuessedOnceItIsKnown) {
  constexpr NodeId kNames = 20'000;
  NodeNames names;
  for (NodeId id = 0; id < kNames; ++id) names.Add("node-" + std::to_string(id), id);
  std::minstd_rand random(3);
  std::vector<std::string> twins;
  for (int i = 0; i < 4'000'000 && twins.empty(); ++i) {
    std::string stranger(12, ' ');
    for (char& c : stranger) c = static_cast<char>('a' + random() % 26);
    const std::vector<std::string_view> asked{stranger};
    ASSERT_EQ(names.FindAll(asked).front(), kNoNode);
    const NodeId guess = names.Guess(asked).front();
    if (guess != kNoNode) twins = {"node-" + std::to_string(guess), stranger};
  }
  ASSERT_EQ(twins.size(), 2U);
  const std::vector<std::string_view> asked(twins.begin(), twins.end());
  const NodeId first = names.Find(twins[0]);
  EXPECT_EQ(names.Guess(asked), (std::vector<NodeId>{first, first}));
  names.Add(twins[1], kNames);
  EXPECT_EQ(names.Guess(asked), (std::vector<NodeId>{first, kNames}));
  names.Remove(first);
  EXPECT_EQ(names.Guess(asked), (std::vector<NodeId>{kNoNode, kNames}));
}

}  // namespace
}  // namespace hami::sched
