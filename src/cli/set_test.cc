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

std::vector<Device> Gpus(std::uint64_t outside = 0) {
  return {{1, "GPU-b", 80 * kGiB, 0}, {0, "GPU-a", 80 * kGiB, outside}};
}

const std::vector<Holder> kOthers = {{"serve", {{"GPU-a", 30 * kGiB, 30 * kGiB, 40}}},
                                     {"else", {{"GPU-b", 70 * kGiB, 70 * kGiB, 100}}}};

TEST(PlanChangeTest, GivenRoom_ThenOnlyWhatWasNamedChanges) {
  const auto cores = PlanChange(Record(), Change({}, 60), Gpus(), kOthers);
  ASSERT_TRUE(cores.has_value());
  EXPECT_EQ(cores->grants[0].cores, 60u);
  EXPECT_EQ(cores->grants[0].limit_bytes, 10 * kGiB);
  const auto memory = PlanChange(Record(), Change(base::Portion(base::Percent{50}), {}), Gpus(), kOthers);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->grants[0].cores, 30u);
  EXPECT_EQ(memory->grants[0].reserved_bytes, memory->grants[0].limit_bytes);
  EXPECT_EQ(memory->grants[0].limit_bytes, 40 * kGiB);
}

TEST(PlanChangeTest, GivenOthersHoldTheRest_ThenRefused) {
  EXPECT_FALSE(PlanChange(Record(), Change({}, 61), Gpus(), kOthers).has_value());
  EXPECT_FALSE(PlanChange(Record(), Change(base::Portion(base::Percent{70}), {}), Gpus(), kOthers).has_value());
}

TEST(PlanChangeTest, GivenOversubscription_ThenTheLimitMayExceedWhatIsSetAside) {
  ShareRecord record = Record();
  record.oversubscribe = true;
  const auto changed = PlanChange(record, Change(base::Portion(base::Percent{100}), {}), Gpus(), kOthers);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->grants[0].reserved_bytes, 50 * kGiB);
  EXPECT_GT(changed->grants[0].limit_bytes, 79 * kGiB);
}

TEST(PlanChangeTest, GivenPercent_ThenWholeMiBAsForRun) {
  const std::vector<Device> odd{{0, "GPU-a", 1001 * base::kMiB + 17, 0}};
  const auto changed = PlanChange(Record(), Change(base::Portion(base::Percent{30}), {}), odd, {});
  ASSERT_TRUE(changed.has_value()) << changed.error().message;
  EXPECT_EQ(changed->grants[0].limit_bytes, 300 * base::kMiB);
}

TEST(PlanChangeTest, GivenProcessesOutsideAnyShare_ThenWhatTheyUseIsNotGranted) {
  const auto asks = [](std::uint64_t gib) { return Change(base::Portion(base::Bytes{gib * kGiB}), {}); };
  EXPECT_TRUE(PlanChange(Record(), asks(50), Gpus(), kOthers).has_value());
  EXPECT_TRUE(PlanChange(Record(), asks(45), Gpus(5 * kGiB), kOthers).has_value());
  EXPECT_FALSE(PlanChange(Record(), asks(46), Gpus(5 * kGiB), kOthers).has_value());
}

TEST(PlanChangeTest, GivenNoRoomLeft_ThenTakingLessIsStillPossible) {
  const std::vector<Holder> all{{"hog", {{"GPU-a", 80 * kGiB, 80 * kGiB, 100}}}};
  const auto less = PlanChange(Record(), Change(base::Portion(base::Bytes{9 * kGiB}), 20), Gpus(), all);
  ASSERT_TRUE(less.has_value()) << less.error().message;
  EXPECT_EQ(less->grants[0].limit_bytes, 9 * kGiB);
  EXPECT_EQ(less->grants[0].reserved_bytes, 9 * kGiB);
  EXPECT_EQ(less->grants[0].cores, 20u);
  EXPECT_FALSE(PlanChange(Record(), Change({}, 31), Gpus(), all).has_value());
}

TEST(PlanChangeTest, GivenBurst_ThenItMustGoBeyondTheCoresOrGoes) {
  SetOptions burst = Change({}, {});
  burst.burst = 80;
  const auto with = PlanChange(Record(), burst, Gpus(), kOthers);
  ASSERT_TRUE(with.has_value());
  EXPECT_EQ(with->grants[0].burst, 80u);
  EXPECT_EQ(with->grants[0].cores, 30u);
  burst.burst = 30;
  EXPECT_FALSE(PlanChange(Record(), burst, Gpus(), kOthers).has_value());
  burst.burst = 0;
  EXPECT_EQ(PlanChange(*with, burst, Gpus(), kOthers)->grants[0].burst, 0u);
  EXPECT_EQ(PlanChange(*with, Change({}, 60), Gpus(), kOthers)->grants[0].burst, 80u);
  EXPECT_EQ(PlanChange(*with, Change({}, 90), Gpus(), {})->grants[0].burst, 0u) << "the cores passed it";
  ShareRecord unlimited = Record();
  unlimited.grants[0].cores = 0;
  burst.burst = 80;
  EXPECT_FALSE(PlanChange(unlimited, burst, Gpus(), kOthers).has_value());
}

TEST(PlanChangeTest, GivenPriority_ThenOnlyItChanges) {
  SetOptions change = Change({}, {});
  change.priority = Priority::kHigh;
  const auto changed = PlanChange(Record(), change, Gpus(), kOthers);
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->priority, Priority::kHigh);
  EXPECT_EQ(changed->grants[0].cores, 30u);
  EXPECT_EQ(PlanChange(*changed, Change({}, 40), Gpus(), kOthers)->priority, Priority::kHigh);
}

TEST(PlanChangeTest, GivenUnknownSize_ThenAPercentageIsRefused) {
  EXPECT_FALSE(
      PlanChange(Record(), Change(base::Portion(base::Percent{50}), {}), {{0, "GPU-a", 0, 0}}, kOthers).has_value());
}

}  // namespace
}  // namespace hami::cli
