// SPDX-License-Identifier: Apache-2.0

#include "base/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>
#include <cstdlib>

namespace hami::base {
namespace {

using testing::HasSubstr;

Command Shell(const std::string& text) {
  Command command;
  command.words = {"sh", "-c", text};
  return command;
}

TEST(RunCommandTest, GivesOutputErrorsAndStatus) {
  const auto result = RunCommand(Shell("echo out; echo err >&2; exit 7"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->out, "out\n");
  EXPECT_EQ(result->err, "err\n");
  EXPECT_EQ(result->status, 7);
  EXPECT_EQ(RunCommand(Shell("kill -9 $$"))->status, 137);
}

TEST(RunCommandTest, ItsVariablesWinOverOurs) {
  ::setenv("HAMI_TEST_COMMAND", "ours", 1);
  Command command = Shell("echo $HAMI_TEST_COMMAND; env | grep -c HAMI_TEST_COMMAND=; read line || echo no input");
  command.environment = {{"HAMI_TEST_COMMAND", "given"}};
  EXPECT_EQ(RunCommand(command)->out, "given\n1\nno input\n");
  ::unsetenv("HAMI_TEST_COMMAND");
}

TEST(RunCommandTest, ReadsTheInputThatItIsGiven) {
  Command command = Shell("cat; read line || echo end");
  command.input = "one\ntwo\n";
  EXPECT_EQ(RunCommand(command)->out, "one\ntwo\nend\n");
  command.input = std::string(5000, 'x');
  const auto refused = RunCommand(command);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("longer than 4096 bytes"));
}

TEST(RunCommandTest, ADaemonsSignalsAreNotInherited) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  EXPECT_EQ(RunCommand(Shell("kill -TERM $$; echo lives"))->status, 128 + SIGTERM);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(RunCommandTest, OneThatDoesNotEndIsKilledWithItsChildren) {
  Command command = Shell("echo waiting >&2; sleep 60 & wait");
  command.limit = std::chrono::milliseconds(300);
  const auto begin = std::chrono::steady_clock::now();
  const auto result = RunCommand(command);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "sh did not end within 300 ms: waiting");
  command = Shell("exec >&- 2>&-; sleep 60");
  command.limit = std::chrono::milliseconds(300);
  EXPECT_FALSE(RunCommand(command)) << "it closed its output, and goes on";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(RunCommandTest, WhatWritesWithoutEndIsStopped) {
  Command command = Shell("yes");
  command.most_bytes = 1000;
  const auto result = RunCommand(command);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("more than 1000 bytes"));
}

TEST(RunCommandTest, AProgramThatIsNotThereIsNamed) {
  Command command;
  command.words = {"hami-no-such-program"};
  EXPECT_THAT(RunCommand(command).error().message, HasSubstr("hami-no-such-program: No such file"));
  EXPECT_FALSE(RunCommand({}));
}

}  // namespace
}  // namespace hami::base
