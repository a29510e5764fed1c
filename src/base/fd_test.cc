// SPDX-License-Identifier: Apache-2.0

#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace hami::base {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hami-fd-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const char* name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(Files, GivenMovedFd_WhenBothEnd_ThenClosedOnce) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const Fd reader(pipe_ends[0]);
  {
    Fd writer(pipe_ends[1]);
    const Fd other = std::move(writer);
    EXPECT_EQ(writer.get(), -1);  // NOLINT(bugprone-use-after-move): that it is empty is the point
    EXPECT_EQ(other.get(), pipe_ends[1]);
  }
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0) << "the write end is closed, so the pipe is at its end";
}

TEST_F(Files, GivenFile_WhenReadWithABound_ThenLongerIsRefused) {
  ASSERT_TRUE(WriteNewFile(Path("f"), "hello", 0600));
  EXPECT_EQ(ReadFile(Path("f"), 5).value(), "hello");
  EXPECT_FALSE(ReadFile(Path("f"), 4));
  EXPECT_FALSE(ReadFile(Path("absent"), 4));
}

TEST_F(Files, GivenExistingFile_WhenWrittenNew_ThenRefused) {
  ASSERT_TRUE(WriteNewFile(Path("f"), "a", 0600));
  EXPECT_FALSE(WriteNewFile(Path("f"), "b", 0600));
}

TEST_F(Files, GivenLinkOrPipe_WhenRead_ThenRefusedWithoutWaiting) {
  ASSERT_TRUE(WriteNewFile(Path("f"), "a", 0600));
  ASSERT_EQ(::symlink(Path("f").c_str(), Path("link").c_str()), 0);
  EXPECT_FALSE(ReadFile(Path("link"), 10));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(ReadFile(Path("pipe"), 10));
}

TEST_F(Files, GivenInheritedLock_WhenParentCloses_ThenHeldUntilChildEnds) {
  Fd held = Open(Path("lock"), O_RDWR | O_CREAT, 0600).value();
  ASSERT_TRUE(TryLock(held.get(), LockMode::kExclusive).value());
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe_ends[1]);
    char byte = 0;
    _exit(::read(pipe_ends[0], &byte, 1) == 0 ? 0 : 1);  // until the parent closes the pipe
  }
  ::close(pipe_ends[0]);
  held.Reset();
  const Fd probe = Open(Path("lock"), O_RDWR).value();
  EXPECT_FALSE(TryLock(probe.get(), LockMode::kShared).value());
  ::close(pipe_ends[1]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(TryLock(probe.get(), LockMode::kShared).value());
}

}  // namespace
}  // namespace hami::base
