// SPDX-License-Identifier: Apache-2.0

#include "cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::cli {
namespace {

ShareRecord TwoGpus() {
  ShareRecord record;
  record.name = "train-1";
  record.command = {"x"};
  record.grants = {{"GPU-aaaa", 3ULL << 30, 3ULL << 30, 30}, {"GPU-bbbb", (3ULL << 30) + 1, 3ULL << 30, 30}};
  return record;
}

Environment Applied(const ShareRecord& record, const Environment& base) {
  return Apply(base, ShareSettings(record, "/state/region.cache", "/lib/libvgpu.so", base).value());
}

TEST(ShareFile, SaysTheLimitsAndWhatTheShareDoesNotHave) {
  EXPECT_EQ(ShareFileText({{"CUDA_DEVICE_MEMORY_LIMIT_0", "3072m"},
                           {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/s/region.cache"},
                           {"CUDA_VISIBLE_DEVICES", "0"},
                           {"CUDA_DEVICE_SM_LIMIT_7", std::nullopt},
                           {"HAMI_CORES_BURST", "80"},
                           {"LD_PRELOAD", "/l.so"}}),
            "CUDA_DEVICE_MEMORY_LIMIT_0=3072m\nCUDA_DEVICE_MEMORY_SHARED_CACHE=/s/region.cache\n"
            "CUDA_OVERSUBSCRIBE=false\nGPU_CORE_UTILIZATION_POLICY=default\nHAMI_CORES_BURST=80\n"
            "HAMI_FAIL_OPEN=false\n");
  EXPECT_EQ(ShareFileText({{"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/a\nCUDA_OVERSUBSCRIBE=true"}}), "");
}

TEST(ShareEnvironment, GivenShare_WhenApplied_ThenHamisVariables) {
  const Environment environment = Applied(TwoGpus(), {{"HOME", "/root"}});
  const Environment expected{{"HOME", "/root"},
                             {"CUDA_VISIBLE_DEVICES", "0,1"},
                             {"CUDA_DEVICE_MEMORY_LIMIT_0", "3072m"},
                             {"CUDA_DEVICE_MEMORY_LIMIT_1", "3221225473"},
                             {"CUDA_DEVICE_SM_LIMIT", "30"},
                             {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/state/region.cache"},
                             {"CUDA_TASK_PRIORITY", "1"},
                             {"HAMI_DEVICE_LIMITS", "GPU-aaaa=3072m:30,GPU-bbbb=3221225473:30"},
                             {"HAMI_SHARE", "train-1"},
                             {"LD_PRELOAD", "/lib/libvgpu.so"}};
  EXPECT_EQ(environment, expected);
}

TEST(ShareEnvironment, GivenShare_WhenLeft_ThenOnlyOurLibraryIsNoLongerPreloaded) {
  const Environment alone = WithoutLibrary(Applied(TwoGpus(), {}));
  EXPECT_FALSE(alone.contains("LD_PRELOAD"));
  EXPECT_EQ(alone.at("HAMI_SHARE"), "train-1");
  EXPECT_FALSE(IsInsideShare(alone));
  EXPECT_EQ(WithoutLibrary(Applied(TwoGpus(), {{"LD_PRELOAD", "/a.so /b.so"}})).at("LD_PRELOAD"), "/a.so:/b.so");
}

TEST(ShareEnvironment, GivenPriorityAndOversubscription_WhenApplied_ThenSaid) {
  ShareRecord record = TwoGpus();
  record.priority = Priority::kHigh;
  record.oversubscribe = true;
  const Environment environment = Applied(record, {});
  EXPECT_EQ(environment.at("CUDA_TASK_PRIORITY"), "0");
  EXPECT_EQ(environment.at("CUDA_OVERSUBSCRIBE"), "true");
}

TEST(ShareEnvironment, GivenExistingPreload_WhenApplied_ThenAppended) {
  EXPECT_EQ(Applied(TwoGpus(), {{"LD_PRELOAD", "/a.so:/b.so"}}).at("LD_PRELOAD"), "/a.so:/b.so:/lib/libvgpu.so");
  EXPECT_EQ(Applied(TwoGpus(), {{"LD_PRELOAD", ""}}).at("LD_PRELOAD"), "/lib/libvgpu.so");
}

TEST(ShareEnvironment, GivenLeftOversOfAnotherShare_WhenApplied_ThenRemoved) {
  ShareRecord record = TwoGpus();
  record.grants.resize(1);
  record.grants[0].cores = 0;
  const Environment environment = Applied(record, {{"CUDA_DEVICE_MEMORY_LIMIT", "1g"},
                                                   {"CUDA_DEVICE_MEMORY_LIMIT_0", "1g"},
                                                   {"CUDA_DEVICE_MEMORY_LIMIT_7", "1g"},
                                                   {"CUDA_DEVICE_SM_LIMIT", "5"},
                                                   {"CUDA_OVERSUBSCRIBE", "true"},
                                                   {"HAMI_DEVICE_LIMITS", "GPU-cccc=1m:1"},
                                                   {"CUDA_DISABLE_CONTROL", "true"},
                                                   {"CUDA_VISIBLE_DEVICES", "3"}});
  EXPECT_EQ(environment.at("CUDA_DEVICE_MEMORY_LIMIT_0"), "3072m");
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(environment.at("HAMI_DEVICE_LIMITS"), "GPU-aaaa=3072m:0");
  for (const char* name : {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_7", "CUDA_DEVICE_SM_LIMIT",
                           "CUDA_OVERSUBSCRIBE", "CUDA_DISABLE_CONTROL"}) {
    EXPECT_FALSE(environment.contains(name)) << name;
  }
}

TEST(ShareEnvironment, GivenBurst_ThenSaid_AndNoneIsInherited) {
  std::vector<Setting> settings = {{"HAMI_CORES_BURST", std::nullopt}};
  AddGpuTime(&settings, "/state/gpu-time", 80);
  const Environment with = Apply({}, settings);
  EXPECT_EQ(with.at("HAMI_CORES_BURST"), "80");
  EXPECT_EQ(with.at("HAMI_COMMON_AREA"), "/state/gpu-time");
  AddGpuTime(&settings, "/state/gpu-time", 0);
  EXPECT_FALSE(Apply(with, settings).contains("HAMI_CORES_BURST"));
}

TEST(ShareEnvironment, GivenLibraryPathWithSeparators_WhenAsked_ThenRefused) {
  for (const char* path : {"/a b/libvgpu.so", "/a:b/libvgpu.so"}) {
    EXPECT_FALSE(ShareSettings(TwoGpus(), "/r", path, {})) << path;
  }
}

TEST(ShareEnvironment, GivenShareOrNot_WhenAsked_ThenNestingIsKnown) {
  EXPECT_TRUE(IsInsideShare(Applied(TwoGpus(), {})));
  EXPECT_FALSE(IsInsideShare({}));
  EXPECT_FALSE(IsInsideShare({{"LD_PRELOAD", "/lib/libvgpu.so"}}));
}

}  // namespace
}  // namespace hami::cli
