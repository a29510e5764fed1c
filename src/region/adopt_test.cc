// SPDX-License-Identifier: Apache-2.0
//
// The file of a region goes away while it is in use, or cannot be made: one account all the same, and no signal.
#include "region/adopt.h"

#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "region/testing/region.h"

namespace hami::region {
namespace {

class DeletedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(Attach(&attachment_, path_.c_str(), TestConfig()), Status::kOk);
    ASSERT_EQ(Reserve(&attachment_, 0, 300, Kind::kData), Status::kOk);
    ASSERT_EQ(unlink(path_.c_str()), 0);
  }
  // In a newcomer: what it may have is what the others left.
  static int JoinAs(const std::string& path) {
    Attached newcomer;
    if (Attach(&newcomer, path.c_str(), TestConfig()) != Status::kOk) return 1;
    if (Used(newcomer, 0) != 300) return 2;
    if (Reserve(&newcomer, 0, 701, Kind::kData) != Status::kOverLimit) return 3;
    return Reserve(&newcomer, 0, 700, Kind::kData) == Status::kOk ? 0 : 4;
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
  Attached attachment_;
};

TEST_F(DeletedTest, GivenTheFileIsDeletedInUse_ThenANewcomerJoinsTheAccount) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Join(Spawn([&] { return JoinAs(path_); })), 0);
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_EQ(Used(attachment_, 0), 300U);
}

TEST_F(DeletedTest, GivenAnotherSpellingOfThePath_ThenTheSameAccount) {
  const pid_t relative = Spawn([&] { return chdir(folder_.path().c_str()) == 0 ? JoinAs("a.cache") : 9; });
  EXPECT_EQ(Join(relative), 0);
  const std::string link = folder_.path() + "-link";
  ASSERT_EQ(symlink(folder_.path().c_str(), link.c_str()), 0);
  EXPECT_EQ(Join(Spawn([&] { return JoinAs(link + "/a.cache"); })), 0);
  unlink(link.c_str());
}

TEST_F(DeletedTest, GivenAllHaveGone_ThenANewcomerBeginsAnew) {
  Detach(&attachment_);
  Attached newcomer;
  ASSERT_EQ(Attach(&newcomer, path_.c_str(), TestConfig()), Status::kOk);
  EXPECT_EQ(Used(newcomer, 0), 0U);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(DeletedTest, GivenAnotherFileOfThatName_ThenItIsNotTaken) {
  std::ofstream other(folder_ / "b.cache");
  other << "no region";
  other.flush();
  unlink((folder_ / "b.cache").c_str());
  EXPECT_EQ(OpenDeleted((folder_ / "b.cache").c_str()), -1);
  EXPECT_EQ(OpenDeleted((folder_ / "none/c.cache").c_str()), -1);
}

// systemd-tmpfiles takes an exclusive lock on what it removes, and leaves what it cannot have.
TEST(CleanerTest, GivenAnAttachment_ThenCleanersCannotLockItsFileUntilItEnds) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  const int cleaner = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(cleaner, 0);
  EXPECT_NE(flock(cleaner, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(errno, EWOULDBLOCK);
  close(attachment.fd);  // as a program does that closes everything
  EXPECT_NE(flock(cleaner, LOCK_EX | LOCK_NB), 0);
  Detach(&attachment);
  EXPECT_EQ(flock(cleaner, LOCK_EX | LOCK_NB), 0);
  close(cleaner);
}

// What stands in the way of a new file, in a child. The result is errno, or 200 where there was none.
template <typename Limit>
int AttachUnder(Limit limit) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  return Join(Spawn([&] {
    limit();
    static Attachment attachment;
    return Attach(&attachment, path.c_str(), TestConfig()) == Status::kOk ? 200 : attachment.error;
  }));
}

template <int resource>
void SetLimit(rlim_t value) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  limit.rlim_cur = value;
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

TEST(LimitTest, GivenALimitOnTheSizeOfFiles_ThenAnErrorAndNoSignal) {
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{4096}, rlim_t{kFileBytes - 1}}) {
    EXPECT_EQ(AttachUnder([&] { SetLimit<RLIMIT_FSIZE>(bytes); }), EFBIG) << bytes;
  }
  EXPECT_EQ(AttachUnder([] { SetLimit<RLIMIT_FSIZE>(kFileBytes); }), 200);
}

TEST(LimitTest, GivenASignalThatWasPendingBefore_ThenItStaysPending) {
  const int status = AttachUnder([] {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    raise(SIGXFSZ);
    SetLimit<RLIMIT_FSIZE>(0);
    static Attachment attachment;
    const bool failed = Attach(&attachment, "/tmp/hami-region-that-cannot-be", TestConfig()) == Status::kIo;
    sigset_t pending;
    sigpending(&pending);
    _exit(failed && sigismember(&pending, SIGXFSZ) == 1 ? 201 : 202);
  });
  unlink("/tmp/hami-region-that-cannot-be");
  EXPECT_EQ(status, 201);
}

TEST(LimitTest, GivenNoDescriptorsOrNoAddresses_ThenAnError) {
  EXPECT_EQ(AttachUnder([] { SetLimit<RLIMIT_NOFILE>(0); }), EMFILE);
  EXPECT_EQ(AttachUnder([] { SetLimit<RLIMIT_AS>(4096); }), ENOMEM);
}

// A store to a page without room would be SIGBUS.
TEST(LimitTest, GivenAFullDisk_ThenAnErrorAndNoSignal) {
  const TempFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "no mounts here";
  const std::string path = folder / "a.cache";
  const int status = Join(Spawn([&] {
    static Attachment attachment;
    return Attach(&attachment, path.c_str(), TestConfig()) == Status::kOk ? 200 : attachment.error;
  }));
  umount(folder.path().c_str());
  EXPECT_EQ(status, ENOSPC);
}

}  // namespace
}  // namespace hami::region
