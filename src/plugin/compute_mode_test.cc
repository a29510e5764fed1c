// SPDX-License-Identifier: Apache-2.0

#include "plugin/compute_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/strings.h"

namespace hami::plugin {
namespace {

using nvml::ComputeMode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ComputeModesTest : public ::testing::Test {
 protected:
  ComputeModesTest() {
    for (unsigned i = 0; i < 3; ++i) {
      nvml::Device gpu;
      gpu.index = i;
      gpu.uuid = base::Concat({"GPU-", std::to_string(i)});
      gpu.compute_mode = ComputeMode::kDefault;
      gpus_.push_back(gpu);
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "hami-modes-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ComputeModesTest() override { std::filesystem::remove_all(folder_); }

  // The modes of the next life of the plugin.
  ComputeModes Next() {
    ComputeModeDriver driver;
    driver.gpus = [this] { return gpus_; };
    driver.set = [this](const std::string& uuid, ComputeMode mode) -> base::Status {
      if (uuid == stubborn_) return base::Fail(uuid + ": no permission");
      for (nvml::Device& gpu : gpus_) {
        if (gpu.uuid == uuid) gpu.compute_mode = mode;
      }
      return {};
    };
    return {std::move(driver), folder_ + "/vgpu/compute-mode"};
  }
  std::vector<bool> Exclusive() const {
    std::vector<bool> exclusive;
    for (const nvml::Device& gpu : gpus_) exclusive.push_back(gpu.compute_mode == ComputeMode::kExclusiveProcess);
    return exclusive;
  }

  std::vector<nvml::Device> gpus_;
  std::string folder_;
  std::string stubborn_;
};

TEST_F(ComputeModesTest, NextLife_RestoresWhatTheLastChanged) {
  ASSERT_TRUE(Next().Exclude({}));
  EXPECT_THAT(Exclusive(), ElementsAre(true, true, true));
  ASSERT_TRUE(Next().Exclude({})) << "again with every look";
  ASSERT_TRUE(Next().Restore());
  EXPECT_THAT(Exclusive(), ElementsAre(false, false, false));
  ASSERT_TRUE(Next().Restore());
}

TEST_F(ComputeModesTest, WhatAnAdministratorSet_StaysAsItIs) {
  gpus_[1].compute_mode = ComputeMode::kExclusiveProcess;
  ASSERT_TRUE(Next().Exclude({{"GPU-2"}, {}}));
  EXPECT_THAT(Exclusive(), ElementsAre(true, true, false)) << "filterdevices keeps the last for others";
  ASSERT_TRUE(Next().Restore());
  EXPECT_THAT(Exclusive(), ElementsAre(false, true, false));
  gpus_[0].compute_mode = ComputeMode::kProhibited;
  gpus_[2].mig_mode = nvml::MigMode{true, true};
  ASSERT_TRUE(Next().Exclude({}));
  EXPECT_EQ(gpus_[0].compute_mode, ComputeMode::kProhibited);
  EXPECT_EQ(gpus_[2].compute_mode, ComputeMode::kDefault) << "MPS does not serve a divided GPU";
}

TEST_F(ComputeModesTest, RefusedChange_IsSaidAndTheOthersGoOn) {
  stubborn_ = "GPU-0";
  EXPECT_THAT(Next().Exclude({}).error().message, HasSubstr("GPU-0: no permission"));
  EXPECT_THAT(Exclusive(), ElementsAre(false, true, true));
  stubborn_ = "GPU-1";
  EXPECT_THAT(Next().Restore().error().message, HasSubstr("GPU-1: no permission"));
  EXPECT_THAT(Exclusive(), ElementsAre(false, true, false));
  stubborn_.clear();
  ASSERT_TRUE(Next().Restore()) << "what is left is remembered";
  EXPECT_THAT(Exclusive(), ElementsAre(false, false, false));
}

TEST_F(ComputeModesTest, ListThatCannotBeRead_IsAnErrorAndNothingIsChanged) {
  std::filesystem::create_directories(folder_ + "/vgpu/compute-mode");
  EXPECT_FALSE(Next().Exclude({}));
  EXPECT_FALSE(Next().Restore());
  EXPECT_THAT(Exclusive(), ElementsAre(false, false, false));
}

TEST_F(ComputeModesTest, GpuThatIsGone_IsForgotten) {
  ASSERT_TRUE(Next().Exclude({}));
  gpus_.pop_back();
  ASSERT_TRUE(Next().Restore());
  EXPECT_THAT(Exclusive(), ElementsAre(false, false));
}

}  // namespace
}  // namespace hami::plugin
