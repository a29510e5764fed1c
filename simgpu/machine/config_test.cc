// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/config.h"

#include <cstring>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simgpu/machine/machine.h"

namespace simgpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Made {
  bool ok = false;
  std::unique_ptr<Plan> plan = std::make_unique<Plan>();
  std::string error;
};
Made Make(const char* simgpu, const char* text) {
  Made made;
  made.ok = MakePlan(simgpu, text, "box.conf", made.plan.get(), &made.error);
  return made;
}

TEST(ConfigTest, GivenNothing_WhenPlanned_ThenOneH100) {
  const Made made = Make("", "");
  ASSERT_TRUE(made.ok) << made.error;
  EXPECT_EQ(1, made.plan->device_count);
  EXPECT_STREQ("NVIDIA H100 80GB HBM3", made.plan->device[0].name);
  EXPECT_EQ(518 * kMiB, made.plan->device[0].profile.context_bytes);
  EXPECT_EQ(2'083'000u, made.plan->device[0].profile.turn_ns);
  EXPECT_EQ(13000u, made.plan->options.cuda_version);
}

TEST(ConfigTest, GivenModels_WhenPlanned_ThenEachHasTheProfileOfItsKind) {
  const Made made = Make("H100,T4,H200,B200", "");
  EXPECT_STREQ("h200", made.plan->device[0].profile.name);
  EXPECT_STREQ("ideal", made.plan->device[1].profile.name);
  EXPECT_STREQ("h200", made.plan->device[2].profile.name);
  EXPECT_STREQ("h200", made.plan->device[3].profile.name);
  EXPECT_EQ(0u, made.plan->device[1].profile.switch_ns);
  EXPECT_EQ(160'000u, made.plan->device[0].profile.switch_ns);
}

TEST(ConfigTest, GivenAProfile_WhenOptionsDiffer_ThenOrderDoesNotMatter) {
  const Made made = Make("2xT4", "device 1 gap_ns=7\noption switch_us=300\noption profile=h200\n");
  ASSERT_TRUE(made.ok) << made.error;
  EXPECT_EQ(300'000u, made.plan->device[0].profile.switch_ns);
  EXPECT_EQ(kHalfASwitch, made.plan->device[0].profile.idle_switch_ns);
  EXPECT_EQ(1'790u, made.plan->device[0].profile.gap_ns);
  EXPECT_EQ(7u, made.plan->device[1].profile.gap_ns);
}

TEST(ConfigTest, GivenVariable_WhenFileNamesProfileToo_ThenVariableWins) {
  Made made;
  ASSERT_TRUE(MakePlan("H100", "option profile=h200 gap_ns=7", "box.conf", made.plan.get(), &made.error, "ideal"));
  EXPECT_STREQ("ideal", made.plan->device[0].profile.name);
  EXPECT_EQ(7u, made.plan->device[0].profile.gap_ns);
  EXPECT_FALSE(MakePlan("H100", "", "box.conf", made.plan.get(), &made.error, "h300"));
  EXPECT_THAT(made.error, AllOf(StartsWith("SIMGPU_PROFILE: 'h300'"), HasSubstr("ideal, h200")));
}

TEST(ConfigTest, GivenAMix_WhenPlanned_ThenTheOrderIsKeptAndAllDiffer) {
  const Made made = Make("2xT4,1xA100-80,rtx-4090", "");
  ASSERT_TRUE(made.ok) << made.error;
  ASSERT_EQ(4, made.plan->device_count);
  EXPECT_STREQ("T4", made.plan->device[1].preset);
  EXPECT_STREQ("A100-80", made.plan->device[2].preset);
  EXPECT_STREQ("RTX4090", made.plan->device[3].preset);
  EXPECT_NE(0, std::memcmp(made.plan->device[0].uuid, made.plan->device[1].uuid, 16));
  EXPECT_NE(made.plan->device[0].pci_bus, made.plan->device[1].pci_bus);
}

TEST(ConfigTest, GivenTheSameSeed_WhenPlannedTwice_ThenIdentitiesAreTheSame) {
  EXPECT_EQ(0, std::memcmp(Make("H100", "").plan->device[0].uuid, Make("H100", "").plan->device[0].uuid, 16));
  EXPECT_NE(0,
            std::memcmp(Make("H100", "").plan->device[0].uuid, Make("H100", "option seed=2").plan->device[0].uuid, 16));
}

TEST(ConfigTest, GivenAFile_WhenPlanned_ThenEveryKindOfLineTakesEffect) {
  const Made made = Make("", R"(# a box for tests
gpus 3xT4
option clock=virtual context_mib=0 quantum_us=500 pid_offset=1000 driver_text="550.54.15"
device * memory_mib=4000 reserved_mib=96   # small
device 1 name="My GPU" uuid=GPU-00112233-4455-6677-8899-aabbccddeeff pci=0001:3b:00.0 cc=9.0 numa=1
fault call=cuMemAlloc* error=out_of_memory nth=3
set device=2 power_w=33
link device=* link=3 state=down
)");
  ASSERT_TRUE(made.ok) << made.error;
  EXPECT_EQ(3, made.plan->device_count);
  EXPECT_EQ(1u, made.plan->options.virtual_clock);
  EXPECT_EQ(0u, made.plan->device[0].profile.context_bytes);
  EXPECT_STREQ("550.54.15", made.plan->options.driver_version);
  EXPECT_EQ(4000 * kMiB, made.plan->device[2].total_bytes);
  EXPECT_EQ(4096 * kMiB, made.plan->device[2].physical_bytes());
  EXPECT_STREQ("My GPU", made.plan->device[1].name);
  EXPECT_EQ(0x22, made.plan->device[1].uuid[2]);
  EXPECT_EQ(1u, made.plan->device[1].pci_domain);
  EXPECT_EQ(0x3bu, made.plan->device[1].pci_bus);
  EXPECT_EQ(9u, made.plan->device[1].cc_major);
  ASSERT_EQ(3u, made.plan->changes.size());
  EXPECT_EQ(2, made.plan->changes[0].error);
  EXPECT_EQ(3u, made.plan->changes[0].nth);
  EXPECT_EQ(33'000u, made.plan->changes[1].number);
}

TEST(ConfigTest, GivenVariableAndFile_WhenBothNameGpus_ThenTheVariableWins) {
  EXPECT_STREQ("T4", Make("T4", "gpus 2xH100").plan->device[0].preset);
}

TEST(ConfigTest, GivenAnErrorName_WhenTheCallIsNvmls_ThenItIsNvmlsNumber) {
  EXPECT_EQ(20, Make("", "fault call=nvmlX error=out_of_memory").plan->changes.at(0).error);
  EXPECT_EQ(2, Make("", "fault call=cuX error=out_of_memory").plan->changes.at(0).error);
}

struct Bad {
  const char* text;
  const char* place;
  const char* says;
};

class BadConfigTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadConfigTest, GivenAMistake_WhenParsed_ThenFileLineAndRemedyAreNamed) {
  const Made made = Make("", GetParam().text);
  EXPECT_FALSE(made.ok);
  EXPECT_THAT(made.error, AllOf(StartsWith(GetParam().place), HasSubstr(GetParam().says)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadConfigTest,
    ::testing::Values(
        Bad{"gpus 8xHH100", "box.conf:1:", "known: T4, A10"}, Bad{"gpus 17xT4", "box.conf:1:", "1 to 16"},
        Bad{"gpus 0xT4", "box.conf:1:", "1 to 16"}, Bad{"gpus T4\ngpus T4", "box.conf:2:", "second 'gpus'"},
        Bad{"gpus", "box.conf:1:", "write: gpus"}, Bad{"\n\nfrobnicate", "box.conf:3:", "no verb"},
        Bad{"a=b", "box.conf:1:", "begins with a verb"}, Bad{"option", "box.conf:1:", "which option"},
        Bad{"option clock=sundial", "box.conf:1:", "real or virtual"},
        Bad{"option quantum_us=0", "box.conf:1:", "from 1 to"}, Bad{"option quantum_us=-1", "box.conf:1:", "from 1 to"},
        Bad{"option quantum_us=99999999999999999999", "box.conf:1:", "from 1 to"},
        Bad{"option context_mib=1e3", "box.conf:1:", "whole number"},
        Bad{"option profile=h300", "box.conf:1:", "write one of: ideal, h200"},
        Bad{"option boost_percent=101", "box.conf:1:", "from 0 to 100"},
        Bad{"device 0 switch_us=2000000", "box.conf:1:", "from 0 to"},
        Bad{"option colour=red", "box.conf:1:", "known: clock"}, Bad{"device 0", "box.conf:1:", "which field"},
        Bad{"device memory_mib=3", "box.conf:1:", "which device"},
        Bad{"device 1 memory_mib=3", "box.conf:1:", "0 to 0"},
        Bad{"device 0 memory_mb=3", "box.conf:1:", "known: name"},
        Bad{"device 0 uuid=GPU-12", "box.conf:1:", "hexadecimal"},
        Bad{"device 0 pci=3b", "box.conf:1:", "0000:3b:00.0"}, Bad{"device 0 cc=9", "box.conf:1:", "9.0"},
        Bad{"device 0 name=\"open", "box.conf:1:", "not closed"}, Bad{"device 0 =3", "box.conf:1:", "without a key"},
        Bad{"device 0 name=\"\"", "box.conf:1:", "1 to 95"}, Bad{"fault error=2", "box.conf:1:", "add call="},
        Bad{"fault call=cuX", "box.conf:1:", "add error="},
        Bad{"fault call=cudaMalloc error=2", "box.conf:1:", "cuMemAlloc*"},
        Bad{"fault call=malloc error=2", "box.conf:1:", "nvml"},
        Bad{"fault call=CUMemAlloc* error=2", "box.conf:1:", "cuMemAlloc*"},
        Bad{"fault call=cuX error=99999", "box.conf:1:", "number of the error"},
        Bad{"fault error=unknown call=cuX", "box.conf:1:", "call= before error="},
        Bad{"fault call=cuX error=2 percent=101", "box.conf:1:", "0 to 100"},
        Bad{"xid code=79", "box.conf:1:", "which device"}, Bad{"xid device=0", "box.conf:1:", "add code="},
        Bad{"lost", "box.conf:1:", "which device"}, Bad{"lost device=0 now", "box.conf:1:", "only device="},
        Bad{"set device=0 heat=9", "box.conf:1:", "known: temperature_c"},
        Bad{"set device=0 power_w=1 fan_percent=2", "box.conf:1:", "one value a line"},
        Bad{"link device=0 link=18 state=up", "box.conf:1:", "0 to 17"},
        Bad{"link device=0 link=1 state=sideways", "box.conf:1:", "up or down"},
        Bad{"option seed=1\x01", "box.conf:1:", "control character"}));

TEST(ConfigTest, GivenABadVariable_WhenPlanned_ThenTheVariableIsNamed) {
  EXPECT_THAT(Make("9xBanana", "").error, StartsWith("SIMGPU=9xBanana: 'Banana' is no GPU model"));
}

TEST(ConfigTest, GivenDescribingLines_WhenInjected_ThenRefused) {
  std::vector<Change> changes;
  std::string error;
  EXPECT_FALSE(ParseChanges("option clock=real", "text", 1, &changes, &error));
  EXPECT_THAT(error, HasSubstr("SIMGPU_CONFIG"));
}

}  // namespace
}  // namespace simgpu
