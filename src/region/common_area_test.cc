// SPDX-License-Identifier: Apache-2.0
#include "region/common_area.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace hami::region {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kNow = 1'000'000 * kMs;
constexpr uint64_t kGpu = 77;

TEST(CommonLines, WhenAProcessJoinsAgain_ThenItHasItsLine_AndTheDeadLoseTheirs) {
  const auto area = std::make_unique<CommonArea>();
  const auto region = std::make_unique<char[]>(sizeof(PrivateArea) + sizeof(RegionMembers));
  for (const CommonLines& lines :
       {CommonLinesOf(area.get()), CommonLinesOf(reinterpret_cast<PrivateArea*>(region.get()))}) {
    const auto join = [&](uint64_t process, int64_t now = kNow) { return lines.Join(-1, process, kGpu, now); };
    const int first = join(1);
    EXPECT_EQ(join(1), first);
    EXPECT_EQ(lines.Join(first, 1, kGpu, kNow), first);
    EXPECT_NE(lines.Join(first, 1, kGpu + 1, kNow), first) << "another GPU";
    for (int i = 2; i < lines.room; ++i) ASSERT_GE(join(static_cast<uint64_t>(i)), 0);
    EXPECT_EQ(join(1000), -1);
    const int late = join(1000, kNow + kCommonPresent);
    ASSERT_GE(late, 0);
    EXPECT_TRUE(lines.Has(late, 1000, kGpu));
    EXPECT_FALSE(lines.Has(late, 1, kGpu));
  }
}

TEST(CommonLines, WhenALineIsTakenOver_ThenNothingOfTheOneBeforeIsInIt) {
  const auto area = std::make_unique<CommonArea>();
  const CommonLines lines = CommonLinesOf(area.get());
  CommonMember& line = lines.lines[lines.Join(-1, 1, kGpu, kNow)];
  line.work_until = line.waiting_at = line.zero_at = kNow;
  line.word = 7;
  line.rate = line.flags = 7;
  line.rank = 0;
  const int64_t later = kNow + 2 * kCommonPresent;
  ASSERT_EQ(lines.Join(-1, 2, kGpu, later), &line - lines.lines);
  EXPECT_EQ(line.work_until, 0);
  EXPECT_EQ(line.waiting_at, 0);
  EXPECT_EQ(line.zero_at, 0);
  EXPECT_EQ(line.word, 0u);
  EXPECT_EQ(line.rate | line.flags, 0);
  EXPECT_LT(line.rank, 0) << "it goes before nobody until it says how important it is";
  EXPECT_EQ(line.seen_at, later);
}

TEST(CommonBurst, GivenIdleTime_ThenItIsSharedByWeight) {
  EXPECT_EQ(CommonBurstRate(3000, 8000, 0), 8000u);       // alone: up to the ceiling
  EXPECT_EQ(CommonBurstRate(3000, 9999, 3000), 5000u);    // two of a kind
  EXPECT_EQ(CommonBurstRate(3000, 9999, 1000), 7500u);    // 3 : 1
  EXPECT_EQ(CommonBurstRate(3000, 9999, 7000), 3000u);    // nothing is idle
  EXPECT_EQ(CommonBurstRate(3000, 9999, 30'000), 3000u);  // never below the limit
  EXPECT_EQ(CommonBurstRate(3000, 2000, 0), 3000u);
}

TEST(CommonAreaFile, WhenMade_ThenItOpens_AndMakingItAgainChangesNothing) {
  const std::string path = testing::TempDir() + "/common-" + std::to_string(getpid());
  EXPECT_EQ(OpenCommonArea(path.c_str()).area, nullptr);
  ASSERT_TRUE(CreateCommonArea(path.c_str()));
  const CommonFile file = OpenCommonArea(path.c_str());
  ASSERT_NE(file.area, nullptr);
  EXPECT_EQ(CommonLinesOf(file.area).Join(-1, 5, kGpu, kNow), 0);
  ASSERT_TRUE(CreateCommonArea(path.c_str()));
  EXPECT_TRUE(CommonLinesOf(file.area).Has(0, 5, kGpu));
  EXPECT_TRUE(CommonIsWhole(file, path.c_str()));
  std::filesystem::resize_file(path, 100);
  EXPECT_FALSE(CommonIsWhole(file, path.c_str()));
  EXPECT_EQ(OpenCommonArea(path.c_str()).area, nullptr);
  munmap(file.area, sizeof(CommonArea));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace hami::region
