// SPDX-License-Identifier: Apache-2.0

#include "device/config_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kWhole =
    "nvidia:\n  resourceCountName: nvidia.com/gpu\n  deviceSplitCount: 10\n  deviceMemoryScaling: 1\n"
    "  deviceCoreScaling: 1\n  libCudaLogLevel: 1\n";

std::vector<std::string> Keys(const std::vector<Finding>& findings) {
  std::vector<std::string> keys;
  for (const Finding& finding : findings) keys.push_back(finding.where + " " + finding.key);
  return keys;
}

TEST(ConfigCheckTest, AWholeFileIsFineForBoth) {
  EXPECT_THAT(CheckForHami(kWhole, "f"), IsEmpty());
  EXPECT_THAT(CheckForOurs(kWhole, "f"), IsEmpty());
}

TEST(ConfigCheckTest, WhatHamisPluginDiesOfIsNamedWithItsKey) {
  const std::string text =
      "version: v1\nnvidia:\n  resourceCountName: nvidia.com/gpu\n  deviceSplitCount: 10\n"
      "  deviceMemoryScaling: 1\n  deviceCoreScaling: 1\n";
  EXPECT_THAT(CheckForOurs(text, "f"), IsEmpty()) << "ours takes its default";
  const auto findings = CheckForHami(text, "f");
  ASSERT_THAT(Keys(findings), ElementsAre("f:3 nvidia.libCudaLogLevel"));
  EXPECT_EQ(findings[0].level, Finding::Level::kError);
  EXPECT_THAT(findings[0].message, HasSubstr("at its first Allocate"));
  EXPECT_THAT(findings[0].remedy, HasSubstr("libCudaLogLevel: 1"));
  EXPECT_THAT(Keys(CheckForHami("nvidia:\n  resourceCountName: a/b\n  deviceSplitCount:\n", "f")),
              ElementsAre("f:3 nvidia.deviceSplitCount", "f:2 nvidia.deviceMemoryScaling",
                          "f:2 nvidia.deviceCoreScaling", "f:2 nvidia.libCudaLogLevel"));
}

TEST(ConfigCheckTest, AMistakeNamesFileLineAndKey) {
  const std::string text = std::string(kWhole) + "  defaultMemroy: 1000\n";
  const auto ours = CheckForOurs(text, "f");
  ASSERT_THAT(Keys(ours), ElementsAre("f:7 nvidia.defaultMemroy"));
  EXPECT_THAT(ours[0].message, HasSubstr("unknown key"));
  const auto hami = CheckForHami(text, "f");
  ASSERT_THAT(Keys(hami), ElementsAre("f:7 nvidia.defaultMemroy"));
  EXPECT_EQ(hami[0].level, Finding::Level::kWarning);
  EXPECT_THAT(CheckForHami("nvidia: [", "f"), testing::SizeIs(1));
  EXPECT_THAT(CheckForHami("", "f"), testing::SizeIs(1));
}

TEST(ConfigCheckTest, OtherVendorsAreNamedWithWhatTheyTake) {
  const auto findings = CheckForOurs(std::string(kWhole) + "hygon:\n  resourceCountName: hygon.com/dcunum\n", "f");
  ASSERT_THAT(Keys(findings), ElementsAre("f hygon"));
  EXPECT_EQ(findings[0].level, Finding::Level::kNote);
  EXPECT_THAT(findings[0].message, HasSubstr("DCU (hygon.com/dcunum)"));
}

TEST(ConfigCheckTest, VendorsWithoutACountAreWarnedOf) {
  const auto findings = CheckForOurs(std::string(kWhole) + "hygon:\n  resourceMemoryName: hygon.com/dcumem\n", "f");
  ASSERT_THAT(Keys(findings), ElementsAre("f hygon"));
  EXPECT_EQ(findings[0].level, Finding::Level::kWarning);
}

TEST(ConfigCheckTest, TwoVendorsAskedForByOneNameAreAnError) {
  const auto findings = CheckForOurs(std::string(kWhole) + "hygon:\n  resourceCountName: nvidia.com/gpu\n", "f");
  ASSERT_THAT(Keys(findings), ElementsAre("f hygon", "f "));
  EXPECT_EQ(findings[1].level, Finding::Level::kError);
  EXPECT_THAT(findings[1].message, HasSubstr("NVIDIA and DCU are both asked for by nvidia.com/gpu"));
}

TEST(ConfigCheckTest, MultiChipVendorsNameTheirFlag) {
  const auto findings = CheckForOurs(
      std::string(kWhole) + "vnpus:\n  configs:\n  - {commonWord: Ascend910B4, resourceName: huawei.com/Ascend910B4}\n",
      "f");
  ASSERT_THAT(Keys(findings), ElementsAre("f vnpus"));
  EXPECT_THAT(findings[0].message, HasSubstr("with --enable-ascend: Ascend910B4"));
}

}  // namespace
}  // namespace hami::device
