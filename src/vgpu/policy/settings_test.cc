// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/settings.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace hami::vgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

std::map<std::string, std::string>& Environment() {
  static std::map<std::string, std::string> environment;
  return environment;
}
char* Get(const char* name) {
  const auto found = Environment().find(name);
  return found == Environment().end() ? nullptr : found->second.data();
}
Settings Read(std::map<std::string, std::string> environment) {
  Environment() = std::move(environment);
  Settings settings;
  ReadSettings(&settings, &Get);
  return settings;
}

struct SizeCase {
  const char* text;
  uint64_t bytes;
  bool warn;
  bool invalid;
};

class ParseSizeTest : public testing::TestWithParam<SizeCase> {};

TEST_P(ParseSizeTest, GivenSpelling_WhenParsed_ThenMeansWhatItSays) {
  const SizeCase& c = GetParam();
  const ParsedSize size = ParseSize(c.text);
  EXPECT_EQ(size.bytes, c.bytes) << c.text;
  EXPECT_EQ(size.warn, c.warn) << c.text;
  EXPECT_EQ(size.invalid, c.invalid) << c.text;
}

INSTANTIATE_TEST_SUITE_P(
    Spellings, ParseSizeTest,
    testing::Values(SizeCase{"0", 0, false, false}, SizeCase{"", 0, false, false}, SizeCase{"1", 1, false, false},
                    SizeCase{"1k", 1024, false, false}, SizeCase{"1024m", kGiB, false, false},
                    SizeCase{"3g", 3 * kGiB, false, false}, SizeCase{"3G", 3 * kGiB, false, false},
                    SizeCase{"0x40000000", kGiB, false, false}, SizeCase{"0x10M", 16 * kMiB, false, false},
                    // HAMi reads the last letter as the unit, and these as 1, 1 and 15360 bytes.
                    SizeCase{"1GB", kGiB, true, false}, SizeCase{"1Gi", kGiB, true, false},
                    SizeCase{"15360MB", 15 * kGiB, true, false}, SizeCase{"1GiB", kGiB, true, false},
                    SizeCase{"2t", 2048 * kGiB, true, false}, SizeCase{"512b", 512, true, false},
                    // HAMi reads octal: 8 GiB.
                    SizeCase{"010g", 10 * kGiB, true, false}, SizeCase{"  7m", 7 * kMiB, false, false},
                    SizeCase{"3x", 0, false, true}, SizeCase{"g", 0, false, true}, SizeCase{"-1", 0, false, true},
                    SizeCase{"1gig", 0, false, true}, SizeCase{"18446744073709551615", UINT64_MAX, false, false},
                    SizeCase{"18446744073709551616", 0, false, true}, SizeCase{"17179869184g", 0, false, true}));

TEST(ControlDisabled, GivenTheSignOfWhoeverMadeTheContainer_ThenTheVariableDoesNotCount) {
  constexpr const char* kNoFile = "/nowhere/control";
  Environment() = {};
  EXPECT_FALSE(ControlDisabled(&Get, kNoFile));
  Environment() = {{"CUDA_DISABLE_CONTROL", "true"}};
  errno = 7;
  EXPECT_TRUE(ControlDisabled(&Get, kNoFile));
  EXPECT_FALSE(ControlDisabled(&Get, "/proc/self/exe"));
  EXPECT_EQ(errno, 7) << "a program may look at it after a call that it made";
}

TEST(ReadSettings, GivenNothing_ThenNothingIsLimited) {
  const Settings s = Read({});
  EXPECT_EQ(s.memory_limit[0], 0u);
  EXPECT_EQ(s.sm_limit[15], 100u);
  EXPECT_STREQ(s.region_path, "/tmp/cudevshr.cache");
  EXPECT_FALSE(s.oversubscribe);
  EXPECT_FALSE(s.kill_on_refusal);
}

TEST(ReadSettings, GivenGlobalAndNumberedLimits_ThenTheNumberedOneWinsUnlessZero) {
  const Settings s = Read({{"CUDA_DEVICE_MEMORY_LIMIT", "2g"},
                           {"CUDA_DEVICE_MEMORY_LIMIT_1", "3g"},
                           {"CUDA_DEVICE_MEMORY_LIMIT_2", "0"},
                           {"CUDA_DEVICE_MEMORY_LIMIT_15", "5m"}});
  EXPECT_EQ(s.memory_limit[0], 2 * kGiB);
  EXPECT_EQ(s.memory_limit[1], 3 * kGiB);
  EXPECT_EQ(s.memory_limit[2], 2 * kGiB);
  EXPECT_EQ(s.memory_limit[15], 5 * kMiB);
}

TEST(ReadSettings, GivenPolicyNames_ThenAnyCaseIsUnderstood) {
  EXPECT_EQ(Read({{"GPU_CORE_UTILIZATION_POLICY", "Force"}}).policy, UtilizationPolicy::kForce);
  EXPECT_EQ(Read({{"GPU_CORE_UTILIZATION_POLICY", "DISABLE"}}).policy, UtilizationPolicy::kDisable);
  EXPECT_EQ(Read({{"GPU_CORE_UTILIZATION_POLICY", "default"}}).policy, UtilizationPolicy::kDefault);
}

TEST(ReadSettings, GivenPathLongerThanAnyPath_ThenItIsEmptyAndNotCut) {
  EXPECT_STREQ(Read({{"CUDA_DEVICE_MEMORY_SHARED_CACHE", std::string(5000, 'x')}}).region_path, "");
}

TEST(ReadSettings, GivenPercentAboveHundred_ThenNotLimited) {
  const Settings s = Read({{"CUDA_DEVICE_SM_LIMIT", "150"}, {"CUDA_DEVICE_SM_LIMIT_1", "30"}});
  EXPECT_EQ(s.sm_limit[0], 100u);
  EXPECT_EQ(s.sm_limit[1], 30u);
}

TEST(ReadSettings, GivenPriority_ThenOnlyOneThatSaysSoGivesWay) {
  EXPECT_FALSE(Read({}).gives_way);
  EXPECT_FALSE(Read({{"CUDA_TASK_PRIORITY", "0"}}).gives_way);
  EXPECT_TRUE(Read({{"CUDA_TASK_PRIORITY", "1"}}).gives_way);
}

TEST(ReadSettings, GivenBurst_ThenItIsAPercentageOrNothing) {
  EXPECT_EQ(Read({{"HAMI_CORES_BURST", "80"}}).cores_burst, 80u);
  for (const char* wrong : {"-1", "101", "much"}) EXPECT_EQ(Read({{"HAMI_CORES_BURST", wrong}}).cores_burst, 0u);
  EXPECT_STREQ(Read({{"HAMI_COMMON_AREA", std::string(5000, 'x')}}).common_path, "");
}

TEST(ParseBool, GivenUsualSpellings_ThenUnderstood) {
  for (const char* yes : {"true", "TRUE", "1", "t", "yes", "On"}) EXPECT_TRUE(ParseBool(yes, false)) << yes;
  for (const char* no : {"false", "0", "F", "no", "off"}) EXPECT_FALSE(ParseBool(no, true)) << no;
  EXPECT_TRUE(ParseBool("perhaps", true));
  EXPECT_FALSE(ParseBool(nullptr, false));
}

}  // namespace
}  // namespace hami::vgpu
