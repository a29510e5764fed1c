// SPDX-License-Identifier: Apache-2.0

#include "monitor/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace hami::monitor {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Command Parse(const std::vector<std::string>& arguments,
              Variables variables = {{"HOOK_PATH", "/usr/local/vgpu"}, {"NODE_NAME", "n1"}}) {
  return ParseCommand(arguments, [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(MonitorOptions, GivenNothingButTheEnvironment_ThenTheDefaultsAreHamis) {
  const Command command = Parse({});
  ASSERT_TRUE(command.run) << command.answer.text;
  EXPECT_EQ(command.run->metrics_address.host, "");
  EXPECT_EQ(command.run->metrics_address.port, 9394);
  EXPECT_FALSE(command.run->legacy_metrics);
  EXPECT_TRUE(command.run->compat_labels);
  EXPECT_EQ(command.run->resync, milliseconds(300'000));
  EXPECT_EQ(command.run->hook_path, "/usr/local/vgpu");
  EXPECT_EQ(command.run->node_name, "n1");
}

TEST(MonitorOptions, GivenHamisSpellings_ThenTheyAreUnderstood) {
  const Command command = Parse(
      {"--metrics-bind-address=127.0.0.1:0", "--legacy-metrics", "-v=4", "--logging-format=json", "--logtostderr=true"},
      {{"HOOK_PATH", "/h"}, {"NODE_NAME", "n"}, {"HAMI_RESYNC_INTERVAL", "1h30m"}});
  ASSERT_TRUE(command.run) << command.answer.text;
  EXPECT_EQ(command.run->metrics_address.host, "127.0.0.1");
  EXPECT_EQ(command.run->metrics_address.port, 0);
  EXPECT_TRUE(command.run->legacy_metrics);
  EXPECT_EQ(command.run->verbosity, 4);
  EXPECT_EQ(command.run->log_style, base::LogStyle::kJson);
  EXPECT_EQ(command.run->resync, milliseconds(5'400'000));
  EXPECT_TRUE(command.run->warnings.empty());
}

TEST(MonitorOptions, GivenKlogsFileFlags_ThenTheyAreAcceptedButNotInSilence) {
  const Command command = Parse({"--log_dir=/var/log", "--vmodule", "a=4"});
  ASSERT_TRUE(command.run) << command.answer.text;
  EXPECT_EQ(command.run->warnings.size(), 2U);
  const Command files = Parse({"--logtostderr=false", "--log_file=/var/log/monitor.log"});
  ASSERT_TRUE(files.run) << files.answer.text;
  EXPECT_FALSE(files.run->log_files.to_stderr);
  EXPECT_EQ(files.run->log_files.file, "/var/log/monitor.log");
  EXPECT_TRUE(files.run->warnings.empty());
}

TEST(MonitorOptions, GivenAnyResyncInterval_ThenItIsTakenWithAFloor) {
  const auto with = [](const char* interval) {
    return Parse({}, {{"HOOK_PATH", "/h"}, {"NODE_NAME", "n"}, {"HAMI_RESYNC_INTERVAL", interval}});
  };
  for (const char* interval : {"0", "0s", "1ms", "9.999s", "-5m"}) {
    const Command command = with(interval);
    ASSERT_TRUE(command.run) << interval << command.answer.text;
    EXPECT_EQ(command.run->resync, milliseconds(10'000)) << interval;
    ASSERT_EQ(command.run->warnings.size(), 1U) << interval;
    EXPECT_THAT(command.run->warnings.front(), HasSubstr(std::string("HAMI_RESYNC_INTERVAL=") + interval));
  }
  for (const auto& [interval, taken] : std::initializer_list<std::pair<const char*, milliseconds>>{
           {"10s", milliseconds(10'000)}, {"720h", milliseconds(2'592'000'000)}}) {
    const Command command = with(interval);
    ASSERT_TRUE(command.run) << interval << command.answer.text;
    EXPECT_EQ(command.run->resync, taken);
    EXPECT_TRUE(command.run->warnings.empty()) << interval;
  }
}

TEST(MonitorOptions, GivenMissingOrOutOfRange_ThenErrorNamesItAndStatusIsNotZero) {
  const auto expect = [](const Command& command, const std::string& part) {
    EXPECT_FALSE(command.run);
    EXPECT_EQ(command.answer.exit_status, 2);
    EXPECT_THAT(command.answer.text, HasSubstr(part));
  };
  expect(Parse({}, {{"NODE_NAME", "n"}}), "HOOK_PATH is not set");
  expect(Parse({}, {{"HOOK_PATH", "/h"}}), "NODE_NAME is not set");
  expect(Parse({}, {{"HOOK_PATH", "/h"}, {"NODE_NAME", ""}}), "NODE_NAME is not set");
  expect(Parse({}, {{"HOOK_PATH", "/h"}, {"NODE_NAME", "n"}, {"HAMI_RESYNC_INTERVAL", "soon"}}),
         "HAMI_RESYNC_INTERVAL=soon");
  expect(Parse({"--tick=100ms"}), "--tick=100ms");
  expect(Parse({"--tick=6s"}), "200ms to 5s");
  expect(Parse({"--metrics-bind-address=9394"}), "--metrics-bind-address");
  expect(Parse({"--legacy-metric"}), "did you mean --legacy-metrics");
  expect(Parse({"serve"}), "'serve'");
}

TEST(MonitorOptions, GivenHelpOrVersion_ThenTheyNeedNoEnvironment) {
  const Command help = Parse({"--help"}, {});
  EXPECT_EQ(help.answer.exit_status, 0);
  for (const char* word :
       {"--metrics-bind-address", "--legacy-metrics", "--tick", "HOOK_PATH", "NODE_NAME", "/readyz"}) {
    EXPECT_THAT(help.answer.text, HasSubstr(word));
  }
  EXPECT_THAT(Parse({"version"}, {}).answer.text, HasSubstr("hami-monitor "));
}

}  // namespace
}  // namespace hami::monitor
