// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "device/handshake.h"
#include "device/lists.h"
#include "device/vendors/mig_placement.h"
#include "device/vendors/topology.h"

namespace hami::device {
namespace {

constexpr UnixSeconds kNoon = 1785585600;  // 2026-08-01 12:00:00 UTC

HandshakeInput Input(std::optional<std::string> value, std::int64_t allocatable, const char* text = "[]") {
  return {std::move(value), allocatable, text, {kNoon, 0}};
}

TEST(HandshakeText, GivenATimeAndAZone_WhenWrittenAndRead_ThenItIsTheSameMoment) {
  EXPECT_EQ(RequestingText({kNoon, 0}), "Requesting_2026-08-01 12:00:00");
  EXPECT_EQ(RequestingText({kNoon, 8 * 3600}), "Requesting_2026-08-01 20:00:00");
  EXPECT_EQ(RequestingText({0, -3600}), "Requesting_1969-12-31 23:00:00");
  EXPECT_EQ(RequestingText({951782400, 0}), "Requesting_2000-02-29 00:00:00");
  for (const UnixSeconds time : {UnixSeconds{0}, UnixSeconds{951782400}, kNoon, UnixSeconds{4102444799}}) {
    EXPECT_EQ(ParseRequesting(RequestingText({time, -5400}), -5400), time);
  }
}

TEST(HandshakeText, GivenOtherForms_ThenTheTimeIsUnknown) {
  for (const char* text :
       {"Requesting", "Requesting_", "Requesting_2024.09.25 07:48:26", "Requesting_2026-13-01 00:00:00",
        "Reported_2026-08-01 12:00:00", "Requesting_2026-08-01 12:00:0"}) {
    EXPECT_EQ(ParseRequesting(text, 0), std::nullopt) << text;
  }
}

TEST(Handshake, GivenNoAnnotationOrAnAnswer_ThenTheNodeIsAskedAgainAndRead) {
  for (const auto& value : {std::optional<std::string>(), std::optional<std::string>("Reported 2026-08-01"),
                            std::optional<std::string>("Deleted_2026-08-01 11:00:00")}) {
    const HandshakeVerdict verdict = JudgeHandshake(Input(value, 0), {});
    EXPECT_TRUE(verdict.healthy);
    EXPECT_TRUE(verdict.refresh);
    EXPECT_EQ(verdict.action, HandshakeAction::kWriteRequesting);
  }
}

TEST(Handshake, GivenAYoungOrUnreadableQuestion_ThenItWaits) {
  for (const char* value : {"Requesting_2026-08-01 11:59:01", "Requesting", "Requesting_2024.09.25 07:48:26"}) {
    const HandshakeVerdict verdict = JudgeHandshake(Input(value, 0), {});
    EXPECT_TRUE(verdict.healthy) << value;
    EXPECT_FALSE(verdict.refresh) << value;
    EXPECT_EQ(verdict.action, HandshakeAction::kNothing) << value;
  }
}

TEST(Handshake, GivenAnOldQuestion_ThenAllocatableDecides) {
  EXPECT_TRUE(JudgeHandshake(Input("Requesting_2026-08-01 11:59:00", 3), {}).healthy);
  const HandshakeVerdict dropped = JudgeHandshake(Input("Requesting_2026-08-01 11:59:00", 0), {});
  EXPECT_FALSE(dropped.healthy);
  EXPECT_EQ(dropped.action, HandshakeAction::kDelete);
  EXPECT_TRUE(dropped.memory.dropped);
}

TEST(Handshake, GivenADroppedVendor_ThenItStaysDroppedUntilTheNodeShowsLife) {
  const HandshakeMemory dropped = JudgeHandshake(Input("Requesting_2026-08-01 11:59:00", 0), {}).memory;
  // The removal of the annotation is itself a change of the node.
  const HandshakeVerdict still = JudgeHandshake(Input(std::nullopt, 0), dropped);
  EXPECT_FALSE(still.healthy);
  EXPECT_EQ(still.action, HandshakeAction::kNothing);
  EXPECT_EQ(still.memory, dropped);
  EXPECT_TRUE(JudgeHandshake(Input(std::nullopt, 1), dropped).healthy);
  EXPECT_TRUE(JudgeHandshake(Input(std::nullopt, 0, "[1]"), dropped).healthy);
  EXPECT_TRUE(JudgeHandshake(Input("Reported_x", 0), dropped).healthy);
  const HandshakeMemory answered{0, "[]", true, "Reported_x"};
  EXPECT_FALSE(JudgeHandshake(Input("Reported_x", 0), answered).healthy) << "it said so before it went";
  EXPECT_TRUE(JudgeHandshake(Input("Reported_y", 0), answered).healthy);
  EXPECT_FALSE(JudgeNvidia(Input(std::nullopt, 0), dropped).healthy);
}

TEST(NvidiaHandshake, GivenChangesOfAllocatable_ThenTheyDecide) {
  const auto judge = [](std::int64_t now, std::int64_t before, const char* text, const char* value) {
    return JudgeNvidia(Input(value, now, text), {before, "[]", false});
  };
  const char* young = "Requesting_2026-08-01 11:59:59";
  const char* old = "Requesting_2026-08-01 11:00:00";
  EXPECT_FALSE(judge(0, 8, "[]", young).healthy);
  EXPECT_EQ(judge(0, 8, "[]", young).action, HandshakeAction::kDelete);
  EXPECT_TRUE(judge(8, 0, "[]", young).refresh);
  EXPECT_TRUE(judge(7, 8, "[]", old).refresh);
  EXPECT_TRUE(judge(8, 8, "[2]", young).refresh);
  EXPECT_TRUE(judge(8, 8, "", young).refresh);
  EXPECT_FALSE(judge(8, 8, "[]", young).refresh);
  EXPECT_TRUE(judge(0, 0, "[2]", young).healthy);
  EXPECT_FALSE(judge(0, 0, "[2]", young).refresh);
  EXPECT_FALSE(judge(0, 0, "[]", old).healthy);
}

TEST(Lists, GivenBlanksAndEmptyMembers_ThenOnlyNamesRemain) {
  EXPECT_THAT(SplitList(" a ,, b,"), ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(SplitList(" , "), ::testing::IsEmpty());
}

const std::vector<MigProfile> kProfiles = {{"7g.40gb", 40192, 100, 7, {{0, 8}}},
                                           {"3g.20gb", 19968, 43, 3, {{0, 4}, {4, 4}}},
                                           {"1g.5gb", 4864, 15, 1, {{0, 1}, {1, 1}, {6, 1}}},
                                           {"2g.10gb", 9856, 29, 2, {{0, 2}, {2, 2}, {4, 2}}}};

TEST(MigPlacement, GivenProfilesInAnyOrder_ThenSmallestThatHoldsMemoryIsTaken) {
  const auto choice = ChooseMig(kProfiles, 4865, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->profile, 3);
  EXPECT_EQ(choice->placement, (MigPlacement{0, 2}));
}

TEST(MigPlacement, GivenNoPlaceForTheSmallest_ThenALargerOneIsTaken) {
  const std::vector<MigPlacement> taken = {{0, 1}, {1, 1}, {6, 1}};
  const auto choice = ChooseMig(kProfiles, 1000, taken);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->profile, 3);
  EXPECT_EQ(choice->placement, (MigPlacement{2, 2}));
}

TEST(MigPlacement, GivenPlacesOfNoSize_ThenTheyArePassedOver) {
  const std::vector<MigProfile> broken = {{"1g.5gb", 100, 10, 1, {{0, 0}}}};
  EXPECT_FALSE(ChooseMig(broken, 1, {}));
}

// Every subset, by its bit pattern in the order of enumeration.
std::vector<int> BruteForce(int n, int k, const std::vector<std::int64_t>& scores) {
  std::vector<int> best;
  std::int64_t best_sum = 0;
  for (unsigned bits = 0; bits < 1U << n; ++bits) {
    if (std::popcount(bits) != k) continue;
    std::vector<int> set;
    for (int i = 0; i < n; ++i) {
      if ((bits >> i & 1U) != 0) set.push_back(i);
    }
    std::int64_t sum = 0;
    for (int a = 0; a < k; ++a) {
      for (int b = a + 1; b < k; ++b) {
        sum +=
            scores[static_cast<std::size_t>(set[static_cast<std::size_t>(a)] * n + set[static_cast<std::size_t>(b)])];
      }
    }
    if (best.empty() || sum > best_sum || (sum == best_sum && set < best)) {
      best = set;
      best_sum = sum;
    }
  }
  return best;
}

TEST(Topology, GivenAnyScores_ThenTheChoiceIsThatOfTryingAll) {
  unsigned state = 1;
  const auto random = [&] { return (state = state * 1664525U + 1013904223U) >> 16; };
  for (int round = 0; round < 200; ++round) {
    const int n = 2 + static_cast<int>(random() % 8);
    const int k = 2 + static_cast<int>(random() % static_cast<unsigned>(n - 1));
    std::vector<std::int64_t> scores(static_cast<std::size_t>(n * n));
    for (auto& score : scores) score = static_cast<std::int64_t>(random() % 4) * 10 - 5;
    const auto pair = [&](int a, int b) { return scores[static_cast<std::size_t>(a * n + b)]; };
    EXPECT_EQ(ChooseClosest(n, k, pair), BruteForce(n, k, scores)) << "n " << n << " k " << k;
  }
}

TEST(Topology, GivenSixteenCards_WhenEightAreWanted_ThenTheChoiceIsExact) {
  // Two boards of eight, where the better one is not the first.
  const auto pair = [](int a, int b) -> std::int64_t {
    return a % 2 == b % 2 ? (a % 2 == 1 ? 120 : 110) : 10 + (a + b) % 7;
  };
  EXPECT_THAT(ChooseClosest(16, 8, pair), ::testing::ElementsAre(1, 3, 5, 7, 9, 11, 13, 15));
}

// Seven places on each of eight cards: among so many not all choices are looked at, and the first in order are poor.
TEST(Topology, GivenManyInstances_WhenEightAreWanted_ThenAsGoodAsOneByOne) {
  const auto pair = [](int a, int b) -> std::int64_t {
    const unsigned cards = static_cast<unsigned>(a / 7 * 8 + b / 7);
    return a / 7 == b / 7 ? 0 : 10 + (cards * 2654435761U >> 20) % 11 * 10;
  };
  const std::vector<int> chosen = ChooseClosest(56, 8, pair);
  ASSERT_EQ(chosen.size(), 8U);
  std::int64_t sum = 0;
  for (const int a : chosen) {
    for (const int b : chosen) sum += a < b ? pair(a, b) : 0;
  }
  EXPECT_GE(sum, 2250);  // in order alone 2020, and two million steps found 2190
}

}  // namespace
}  // namespace hami::device
