// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "base/strings.h"

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

TEST(Logging, GivenJson_WhenLogged_ThenEachMessageIsOneDocument) {
  testing::internal::CaptureStderr();
  StartLog("prog", LogLevel::kInfo, *ReadLoggingFormat("json"));
  LogError(Error{"bad \"\x1b[2J\" name", "try this"});
  LogInfo("plain");
  StartLog("prog");
  const std::vector<std::string> lines = Split(testing::internal::GetCapturedStderr(), '\n');
  ASSERT_EQ(lines.size(), 3U);  // the last is empty
  const json::value first = json::parse(lines[0]);
  EXPECT_EQ(first.at("program").as_string(), "prog");
  EXPECT_EQ(first.at("level").as_string(), "error");
  EXPECT_EQ(first.at("message").as_string(), "bad \"?[2J\" name\ntry this");
  EXPECT_THAT(std::string(first.at("time").as_string()), testing::MatchesRegex("20..-..-..T..:..:......[+-]..:.."));
  EXPECT_EQ(json::parse(lines[1]).at("level").as_string(), "info");
}

TEST(Logging, GivenAFormatThatDoesNotExist_WhenRead_ThenItIsRefused) {
  EXPECT_EQ(ReadLoggingFormat("text").value(), LogStyle::kDaemon);
  EXPECT_FALSE(ReadLoggingFormat("yaml"));
}

TEST(Logging, GivenEscapeSequences_WhenLogged_ThenDefused) {
  testing::internal::CaptureStderr();
  StartLog("prog");
  LogError("bad \x1b[2J name");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "prog: error: bad ?[2J name\n");
}

}  // namespace
}  // namespace hami::base
