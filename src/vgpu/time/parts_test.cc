// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <bitset>
#include <random>

#include "vgpu/time/book.h"
#include "vgpu/time/busy_union.h"
#include "vgpu/time/turns.h"

namespace hami::vgpu::time {
namespace {

TEST(BusyUnion, GivenAnyStretches_ThenWhatTwoCoverCountsOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    BusyUnion busy;
    std::bitset<1000> covered;
    for (int i = 0; i < 20; ++i) {
      const auto begin = random() % 900;
      const auto end = begin + random() % 100;
      const auto before = covered.count();
      for (auto at = begin; at < end; ++at) covered.set(at);
      ASSERT_EQ(busy.Add(begin, end), static_cast<int64_t>(covered.count() - before));
    }
  }
}

TEST(BusyUnion, GivenMoreStretchesThanItKeeps_ThenNoneIsLost) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    BusyUnion busy;
    std::bitset<10'000> covered;
    int64_t paid = 0;
    for (int i = 0; i < 500; ++i) {
      const auto begin = random() % 9'000;
      const auto end = begin + random() % 10;
      for (auto at = begin; at < end; ++at) covered.set(at);
      const int64_t added = busy.Add(begin, end);
      ASSERT_GE(added, 0);
      paid += added;
      ASSERT_GE(paid, static_cast<int64_t>(covered.count()));
    }
    // What lies between is filled, and all of it is paid once.
    paid += busy.Add(0, 10'000);
    EXPECT_EQ(paid, 10'000);
  }
}

TEST(BusyUnion, GivenOnesThatNoneComesBefore_ThenTheyTakeNoRoom) {
  BusyUnion busy;
  for (int i = 0; i < 3 * BusyUnion::kStretches; ++i) {
    EXPECT_EQ(busy.Add(10 * i, 10 * i + 5), 5);
    busy.Forget(10 * i - 10);
    EXPECT_EQ(busy.Add(10 * i, 10 * i + 2), 0);
  }
}

constinit CostBook g_book;

TEST(CostBook, GivenAKindInAnotherGrid_ThenTheLastCostOfItsKernelIsTheGuess) {
  g_book.Reset();
  EXPECT_EQ(g_book.Expected(9, 77), 0);
  g_book.Teach(9, 77, 1'000);
  EXPECT_EQ(g_book.Price(9), 1'000);
  EXPECT_EQ(g_book.Price(17), 0);
  EXPECT_EQ(g_book.Expected(17, 77), 1'000);
  g_book.Forget(9);
  EXPECT_EQ(g_book.Price(9), 0);
  EXPECT_EQ(g_book.Expected(9, 77), 1'000);
}

TEST(CostBook, GivenManyMeasurements_ThenThePriceIsTheirMean) {
  g_book.Reset();
  for (int i = 0; i < 200; ++i) g_book.Teach(9, 77, i % 2 == 0 ? 900 : 1'100);
  EXPECT_NEAR(static_cast<double>(g_book.Price(9)), 1'000, 60);
}

// Measured before more of it goes, until a few changes in a row have left what it takes as it was.
TEST(CostBook, GivenAGraphThatChanges_ThenItIsDoubtedUntilChangesAreSteady) {
  constexpr uint64_t kGraph = 8, kHandle = 99;
  g_book.Reset();
  g_book.Teach(kGraph, kHandle, 1'000, true);
  for (int change = 0; change < 3; ++change) {
    g_book.Changed(kGraph, kHandle);
    EXPECT_TRUE(g_book.Doubted(kHandle)) << change;
    EXPECT_EQ(g_book.Expected(kGraph, kHandle), 1'000) << "still the best guess";
    g_book.Teach(kGraph, kHandle, 1'000, false);
    EXPECT_TRUE(g_book.Doubted(kHandle)) << "what was launched before says nothing";
    g_book.Teach(kGraph, kHandle, 1'000, true);
    EXPECT_FALSE(g_book.Doubted(kHandle)) << change;
  }
  g_book.Changed(kGraph, kHandle);
  EXPECT_FALSE(g_book.Doubted(kHandle));
  g_book.Teach(kGraph, kHandle, 9'000, false);
  g_book.Changed(kGraph, kHandle);
  EXPECT_TRUE(g_book.Doubted(kHandle)) << "one was dearer";
}

TEST(Turns, GivenAnyContent_ThenALaunchGoesAfterAWhile) {
  std::mt19937_64 random(2);
  constexpr int kLines = 8;
  for (int round = 0; round < 300; ++round) {
    TurnLine lines[kLines];
    uint64_t word = random();
    for (TurnLine& line : lines) {
      auto* const words = reinterpret_cast<uint64_t*>(&line);
      for (size_t i = 0; i < sizeof line / sizeof *words; ++i) words[i] = random() % 4 == 0 ? random() : random() % 3;
      line.gpu = 7;
    }
    Turns turns;
    turns.Join({lines, kLines, 7, &word}, 0);
    int64_t now = 1'000'000'000;
    const int64_t end = now + 5'000'000'000;
    Turns::Verdict verdict{.go = false};
    while (!verdict.go && now < end) {
      verdict = turns.Ask(turns.Look(1, now), {.rank = 1, .owed = true, .zero_at = now - 1}, now);
      ASSERT_TRUE(verdict.go || (verdict.until > now && verdict.until < now + 10'000'000));
      now = verdict.until;
    }
    EXPECT_TRUE(verdict.go) << round;
  }
}

}  // namespace
}  // namespace hami::vgpu::time
