// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/settings.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "vgpu/runtime/amounts.h"
#include "vgpu/runtime/log.h"

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
                    // HAMi reads these as 1 byte, or as far as the point.
                    SizeCase{"1.5g", kGiB + 512 * kMiB, true, false}, SizeCase{"0.5m", 512 * 1024, true, false},
                    SizeCase{"1.25", 1, true, false}, SizeCase{"0.25t", 256 * kGiB, true, false},
                    SizeCase{"1G ", kGiB, false, false}, SizeCase{"1g\r", kGiB, false, false},
                    SizeCase{"1g\r\n", kGiB, false, false}, SizeCase{" 1 GiB\n", kGiB, true, false},
                    SizeCase{"1024\t", 1024, false, false}, SizeCase{"  \n", 0, false, false},
                    SizeCase{"0.0", 0, true, false},
                    // Less than a byte is not none.
                    SizeCase{"0.5", 0, false, true}, SizeCase{"0.0001k", 0, false, true},
                    SizeCase{"1g,", 0, false, true}, SizeCase{"1g;2g", 0, false, true}, SizeCase{"1.g", 0, false, true},
                    SizeCase{".5g", 0, false, true}, SizeCase{"1.5.5g", 0, false, true},
                    SizeCase{"1,5g", 0, false, true}, SizeCase{"1e9", 0, false, true}, SizeCase{"30%", 0, false, true},
                    SizeCase{"1.1234567890g", 0, false, true}, SizeCase{"none", 0, false, true},
                    SizeCase{"16777215.999999999t", 16777215ull * 1024 * kGiB + 1073741822ull * 1024, true, false},
                    SizeCase{"3x", 0, false, true}, SizeCase{"g", 0, false, true}, SizeCase{"-1", 0, false, true},
                    SizeCase{"1gig", 0, false, true}, SizeCase{"18446744073709551615", UINT64_MAX, false, false},
                    SizeCase{"18446744073709551616", 0, false, true}, SizeCase{"17179869184g", 0, false, true}));

TEST(ControlDisabled, GivenSignOfContainersMaker_ThenVariableDoesNotCount) {
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

TEST(ReadSettings, GivenGlobalAndNumberedLimits_ThenNumberedOneWinsUnlessZero) {
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

TEST(ReadSettings, GivenPriority_ThenItIsKnownWhetherItWasSaid) {
  EXPECT_EQ(Read({}).priority, 1);
  EXPECT_FALSE(Read({}).says_priority);
  for (const auto& [text, priority] : {std::pair{"0", 0}, {"1", 1}, {" 2 ", 2}}) {
    EXPECT_TRUE(Read({{"CUDA_TASK_PRIORITY", text}}).says_priority);
    EXPECT_EQ(Read({{"CUDA_TASK_PRIORITY", text}}).priority, priority);
  }
}

TEST(ReadSettings, GivenBurst_ThenItIsAPercentageOrNothing) {
  EXPECT_EQ(Read({{"HAMI_CORES_BURST", "80"}}).cores_burst, 80u);
  for (const char* wrong : {"-1", "101", "much"}) EXPECT_EQ(Read({{"HAMI_CORES_BURST", wrong}}).cores_burst, 0u);
  EXPECT_STREQ(Read({{"HAMI_COMMON_AREA", std::string(5000, 'x')}}).common_path, "");
}

struct WrongCase {
  const char* name;
  const char* text;
  const char* says;  // nullptr: nothing
};

class WrongSettings : public testing::TestWithParam<WrongCase> {};

// At any level: what was asked for is not what is done.
TEST_P(WrongSettings, GivenAValue_ThenOneLineWhereItMeansNothing) {
  const WrongCase& c = GetParam();
  testing::internal::CaptureStderr();
  RememberStderr();
  Read({{c.name, c.text}});
  const std::string line = testing::internal::GetCapturedStderr();
  if (c.says == nullptr) {
    EXPECT_EQ(line, "");
    return;
  }
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_NE(line.find(std::string(c.name) + "=" + c.text + ": "), std::string::npos) << line;
  EXPECT_NE(line.find(c.says), std::string::npos) << line;
}

INSTANTIATE_TEST_SUITE_P(
    Values, WrongSettings,
    testing::Values(
        WrongCase{"CUDA_DEVICE_SM_LIMIT", "-5", "percent"}, WrongCase{"CUDA_DEVICE_SM_LIMIT", "101", "percent"},
        WrongCase{"CUDA_DEVICE_SM_LIMIT", "30%", nullptr}, WrongCase{"CUDA_DEVICE_SM_LIMIT", "30g", "percent"},
        WrongCase{"CUDA_DEVICE_SM_LIMIT", "much", "percent"}, WrongCase{"CUDA_DEVICE_SM_LIMIT_1", "1000", "percent"},
        WrongCase{"CUDA_DEVICE_SM_LIMIT_15", "x", "percent"},
        WrongCase{"CUDA_DEVICE_SM_LIMIT", "99999999999999999999", "percent"},
        WrongCase{"CUDA_DEVICE_SM_LIMIT", "", nullptr}, WrongCase{"CUDA_DEVICE_SM_LIMIT", "0", nullptr},
        WrongCase{"CUDA_DEVICE_SM_LIMIT", "100", nullptr}, WrongCase{"CUDA_DEVICE_SM_LIMIT_3", "7", nullptr},
        WrongCase{"CUDA_TASK_PRIORITY", "high", "1"}, WrongCase{"CUDA_TASK_PRIORITY", "-1", "1"},
        WrongCase{"CUDA_TASK_PRIORITY", "1x", "1"}, WrongCase{"CUDA_TASK_PRIORITY", "99999999999", "1"},
        WrongCase{"CUDA_TASK_PRIORITY", "", nullptr}, WrongCase{"CUDA_TASK_PRIORITY", "0", nullptr},
        WrongCase{"CUDA_TASK_PRIORITY", "2", nullptr}, WrongCase{"GPU_CORE_UTILIZATION_POLICY", "forced", "default"},
        WrongCase{"GPU_CORE_UTILIZATION_POLICY", "off", "default"},
        WrongCase{"GPU_CORE_UTILIZATION_POLICY", "", nullptr},
        WrongCase{"GPU_CORE_UTILIZATION_POLICY", "Default", nullptr}, WrongCase{"HAMI_CORES_BURST", "101", "percent"},
        WrongCase{"HAMI_CORES_BURST", "-3", "percent"}, WrongCase{"HAMI_CORES_BURST", "80%", "percent"},
        WrongCase{"HAMI_CORES_BURST", "", nullptr}, WrongCase{"HAMI_CORES_BURST", "0", nullptr},
        WrongCase{"CUDA_OVERSUBSCRIBE", "maybe", "neither yes nor no"},
        WrongCase{"ACTIVE_OOM_KILLER", "ture", "neither yes nor no"},
        WrongCase{"HAMI_FAIL_OPEN", "x", "neither yes nor no"}, WrongCase{"CUDA_OVERSUBSCRIBE", "", nullptr},
        WrongCase{"ACTIVE_OOM_KILLER", "off", nullptr}));

TEST(ReadSettings, LimitThatCannotBeRead_ThenItIsNotNone) {
  const Settings global = Read({{"CUDA_DEVICE_MEMORY_LIMIT", "1g,"}, {"CUDA_DEVICE_MEMORY_LIMIT_1", "2g"}});
  EXPECT_EQ(global.unread_memory_limits, 0xfffdu) << "all but the one that has its own";
  EXPECT_EQ(global.unread_sm_limits, 0u);
  const Settings numbered = Read({{"CUDA_DEVICE_MEMORY_LIMIT", "1g"}, {"CUDA_DEVICE_MEMORY_LIMIT_3", "much"}});
  EXPECT_EQ(numbered.unread_memory_limits, 8u);
  EXPECT_EQ(numbered.memory_limit[2], kGiB);
  EXPECT_EQ(Read({{"CUDA_DEVICE_SM_LIMIT", "30"}, {"CUDA_DEVICE_SM_LIMIT_1", "-5"}}).unread_sm_limits, 2u);
  EXPECT_EQ(Read({{"CUDA_DEVICE_MEMORY_LIMIT", ""}, {"CUDA_DEVICE_SM_LIMIT", " "}}).unread_memory_limits, 0u);
  EXPECT_EQ(Read({{"CUDA_DEVICE_SM_LIMIT", " 30 %\r"}}).sm_limit[7], 30u);
}

const std::string kFirst = "GPU-00000000-0000-0000-0000-000000000001";
const std::string kSecond = "GPU-00000000-0000-0000-0000-000000000002";

TEST(ReadSettings, DeviceLimitsByName_ThenDevicesAndTheLowerLimits) {
  const Settings s =
      Read({{"HAMI_DEVICE_LIMITS", kFirst + "=3072m:30," + kSecond + "=1024m:0"}, {"CUDA_DEVICE_MEMORY_LIMIT", "2g"}});
  ASSERT_EQ(s.device_count, 2u);
  EXPECT_EQ(s.uuids[0], kFirst);
  EXPECT_EQ(s.uuids[1], kSecond);
  EXPECT_EQ(s.memory_limit[0], 2 * kGiB);
  EXPECT_EQ(s.memory_limit[1], 1 * kGiB);
  EXPECT_EQ(s.sm_limit[0], 30u);
  EXPECT_EQ(s.sm_limit[1], 100u);
  for (const std::string& wrong :
       {kFirst, kFirst + "=1g", kFirst + "=x:1", std::string("=1g:1"), kFirst + "=1g:1,", kFirst + "=1g:1,,"}) {
    const Settings unread = Read({{"HAMI_DEVICE_LIMITS", wrong}});
    EXPECT_EQ(unread.device_count, 0u) << wrong;
    EXPECT_NE(unread.unread_memory_limits, 0u) << wrong;
  }
}

TEST(ReadSettings, NamesOfTheRuntime_ThenOnlyWhereTheirOrderIsNone) {
  const auto count = [](const std::string& names, const std::string& first, const std::string& second) {
    return Read({{"NVIDIA_VISIBLE_DEVICES", names},
                 {"CUDA_DEVICE_MEMORY_LIMIT_0", first},
                 {"CUDA_DEVICE_MEMORY_LIMIT_1", second}})
        .device_count;
  };
  EXPECT_EQ(count(kSecond + "," + kFirst, "1g", "1g"), 2u);
  EXPECT_EQ(count(kSecond + "," + kFirst, "1g", "2g"), 0u) << "which of them has the lower limit is not known";
  EXPECT_EQ(count(kFirst, "1g", "1g"), 0u);
  for (const char* other : {"all", "void", "0,1", "", "/var/run/nvidia-container-devices"}) {
    EXPECT_EQ(count(other, "1g", "1g"), 0u) << other;
  }
  EXPECT_EQ(Read({{"NVIDIA_VISIBLE_DEVICES", kFirst}}).device_count, 0u) << "nothing is limited here";
}

TEST(ReadSettings, GivenValuesThatMeanNothing_ThenWhatHoldsWithoutThem) {
  const Settings s = Read({{"CUDA_DEVICE_SM_LIMIT", "40"},
                           {"CUDA_DEVICE_SM_LIMIT_2", "101"},
                           {"CUDA_TASK_PRIORITY", "high"},
                           {"GPU_CORE_UTILIZATION_POLICY", "forced"}});
  EXPECT_EQ(s.sm_limit[0], 40u);
  EXPECT_EQ(s.sm_limit[2], 100u) << "as HAMi has it: a limit above 100 is none";
  EXPECT_EQ(s.priority, 1) << "not the most important of all";
  EXPECT_FALSE(s.says_priority);
  EXPECT_EQ(s.policy, UtilizationPolicy::kDefault);
}

Settings Kept(std::map<std::string, std::string> environment, std::map<std::string, std::string> share) {
  const Settings of_share = Read(std::move(share));
  Settings kept = Read(std::move(environment));
  KeepToShare(&kept, of_share);
  return kept;
}

const std::map<std::string, std::string> kShare{{"CUDA_DEVICE_MEMORY_LIMIT_0", "2g"},
                                                {"CUDA_DEVICE_SM_LIMIT", "30"},
                                                {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/share/region.cache"},
                                                {"CUDA_TASK_PRIORITY", "1"},
                                                {"GPU_CORE_UTILIZATION_POLICY", "default"},
                                                {"CUDA_OVERSUBSCRIBE", "false"},
                                                {"HAMI_FAIL_OPEN", "false"},
                                                {"HAMI_CORES_BURST", "0"},
                                                {"HAMI_DEVICE_LIMITS", kFirst + "=2048m:30"}};

TEST(KeepToShare, EmptyEnvironment_ThenWhatTheShareSays) {
  const Settings kept = Kept({}, kShare);
  EXPECT_EQ(kept.memory_limit[0], 2 * kGiB);
  EXPECT_EQ(kept.sm_limit[0], 30u);
  EXPECT_STREQ(kept.region_path, "/share/region.cache");
  EXPECT_EQ(kept.device_count, 1u);
  EXPECT_EQ(kept.uuids[0], kFirst);
}

TEST(KeepToShare, EnvironmentThatWantsMore_ThenItGetsNoMore) {
  const Settings kept = Kept({{"CUDA_DEVICE_MEMORY_LIMIT_0", "8g"},
                              {"CUDA_DEVICE_MEMORY_LIMIT", "0"},
                              {"CUDA_DEVICE_SM_LIMIT", "100"},
                              {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/mine"},
                              {"CUDA_TASK_PRIORITY", "0"},
                              {"GPU_CORE_UTILIZATION_POLICY", "disable"},
                              {"CUDA_OVERSUBSCRIBE", "true"},
                              {"HAMI_FAIL_OPEN", "true"},
                              {"HAMI_CORES_BURST", "90"},
                              {"HAMI_DEVICE_LIMITS", kSecond + "=8g:0"}},
                             kShare);
  EXPECT_EQ(kept.memory_limit[0], 2 * kGiB);
  EXPECT_EQ(kept.own_memory_limit[0], 0u);
  EXPECT_EQ(kept.sm_limit[0], 30u);
  EXPECT_STREQ(kept.region_path, "/share/region.cache");
  EXPECT_EQ(kept.priority, 1);
  EXPECT_EQ(kept.policy, UtilizationPolicy::kDefault);
  EXPECT_FALSE(kept.oversubscribe);
  EXPECT_FALSE(kept.fail_open);
  EXPECT_EQ(kept.cores_burst, 0u);
  EXPECT_EQ(kept.uuids[0], kFirst);
}

TEST(KeepToShare, EnvironmentThatWantsLess_ThenItGetsLess) {
  const Settings kept =
      Kept({{"CUDA_DEVICE_MEMORY_LIMIT_0", "1g"}, {"CUDA_DEVICE_SM_LIMIT", "10"}, {"CUDA_TASK_PRIORITY", "2"}}, kShare);
  EXPECT_EQ(kept.own_memory_limit[0], kGiB);
  EXPECT_EQ(kept.memory_limit[0], 2 * kGiB) << "what a region that it makes holds for all";
  EXPECT_EQ(kept.own_sm_limit[0], 10u);
  EXPECT_EQ(kept.sm_limit[0], 30u) << "likewise";
  EXPECT_EQ(kept.priority, 2);
}

TEST(KeepToShare, LimitThatCannotBeRead_ThenTheSharesHolds) {
  const Settings kept = Kept({{"CUDA_DEVICE_MEMORY_LIMIT_0", "x"}, {"CUDA_DEVICE_SM_LIMIT", "x"}}, kShare);
  EXPECT_EQ(kept.unread_memory_limits, 0u);
  EXPECT_EQ(kept.unread_sm_limits, 0u);
  EXPECT_EQ(kept.memory_limit[0], 2 * kGiB);
  EXPECT_NE(Kept({}, {{"CUDA_DEVICE_MEMORY_LIMIT_0", "x"}}).unread_memory_limits, 0u) << "the share's own";
}

TEST(ParseBool, GivenUsualSpellings_ThenUnderstood) {
  for (const char* yes : {"true", "TRUE", "1", "t", "yes", "On"}) EXPECT_TRUE(ParseBool(yes, false)) << yes;
  for (const char* no : {"false", "0", "F", "no", "off"}) EXPECT_FALSE(ParseBool(no, true)) << no;
  EXPECT_TRUE(ParseBool("perhaps", true));
  EXPECT_FALSE(ParseBool(nullptr, false));
}

}  // namespace
}  // namespace hami::vgpu
