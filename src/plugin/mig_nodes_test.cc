// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::plugin {
namespace {

using testing::ElementsAre;

constexpr const char* kList =
    "config 1\nmonitor 2\ngpu0/gi3/access 30\ngpu0/gi3/ci0/access 31\ngpu1/gi3/access 165\ngpu1/gi3/ci0/access 166\n"
    "gpu1/gi31/access 9x\n";

TEST(MigNodes, BothCapabilities_AreThoseOfThatGpuAndInstance) {
  const auto nodes = MigCapabilities(kList, 1, 3, 0);
  ASSERT_TRUE(nodes);
  EXPECT_THAT(*nodes, ElementsAre("/dev/nvidia-caps/nvidia-cap165", "/dev/nvidia-caps/nvidia-cap166"));
}

TEST(MigNodes, OneIsMissingOrNoNumber_NothingIsGiven) {
  EXPECT_FALSE(MigCapabilities(kList, 1, 3, 1));
  EXPECT_FALSE(MigCapabilities(kList, 1, 31, 0));
  EXPECT_FALSE(MigCapabilities(kList, 2, 3, 0));
  EXPECT_FALSE(MigCapabilities("", 0, 3, 0));
}

}  // namespace
}  // namespace hami::plugin
