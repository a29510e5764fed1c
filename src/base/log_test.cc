// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::base {
namespace {

TEST(Logging, GivenLevels_WhenLogged_ThenPrefixedAndFiltered) {
  testing::internal::CaptureStderr();
  StartLog("prog");
  LogDebug("unseen");
  LogInfo("plain {} text");
  LogWarning("careful");
  LogError(Error{"it failed", "try this\nthen that"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "prog: plain {} text\nprog: warning: careful\nprog: error: it failed\n  try this\n  then that\n");
}

TEST(Logging, GivenADaemon_WhenLogged_ThenTheLineBeginsWithTheTime) {
  testing::internal::CaptureStderr();
  StartLog("prog", LogLevel::kInfo, LogStyle::kDaemon);
  LogWarning("careful");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("20..-..-..T..:..:......[+-]..:.. prog: warning: careful\n"));
}

TEST(Logging, GivenEscapeSequences_WhenLogged_ThenDefused) {
  testing::internal::CaptureStderr();
  StartLog("prog");
  LogError("bad \x1b[2J name");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "prog: error: bad ?[2J name\n");
}

}  // namespace
}  // namespace hami::base
