// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/utilization.h"

#include <gtest/gtest.h>

#include <vector>

namespace hami::vgpu {
namespace {

constexpr uint64_t kSince = 5'000'000, kNow = 6'000'000;
constexpr unsigned kSelf = 10;

struct Figure {
  unsigned pid;
  uint64_t at;
  unsigned percent;
};

struct Taken {
  bool news;
  Utilization had;
  uint64_t since;
};

Taken Take(const std::vector<Figure>& given, unsigned self = kSelf) {
  std::vector<nvmlProcessUtilizationSample_t> figures;
  for (const Figure& figure : given) figures.push_back({figure.pid, figure.at, figure.percent, 0, 0, 0});
  UtilizationWatch watch{.since = kSince};
  Taken taken{};
  taken.news = watch.Take(figures.data(), static_cast<unsigned>(figures.size()), kNow, self, &taken.had);
  taken.since = watch.since;
  return taken;
}

// Seen to run at other moments, but each is the mean of all of the time.
TEST(Utilization, GivenOneFigureEach_ThenEachIsOfTheWholeSpan) {
  const Taken taken = Take({{kSelf, kSince + 500'000, 30}, {11, kSince + 800'000, 50}, {12, kSince + 700'000, 5}});
  EXPECT_TRUE(taken.news);
  EXPECT_EQ(taken.had.own, 240'000'000);
  EXPECT_EQ(taken.had.others, 440'000'000);
  EXPECT_EQ(taken.had.processes, 2);
  EXPECT_EQ(taken.since, kSince + 800'000);
}

// Counted twice, a process that is known would seem to be one more, and this one to have had more than it did.
TEST(Utilization, GivenSeveralFiguresOfAProcess_ThenTheNewestCounts) {
  const Taken taken = Take({{kSelf, kSince + 500'000, 80},
                            {11, kSince + 900'000, 60},
                            {kSelf, kSince + 1'000'000, 30},
                            {11, kSince + 400'000, 20}});
  EXPECT_EQ(taken.had.own, 300'000'000);
  EXPECT_EQ(taken.had.others, 600'000'000);
  EXPECT_EQ(taken.had.processes, 1);
}

TEST(Utilization, GivenOldFiguresAndNonsense_ThenTheyDoNotCount) {
  const Taken taken = Take({{kSelf, kSince + 1'000'000, 30},
                            {11, kSince, 50},
                            {12, kNow + 1, 50},
                            {13, kSince + 900'000, 3'000'000},
                            {14, kSince + 900'000, 0}});
  EXPECT_TRUE(taken.news);
  EXPECT_EQ(taken.had.others, 0);
  EXPECT_EQ(taken.had.processes, 0);
  EXPECT_EQ(taken.since, kNow);
  EXPECT_FALSE(Take({{kSelf, kSince, 30}}).news);
}

TEST(Utilization, GivenAProcessThatNvmlDoesNotList_ThenItSaysNothing) {
  EXPECT_FALSE(Take({{11, kSince + 1'000'000, 50}}).news);
  EXPECT_FALSE(Take({{0, kSince + 1'000'000, 50}}, 0).news);
}

}  // namespace
}  // namespace hami::vgpu
