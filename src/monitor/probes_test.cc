// SPDX-License-Identifier: Apache-2.0

#include "monitor/probes.h"

#include <gtest/gtest.h>

namespace hami::monitor {
namespace {

using std::chrono::seconds;

TEST(Probes, GivenRoundsThatEnd_ThenAliveUntilHalfAMinuteWithoutOne) {
  EXPECT_EQ(Health(seconds(0)).status, 200);
  EXPECT_EQ(Health(kStuck - seconds(1)).status, 200);
  EXPECT_EQ(Health(kStuck).status, 503);
  EXPECT_EQ(Health(seconds(41)).body, "no round for 41 s\n");
}

TEST(Probes, GivenARoundAndThePods_ThenTheProgramIsReady_AndNotSooner) {
  SelfPicture self;
  EXPECT_EQ(Readiness(self).status, 503);
  self.ticks = 1;
  EXPECT_EQ(Readiness(self).status, 503) << "of pods that are not known no container is shown";
  self.pods_known = true;
  EXPECT_EQ(Readiness(self).status, 200);
}

TEST(Probes, GivenUnlistableContainers_ThenProgramIsNotReadyAndSaysWhy) {
  SelfPicture self;
  self.ticks = 1;
  self.pods_known = true;
  self.folder_problem = "can not open /hook/containers: Permission denied";
  EXPECT_EQ(Readiness(self).status, 503);
  EXPECT_EQ(Readiness(self).body, "can not open /hook/containers: Permission denied\n");
}

}  // namespace
}  // namespace hami::monitor
