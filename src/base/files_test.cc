// SPDX-License-Identifier: Apache-2.0

#include "base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/fd.h"

namespace hami::base {
namespace {

using testing::HasSubstr;

class ReplacedFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hami-files-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern + "/file";
  }
  void TearDown() override { std::filesystem::remove_all(std::filesystem::path(path_).parent_path()); }

  std::string path_;
};

TEST_F(ReplacedFiles, GivenAFile_WhenReplaced_ThenContentAndModeAreNewWhateverTheUmask) {
  ASSERT_TRUE(WriteNewFile(path_, "old", 0600));
  const mode_t before = ::umask(0777);
  const Status replaced = ReplaceFile(path_, "new", 0640);
  ::umask(before);
  ASSERT_TRUE(replaced);
  EXPECT_EQ(*ReadFile(path_, 100), "new");
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
}

TEST_F(ReplacedFiles, GivenNoRoom_WhenReplaced_ThenTheOldFileStaysAloneAndTheErrorNamesIt) {
  ASSERT_TRUE(WriteNewFile(path_, "old", 0600));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{1, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const Status replaced = ReplaceFile(path_, "a longer one", 0600);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(replaced);
  EXPECT_THAT(replaced.error().message, HasSubstr(path_));
  EXPECT_EQ(*ReadFile(path_, 100), "old");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(ReplacedFiles, GivenADraftOfOneThatDied_WhenReplaced_ThenItIsNoObstacle) {
  ASSERT_TRUE(WriteNewFile(path_ + ".new", "half", 0600));
  ASSERT_TRUE(ReplaceFile(path_, "whole", 0600));
  EXPECT_EQ(*ReadFile(path_, 100), "whole");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

}  // namespace
}  // namespace hami::base
