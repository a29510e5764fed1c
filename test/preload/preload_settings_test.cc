// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "region/ledger.h"
#include "region/region.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

struct Visible {
  const char* name;
  const char* list;
  std::vector<std::string> totals;  // MiB, by CUDA ordinal
};

class VisibleDevices : public Preload, public testing::WithParamInterface<Visible> {};

// Three devices with limits of 1, 2 and 3 GiB in NVML's order.
TEST_P(VisibleDevices, GivenOrderOrSubset_ThenEachDeviceHasItsOwnLimit) {
  environment_["SIMGPU"] = "3xH100";
  environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "-";
  environment_["CUDA_DEVICE_MEMORY_LIMIT_0"] = "1g";
  environment_["CUDA_DEVICE_MEMORY_LIMIT_1"] = "2g";
  environment_["CUDA_DEVICE_MEMORY_LIMIT_2"] = "3g";
  std::string list = GetParam().list;
  if (const size_t at = list.find("UUID"); at != std::string::npos) {
    const Outcome listed = Run({"print_uuids"}, {{"LD_PRELOAD", "-"}});
    std::istringstream lines(listed.out);
    std::string uuids[3];
    for (std::string& uuid : uuids) ASSERT_TRUE(std::getline(lines, uuid));
    list = uuids[2] + "," + uuids[0].substr(0, 12);
  }
  std::vector<std::string> arguments = {"limits"};
  arguments.insert(arguments.end(), GetParam().totals.begin(), GetParam().totals.end());
  Pass(arguments, {{"CUDA_VISIBLE_DEVICES", list}});
}

INSTANTIATE_TEST_SUITE_P(Lists, VisibleDevices,
                         testing::Values(Visible{"unset", "-", {"1024", "2048", "3072"}},
                                         Visible{"all", "0,1,2", {"1024", "2048", "3072"}},
                                         Visible{"reversed", "2,1,0", {"3072", "2048", "1024"}},
                                         Visible{"subset", "1", {"2048"}}, Visible{"last_two", "2,1", {"3072", "2048"}},
                                         Visible{"uuids", "UUIDs", {"3072", "1024"}}),
                         [](const testing::TestParamInfo<Visible>& list) { return std::string(list.param.name); });

TEST_F(Preload, GivenManySpellings_ThenTheObviousSize) {
  for (const char* spelling : {"1g", "1024m", "1GiB", "1Gi", "1GB", "1048576k", "1073741824", "0x40000000", "01g",
                               "1G ", "1g\r", "1.0g", " 1024 MiB\n", "1048576.0k"}) {
    std::filesystem::remove(region());
    Pass({"total_is_limit"}, {{"CUDA_DEVICE_MEMORY_LIMIT", spelling}});
  }
}

TEST_F(Preload, GivenControlDisabled_ThenTheLibraryIsNotThere) {
  Pass({"unlimited"}, {{"CUDA_DISABLE_CONTROL", "true"}});
  EXPECT_FALSE(std::filesystem::exists(region()));
}

TEST_F(Preload, GivenUnmappableRegion_ThenLimitHoldsPerProcessWithOneLine) {
  const Outcome outcome =
      Run({"plain_limit"}, {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", folder() + "/no/such/folder/region"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("No such file or directory"), std::string::npos) << outcome.err;
}

TEST_F(Preload, GivenUnmappableRegion_WhenAskedToFailOpen_ThenNotLimited) {
  const Outcome outcome =
      Run({"unlimited"}, {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", folder() + "/no/such/region"}, {"HAMI_FAIL_OPEN", "1"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(Preload, GivenFileOfAnotherFormat_ThenItIsLeftAloneAndTheLimitHolds) {
  const std::string text = "this is not a region";
  std::ofstream(region()) << text;
  const Outcome outcome = Run({"plain_limit"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::ifstream in(region());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), text);
}

TEST_F(Preload, GivenRefusedRequests_ThenEachCountsOnce_WhateverWasTried) {
  Pass({"refused_five_times"});
  hami::region::Attachment attachment;
  ASSERT_EQ(hami::region::Open(&attachment, region().c_str()), hami::region::Status::kOk);
  EXPECT_EQ(hami::region::Refusals(attachment, 0), 5u);
  hami::region::Detach(&attachment);
}

TEST_F(Preload, GivenOversubscription_ThenAllocationsSpillUpToTheLimit) {
  Pass({"oversubscribed"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "120g"}, {"CUDA_OVERSUBSCRIBE", "true"}});
}

TEST_F(Preload, GivenLimitAbovePhysicalNoOversubscription_ThenDriverRefuses) {
  Pass({"not_oversubscribed"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "120g"}});
}

// B4, B11, D1, D2 and the cost of being preloaded everywhere.
TEST_F(Preload, GivenProgramWithoutGpu_ThenNothingIsOpenedLoadedOrChanged) {
  umask(022);
  const Outcome with = RunProgram(PRELOAD_BYSTANDER, {});
  const Outcome without = RunProgram(PRELOAD_BYSTANDER, {}, {{"LD_PRELOAD", "-"}});
  EXPECT_EQ(with.status, 0);
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(with.err, "");
  EXPECT_FALSE(std::filesystem::exists(region()));
}

// None of these, as it is taken, gives the program more than it was meant to have.
TEST_F(Preload, GivenMeaninglessGpuTimeSettings_ThenLineEachAndProgramRuns) {
  const Outcome outcome = Run({"plain_limit"}, {{"CUDA_DEVICE_SM_LIMIT", "101"},
                                                {"CUDA_DEVICE_SM_LIMIT_0", "150"},
                                                {"CUDA_TASK_PRIORITY", "high"},
                                                {"GPU_CORE_UTILIZATION_POLICY", "off"},
                                                {"HAMI_CORES_BURST", "200"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 5) << outcome.err;
}

class UnreadLimit : public Preload, public testing::WithParamInterface<std::pair<const char*, const char*>> {};

// A limit that was meant never becomes none.
TEST_P(UnreadLimit, NothingIsGrantedUntilItIsCorrected) {
  const auto& [name, value] = GetParam();
  const Outcome refused = Run({"refused_for_ever"}, {{name, value}});
  EXPECT_EQ(refused.status, 0) << refused.err;
  EXPECT_NE(refused.err.find(std::string(name) + "=" + value + ": not a"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("correct or unset it"), std::string::npos) << refused.err;
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  const Outcome open = Run({"refused_for_ever"}, {{name, value}, {"HAMI_FAIL_OPEN", "1"}});
  EXPECT_EQ(open.status, 0) << open.err;
  EXPECT_FALSE(std::filesystem::exists(region())) << "it would say for ever that there is no limit";
  Pass({"plain_limit"});
  // Now the limits are in the region, which is what counts.
  if (std::string(name).find("MEMORY") == std::string::npos) return;
  const Outcome known = Run({"plain_limit"}, {{name, value}});
  EXPECT_EQ(known.status, 0) << known.err;
}

INSTANTIATE_TEST_SUITE_P(
    Values, UnreadLimit,
    testing::Values(std::pair{"CUDA_DEVICE_MEMORY_LIMIT", "1g,"}, std::pair{"CUDA_DEVICE_MEMORY_LIMIT", "-1"},
                    std::pair{"CUDA_DEVICE_MEMORY_LIMIT_0", "lots"}, std::pair{"CUDA_DEVICE_SM_LIMIT", "-5"},
                    std::pair{"CUDA_DEVICE_SM_LIMIT_0", "30g"}, std::pair{"HAMI_DEVICE_LIMITS", "GPU-1=1g"}));

TEST_F(Preload, GivenLogLevel_ThenRefusalsAreExplained) {
  const Outcome quiet = Run({"plain_limit"});
  EXPECT_EQ(quiet.err, "");
  const Outcome loud = Run({"plain_limit"}, {{"LIBCUDA_LOG_LEVEL", "3"}});
  EXPECT_NE(loud.err.find("do not fit"), std::string::npos);
}

}  // namespace
}  // namespace preload
