// SPDX-License-Identifier: Apache-2.0

#include "base/log_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/strings.h"

namespace hami::base {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class LogFileTest : public testing::Test {
 protected:
  LogFileTest() {
    std::string pattern = testing::TempDir() + "/log-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    files_.to_stderr = false;
    files_.file = folder_ + "/daemon.log";
  }
  ~LogFileTest() override {
    StartLog("test");
    std::filesystem::remove_all(folder_);
  }
  std::string Text(const std::string& path) const { return ReadLinkedFile(path, 1 << 20).value_or("(none)"); }
  Status Start() const { return StartLogTo(files_, "prog", LogLevel::kInfo, LogStyle::kPerson); }

  std::string folder_;
  LogFiles files_;
};

TEST_F(LogFileTest, MessagesGoToTheFileAndErrorsToStderrToo) {
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Start());
  LogInfo("begun");
  LogError("broken");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "prog: error: broken\n");
  EXPECT_EQ(Text(files_.file), "prog: begun\nprog: error: broken\n");
}

TEST_F(LogFileTest, StderrGetsWhatItsFlagsSay) {
  files_.stderr_from = LogLevel::kOff;
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Start());
  LogError("broken");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  files_.also_to_stderr = true;
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Start());
  LogInfo("again");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "prog: again\n");
  EXPECT_EQ(Text(files_.file), "prog: error: broken\nprog: again\n");
}

TEST_F(LogFileTest, ARenamedFileIsBegunAnewWhenOpenedAnew) {
  ASSERT_TRUE(Start());
  LogInfo("one");
  std::filesystem::rename(files_.file, files_.file + ".1");
  LogInfo("two");
  ReopenLog();
  LogInfo("three");
  EXPECT_EQ(Text(files_.file + ".1"), "prog: one\nprog: two\n");
  EXPECT_EQ(Text(files_.file), "prog: three\n");
}

TEST_F(LogFileTest, AFullFileIsBegunAnew) {
  files_.most_bytes = 30;
  ASSERT_TRUE(Start());
  for (int i = 0; i < 4; ++i) LogInfo("line " + std::to_string(i));
  EXPECT_EQ(Text(files_.file), "prog: line 2\nprog: line 3\n");
}

TEST_F(LogFileTest, AFolderGetsAFileWithKlogsName) {
  files_.file.clear();
  files_.folder = folder_;
  ASSERT_TRUE(Start());
  LogInfo("here");
  EXPECT_EQ(Text(folder_ + "/prog.INFO"), "prog: here\n");
  EXPECT_THAT(std::filesystem::read_symlink(folder_ + "/prog.INFO").string(),
              testing::MatchesRegex("prog\\..*\\.log\\.INFO\\.20[0-9]+-[0-9]+\\.[0-9]+"));
}

TEST_F(LogFileTest, AFileThatCannotBeOpenedIsRefused) {
  files_.file = folder_ + "/none/daemon.log";
  const Status started = Start();
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("none/daemon.log: No such file"));
  EXPECT_THAT(started.error().hint, HasSubstr("--logtostderr=false"));
}

TEST_F(LogFileTest, WhereTheFileIsLostStderrHasTheMessages) {
  files_.file = "/dev/full";
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Start());
  LogInfo("one");
  LogInfo("two");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("prog: error: cannot write the log file /dev/full: .*SIGHUP opens the file anew\n"
                                    "prog: one\nprog: two\n"));
}

TEST_F(LogFileTest, FlagsAreReadAsKlogReadsThem) {
  LogFiles files;
  FlagSet flags;
  flags.Group("Log");
  AddLogFileFlags(flags, files);
  const auto parsed = flags.Parse({"--logtostderr=false", "--log_file=/l", "--log_dir", "/d", "--log_file_max_size=7",
                                   "--alsologtostderr", "--stderrthreshold=WARNING"});
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(files.to_stderr);
  EXPECT_TRUE(files.also_to_stderr);
  EXPECT_EQ(files.file, "/l");
  EXPECT_EQ(files.folder, "/d");
  EXPECT_EQ(files.most_bytes, 7ULL << 20U);
  EXPECT_EQ(files.stderr_from, LogLevel::kWarning);
  EXPECT_THAT(LogFileWarnings(*parsed, files), IsEmpty());
  EXPECT_FALSE(flags.Parse({"--stderrthreshold=loud"}));
  EXPECT_FALSE(flags.Parse({"--log_file_max_size=-1"}));
}

TEST_F(LogFileTest, AFileWithoutItsSwitchIsNotTakenInSilence) {
  LogFiles files;
  FlagSet flags;
  AddLogFileFlags(flags, files);
  const auto parsed = flags.Parse({"--log_file=/l"});
  EXPECT_THAT(LogFileWarnings(*parsed, files), ElementsAre("--log_file has no effect without --logtostderr=false"));
  EXPECT_THAT(flags.Parse({"--skip_headers"})->warnings, ElementsAre(EndsWith("log lines have one form")));
  EXPECT_THAT(flags.Help(), Not(HasSubstr("skip_headers")));
}

}  // namespace
}  // namespace hami::base
