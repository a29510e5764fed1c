// SPDX-License-Identifier: Apache-2.0

#include "monitor/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "monitor/resized.h"

namespace hami::monitor {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

device::Share GrantOf(const std::string& uuid, std::int64_t mib, int cores) { return {uuid, "NVIDIA", mib, cores}; }

RegionView RegionOf(const std::vector<std::string>& uuids) {
  RegionView region;
  for (const std::string& uuid : uuids) region.devices.emplace_back().uuid = uuid;
  return region;
}

std::optional<ContainerWish> WishOf(const std::string& text) {
  const auto wishes = ParseResize("{\"c\": " + text + "}");
  EXPECT_TRUE(wishes) << wishes.error().message;
  return wishes ? std::optional(wishes->at("c")) : std::nullopt;
}

TEST(ParseResized, GivenABookThatIsNotOne_ThenWhatIsNoNameIsLeftOut) {
  EXPECT_THAT(ParseResized("uid-a_main\n../../etc_x\n\nuid-b_c\nuid"), testing::ElementsAre("uid-a_main", "uid-b_c"));
}

TEST(ParseResize, GivenSizesWithUnitsAndMiB_ThenBothAreRead) {
  const auto wishes = ParseResize(R"({"a": {"memory": "6Gi", "cores": 40}, "b": [{"memory": 512}, {"cores": 1}]})");
  ASSERT_TRUE(wishes) << wishes.error().message;
  EXPECT_EQ(wishes->at("a"), (ContainerWish{true, {{6 * kGiB, 40}}}));
  EXPECT_EQ(wishes->at("b"), (ContainerWish{false, {{kGiB / 2, std::nullopt}, {std::nullopt, 1}}}));
}

TEST(ParseResize, AnAmountIsReadAsInAResource) {
  const std::pair<const char*, std::uint64_t> cases[] = {{"6000", 6000}, {"6k", 6000}, {"6Gi", 6144},  {"1.5Gi", 1536},
                                                         {"2047Ki", 1},  {"6g", 6144}, {"6 GiB", 6144}};
  for (const auto& [text, mib] : cases) {
    const auto wish = WishOf(std::string(R"({"memory": ")") + text + "\"}");
    ASSERT_TRUE(wish) << text;
    EXPECT_EQ(wish->wishes.front().memory_bytes, mib * base::kMiB) << text;
  }
  const auto refused = ParseResize(R"({"c": {"memory": "6G"}})");
  EXPECT_EQ(refused.error().message, "c: memory 6G is too many MiB");
  EXPECT_EQ(refused.error().hint, "if bytes are meant, write 5722Mi");
}

TEST(ParseResize, GivenWhatIsNotUnderstood_ThenItIsRefusedWithItsPlace) {
  for (const char* text : {"", "6Gi", "[]", R"({"c": 5})", R"({"c": []})", R"({"c": {"memroy": "6Gi"}})",
                           R"({"c": {"memory": "6G"}})", R"({"c": {"memory": 0}})", R"({"c": {"memory": -1}})",
                           R"({"c": {"memory": 1.5}})", R"({"c": {"memory": "1Ki"}})",
                           R"({"c": {"memory": 6000000000}})", R"({"c": {"memory": "0"}})", R"({"c": {"cores": 0}})",
                           R"({"c": {"cores": 101}})", R"({"c": {"cores": "40"}})", R"({"c": [{"cores": 1}, 2]})"}) {
    EXPECT_FALSE(ParseResize(text)) << text;
  }
  EXPECT_THAT(ParseResize(R"({"train": {"cores": 0}})").error().message, HasSubstr("train: cores"));
  EXPECT_FALSE(ParseResize("{\"c\": {}}" + std::string(70'000, ' ')));
}

TEST(PlanResize, GivenWishWithinGrant_ThenItIsTheLimitAndWhatIsLeftOutStays) {
  const ResizePlan plan = PlanResize(WishOf(R"({"memory": "2Gi"})"), {GrantOf("GPU-0", 4096, 30)}, RegionOf({"GPU-0"}));
  EXPECT_EQ(plan.state, ResizeState::kApplied);
  EXPECT_THAT(plan.limits, testing::ElementsAre(Limit{0, 2 * kGiB, 30}));
}

TEST(PlanResize, GivenMoreThanGranted_ThenRefusedAsSchedulerDidNotSetItAside) {
  const device::ContainerGrant grant{GrantOf("GPU-0", 4096, 30)};
  const ResizePlan memory = PlanResize(WishOf(R"({"memory": "5Gi"})"), grant, RegionOf({"GPU-0"}));
  EXPECT_EQ(memory.state, ResizeState::kRefused);
  EXPECT_THAT(memory.reason, HasSubstr("5 GiB are more than the 4 GiB that were granted of GPU-0"));
  EXPECT_TRUE(memory.limits.empty());
  EXPECT_EQ(PlanResize(WishOf(R"({"cores": 31})"), grant, RegionOf({"GPU-0"})).state, ResizeState::kRefused);
}

TEST(PlanResize, GivenAGrantWithoutACoreLimit_ThenAnyLimitIsWithinIt) {
  const ResizePlan plan = PlanResize(WishOf(R"({"cores": 90})"), {GrantOf("GPU-0", 4096, 0)}, RegionOf({"GPU-0"}));
  EXPECT_THAT(plan.limits, testing::ElementsAre(Limit{0, 4 * kGiB, 90}));
}

TEST(PlanResize, GivenNoWishAnyMore_ThenTheGrantIsTheLimit) {
  const ResizePlan plan = PlanResize(std::nullopt, {GrantOf("GPU-0", 4096, 30)}, RegionOf({"GPU-0"}));
  EXPECT_THAT(plan.limits, testing::ElementsAre(Limit{0, 4 * kGiB, 30}));
}

// A7: the order of the grant need not be the order of the GPUs in the container.
TEST(PlanResize, GivenRegionInOtherOrderThanGrant_ThenLimitsMatchGpusByUuid) {
  const ResizePlan plan =
      PlanResize(WishOf(R"([{"memory": "1Gi"}, {"memory": "2Gi"}])"),
                 {GrantOf("GPU-b", 4096, 0), GrantOf("GPU-a", 8192, 0)}, RegionOf({"GPU-a", "GPU-b"}));
  EXPECT_THAT(plan.limits, testing::ElementsAre(Limit{1, kGiB, 0}, Limit{0, 2 * kGiB, 0}));
}

TEST(PlanResize, GivenRegionWithoutUuidsYet_ThenEqualLimitsApplyOthersWait) {
  const device::ContainerGrant grant{GrantOf("GPU-a", 4096, 0), GrantOf("GPU-b", 4096, 0)};
  EXPECT_THAT(PlanResize(WishOf(R"({"memory": "1Gi"})"), grant, RegionOf({})).limits,
              testing::ElementsAre(Limit{0, kGiB, 0}, Limit{1, kGiB, 0}));
  const ResizePlan waits = PlanResize(WishOf(R"([{"memory": "1Gi"}, {"memory": "2Gi"}])"), grant, RegionOf({}));
  EXPECT_EQ(waits.state, ResizeState::kWaiting);
  EXPECT_TRUE(waits.limits.empty());
}

TEST(PlanResize, GivenAListOfTheWrongLengthOrNoGrant_ThenItIsRefused) {
  const device::ContainerGrant grant{GrantOf("GPU-a", 4096, 0)};
  EXPECT_EQ(PlanResize(WishOf(R"([{"cores": 1}, {"cores": 2}])"), grant, RegionOf({"GPU-a"})).state,
            ResizeState::kRefused);
  EXPECT_EQ(PlanResize(WishOf(R"({"cores": 1})"), {}, RegionOf({"GPU-a"})).state, ResizeState::kRefused);
}

TEST(PlanResize, GivenLessThanIsInUse_ThenItIsAppliedAndSaysWhatFollows) {
  RegionView region = RegionOf({"GPU-0"});
  region.devices[0].used = 3 * kGiB;
  const ResizePlan plan = PlanResize(WishOf(R"({"memory": "2Gi"})"), {GrantOf("GPU-0", 4096, 0)}, region);
  EXPECT_EQ(plan.state, ResizeState::kApplied);
  EXPECT_THAT(plan.reason, HasSubstr("3 GiB are in use"));
}

}  // namespace
}  // namespace hami::monitor
