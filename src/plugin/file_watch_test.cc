// SPDX-License-Identifier: Apache-2.0

#include "plugin/file_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hami::plugin {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class FileWatchTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("hami-file-watch-test-" + std::to_string(::getpid()));
};

TEST_F(FileWatchTest, NoInotify_SaysSoAndTriesAgain) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(STDIN_FILENO);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  FileWatch files({folder_ / "config.json"});
  const std::string trouble = files.trouble();
  const bool heard = files.Wait(1ms, -1);
  const std::string still = files.trouble();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(trouble, HasSubstr("fs.inotify.max_user_instances"));
  EXPECT_EQ(still, trouble);
  EXPECT_FALSE(heard);
  EXPECT_FALSE(files.Wait(1ms, -1));
  EXPECT_EQ(files.trouble(), "");
  std::ofstream(folder_ / "config.json") << "{}";
  EXPECT_TRUE(files.Wait(1s, -1));
}

TEST_F(FileWatchTest, FolderThatIsNotThere_IsNoTroubleAndIsFound) {
  FileWatch files({folder_ / "later/config.json"});
  EXPECT_FALSE(files.Wait(1ms, -1));
  EXPECT_EQ(files.trouble(), "");
  std::filesystem::create_directories(folder_ / "later");
  EXPECT_FALSE(files.Wait(1ms, -1));
  std::ofstream(folder_ / "later/config.json") << "{}";
  EXPECT_TRUE(files.Wait(1s, -1));
}

}  // namespace
}  // namespace hami::plugin
