// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/pool_granularity.h"

#include <gtest/gtest.h>

namespace hami::vgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(GranularityOf, GivenOneGrowth_ThenTheSmallestStepThatExplainsIt) {
  EXPECT_EQ(GranularityOf(0, 1, 2 * kMiB), 2 * kMiB);
  EXPECT_EQ(GranularityOf(0, 3 * kMiB, 4 * kMiB), 2 * kMiB);
  EXPECT_EQ(GranularityOf(0, 1024, 32 * kMiB), 32 * kMiB);
  EXPECT_EQ(GranularityOf(0, 33 * kMiB, 64 * kMiB), 32 * kMiB);
  EXPECT_EQ(GranularityOf(0, 100 * kMiB, 100 * kMiB), 2 * kMiB);
}

TEST(GranularityOf, GivenSmallerGrowthLater_ThenWhatIsKnownStays) {
  EXPECT_EQ(GranularityOf(32 * kMiB, 1, 2 * kMiB), 32 * kMiB);
  EXPECT_EQ(GranularityOf(2 * kMiB, 1, 32 * kMiB), 32 * kMiB);
}

TEST(GranularityOf, GivenAbsurdGrowth_ThenTheStepIsBounded) {
  EXPECT_EQ(GranularityOf(0, 1, uint64_t{1} << 40), kLargestGranularity);
  EXPECT_EQ(GranularityOf(0, 0, UINT64_MAX), kLargestGranularity);
}

TEST(GranularityClass, GivenSmallAndLargeBlocks_ThenTheyAreLearntApart) {
  EXPECT_EQ(GranularityClass(1), 0);
  EXPECT_EQ(GranularityClass(32 * kMiB - 1), 0);
  EXPECT_EQ(GranularityClass(32 * kMiB), 1);
}

}  // namespace
}  // namespace hami::vgpu
