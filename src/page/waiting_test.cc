// SPDX-License-Identifier: Apache-2.0

#include "page/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::page {
namespace {

using testing::ElementsAre;

std::vector<sched::NodeReason> Refusals(std::size_t nodes) {
  std::vector<sched::NodeReason> list;
  for (std::size_t i = 0; i < nodes; ++i) list.push_back({"n" + std::to_string(i), "1/1 CardInsufficientMemory"});
  return list;
}

TEST(Waiting, ReasonsAreGroupedAndTheLastOnesCount) {
  Waiting waiting;
  waiting.Refused("ns", "p", "u", {{"a", "x"}, {"b", "y"}, {"c", "y"}}, 10);
  waiting.Refused("ns", "p", "u", {{"a", "z"}, {"b", "y"}, {"c", "y"}}, 20);
  const auto list = waiting.List(20);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].since, 10);
  EXPECT_EQ(list[0].last, 20);
  EXPECT_EQ(list[0].tries, 2U);
  ASSERT_EQ(list[0].reasons.size(), 2U);
  EXPECT_EQ(list[0].reasons[0].reason, "y");
  EXPECT_THAT(list[0].reasons[0].nodes, ElementsAre("b", "c"));
  EXPECT_EQ(list[0].reasons[1].reason, "z");
}

TEST(Waiting, APodLeavesWhenItIsSettledOrNobodyAsks) {
  Waiting waiting;
  waiting.Refused("ns", "a", "1", Refusals(1), 10);
  waiting.Refused("ns", "b", "2", Refusals(1), 20);
  waiting.Gone("1");
  waiting.Gone("unknown");
  EXPECT_EQ(waiting.List(20).size(), 1U);
  EXPECT_EQ(waiting.List(20 + Waiting::kForgetAfter).size(), 1U);
  EXPECT_EQ(waiting.List(21 + Waiting::kForgetAfter).size(), 0U);
}

TEST(Waiting, WhateverIsSubmittedWhatIsKeptIsBounded) {
  Waiting waiting;
  const auto thousand = Refusals(1000);
  for (int i = 0; i < 1200; ++i) waiting.Refused("ns", "p", std::to_string(i), thousand, i);
  const auto list = waiting.List(1200);
  EXPECT_LE(list.size(), Waiting::kMostPods);
  std::size_t names = 0;
  for (const WaitingPod& pod : list) {
    ASSERT_EQ(pod.reasons.size(), 1U);
    EXPECT_EQ(pod.reasons[0].count, 1000U) << "the number stays";
    names += pod.reasons[0].nodes.size();
  }
  EXPECT_LE(names, Waiting::kMostNames);
  EXPECT_EQ(list.back().reasons[0].nodes.size(), 1000U) << "the youngest keeps its names";
}

}  // namespace
}  // namespace hami::page
