// SPDX-License-Identifier: Apache-2.0

#include "cli/set.h"

#include <gtest/gtest.h>

namespace hami::cli {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

ShareRecord Record() {
  ShareRecord record;
  record.name = "train";
  record.grants = {{"GPU-a", 10 * kGiB, 10 * kGiB, 30}};
  return record;
}

SetOptions Change(std::optional<base::Portion> memory, std::optional<unsigned> cores) {
  SetOptions options;
  options.name = "train";
  options.memory = memory;
  options.cores = cores;
  return options;
}

const std::vector<Holder> kOthers = {{"serve", {{"GPU-a", 30 * kGiB, 30 * kGiB, 40}}},
                                     {"else", {{"GPU-b", 70 * kGiB, 70 * kGiB, 100}}}};

TEST(PlanChangeTest, GivenRoom_ThenOnlyWhatWasNamedChanges) {
  const auto cores = PlanChange(Record(), Change({}, 60), {80 * kGiB}, kOthers);
  ASSERT_TRUE(cores.has_value());
  EXPECT_EQ(cores->grants[0].cores, 60u);
  EXPECT_EQ(cores->grants[0].limit_bytes, 10 * kGiB);
  const auto memory = PlanChange(Record(), Change(base::Portion(base::Percent{50}), {}), {80 * kGiB}, kOthers);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->grants[0].cores, 30u);
  EXPECT_EQ(memory->grants[0].reserved_bytes, memory->grants[0].limit_bytes);
  EXPECT_NEAR(static_cast<double>(memory->grants[0].limit_bytes), 40.0 * kGiB, 100);
}

TEST(PlanChangeTest, GivenOthersHoldTheRest_ThenRefused) {
  EXPECT_FALSE(PlanChange(Record(), Change({}, 61), {80 * kGiB}, kOthers).has_value());
  EXPECT_FALSE(PlanChange(Record(), Change(base::Portion(base::Percent{70}), {}), {80 * kGiB}, kOthers).has_value());
}

TEST(PlanChangeTest, GivenOversubscription_ThenTheLimitMayExceedWhatIsSetAside) {
  ShareRecord record = Record();
  record.oversubscribe = true;
  const auto changed = PlanChange(record, Change(base::Portion(base::Percent{100}), {}), {80 * kGiB}, kOthers);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->grants[0].reserved_bytes, 50 * kGiB);
  EXPECT_GT(changed->grants[0].limit_bytes, 79 * kGiB);
}

TEST(PlanChangeTest, GivenUnknownSize_ThenAPercentageIsRefused) {
  EXPECT_FALSE(PlanChange(Record(), Change(base::Portion(base::Percent{50}), {}), {0}, kOthers).has_value());
}

}  // namespace
}  // namespace hami::cli
