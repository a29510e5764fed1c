// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/steps.h"

#include <gtest/gtest.h>

namespace hami::vgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(StepOf, GivenOneGrowth_ThenTheSmallestStepThatExplainsIt) {
  EXPECT_EQ(StepOf(0, 1, 2 * kMiB), 2 * kMiB);
  EXPECT_EQ(StepOf(0, 3 * kMiB, 4 * kMiB), 2 * kMiB);
  EXPECT_EQ(StepOf(0, 1024, 32 * kMiB), 32 * kMiB);
  EXPECT_EQ(StepOf(0, 33 * kMiB, 64 * kMiB), 32 * kMiB);
  EXPECT_EQ(StepOf(0, 100 * kMiB, 100 * kMiB), 2 * kMiB);
}

TEST(StepOf, GivenSmallerGrowthLater_ThenWhatIsKnownStays) {
  EXPECT_EQ(StepOf(32 * kMiB, 1, 2 * kMiB), 32 * kMiB);
  EXPECT_EQ(StepOf(2 * kMiB, 1, 32 * kMiB), 32 * kMiB);
}

TEST(StepOf, GivenAbsurdGrowth_ThenTheStepIsBounded) {
  EXPECT_EQ(StepOf(0, 1, uint64_t{1} << 40), kLargestStep);
  EXPECT_EQ(StepOf(0, 0, UINT64_MAX), kLargestStep);
}

TEST(StepClass, GivenSmallAndLargeBlocks_ThenTheyAreLearntApart) {
  EXPECT_EQ(StepClass(1), 0);
  EXPECT_EQ(StepClass(32 * kMiB - 1), 0);
  EXPECT_EQ(StepClass(32 * kMiB), 1);
}

}  // namespace
}  // namespace hami::vgpu
