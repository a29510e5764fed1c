// SPDX-License-Identifier: Apache-2.0

#include "base/watched_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/fd.h"
#include "base/files.h"

namespace hami::base {
namespace {

class WatchedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "watched_file_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

TEST_F(WatchedFileTest, IsReadOnceAndAgainWhenItChanged) {
  const std::string path = folder_ + "/file";
  ASSERT_TRUE(ReplaceFile(path, "one", 0600));
  WatchedFile file(path, 100);
  EXPECT_EQ(file.Look().value(), "one");
  EXPECT_EQ(file.Look().value(), std::nullopt);
  ASSERT_TRUE(ReplaceFile(path, "two", 0600));
  EXPECT_EQ(file.Look().value(), "two");
}

TEST_F(WatchedFileTest, FollowsASwappedLink) {
  ASSERT_TRUE(ReplaceFile(folder_ + "/a", "one", 0600));
  ASSERT_TRUE(ReplaceFile(folder_ + "/b", "two", 0600));
  ASSERT_TRUE(ReplaceLink(folder_ + "/link", "a"));
  WatchedFile file(folder_ + "/link", 100);
  EXPECT_EQ(file.Look().value(), "one");
  ASSERT_TRUE(ReplaceLink(folder_ + "/link", "b"));
  EXPECT_EQ(file.Look().value(), "two");
}

TEST_F(WatchedFileTest, SaysThatItIsNotThereUntilItIs) {
  const std::string path = folder_ + "/file";
  WatchedFile file(path, 3);
  EXPECT_FALSE(file.Look());
  EXPECT_FALSE(file.Look());
  ASSERT_TRUE(ReplaceFile(path, "four", 0600));
  EXPECT_FALSE(file.Look());  // too large
  ASSERT_TRUE(ReplaceFile(path, "one", 0600));
  EXPECT_EQ(file.Look().value(), "one");
}

}  // namespace
}  // namespace hami::base
