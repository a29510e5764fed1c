// SPDX-License-Identifier: Apache-2.0

#include "cli/state.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

namespace hami::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class States : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hami-state-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  State OpenState() { return State::OpenAt(folder_ + "/hami").value(); }
  static ShareRecord Record(const char* name) {
    ShareRecord record;
    record.name = name;
    record.command = {"x"};
    record.grants = {{"GPU-a", 1, 1, 0}};
    return record;
  }
  // An empty file stands for the region: that nothing can be read from it must not matter to the life line.
  static base::Result<base::Fd> Create(const State& state, const ShareRecord& record) {
    auto lock = StateLock::Take(state);
    return lock->Create(record, [](const std::string& path) { return base::WriteNewFile(path, "", 0600); });
  }
  static std::vector<std::string> Names(const StateLock& lock) {
    std::vector<std::string> names;
    for (const StoredShare& share : lock.shares()) names.push_back(share.name);
    return names;
  }
  std::string folder_;
};

TEST_F(States, GivenNewShare_WhenItsLifeLineEnds_ThenItIsListedAndThenGone) {
  const State state = OpenState();
  base::Fd life_line = Create(state, Record("a")).value();
  EXPECT_THAT(Names(*StateLock::Take(state)), ElementsAre("a"));
  EXPECT_TRUE(std::filesystem::exists(state.folder() + "/shares/a/region.cache"));
  life_line.Reset();
  EXPECT_THAT(Names(*StateLock::Take(state)), IsEmpty());
  EXPECT_THAT(std::filesystem::directory_iterator(state.folder() + "/shares"),
              testing::Eq(std::filesystem::directory_iterator()));
}

TEST_F(States, GivenLifeLineInChild_WhenMakerLetsGo_ThenAliveUntilChildDies) {
  const State state = OpenState();
  base::Fd life_line = Create(state, Record("a")).value();
  const pid_t child = ::fork();
  if (child == 0) {
    while (true) ::pause();
  }
  life_line.Reset();
  EXPECT_THAT(Names(*StateLock::Take(state)), ElementsAre("a"));
  ASSERT_TRUE(StateLock::Take(state)->Collect("a"));
  EXPECT_TRUE(std::filesystem::exists(state.folder() + "/shares/a")) << "collecting must spare the living";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(StateLock::Take(state)->Collect("a"));
  EXPECT_FALSE(std::filesystem::exists(state.folder() + "/shares/a"));
}

TEST_F(States, GivenLivingShare_WhenItsNameIsTakenAgain_ThenRefused) {
  const State state = OpenState();
  const base::Fd life_line = Create(state, Record("a")).value();
  const auto second = Create(state, Record("a"));
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("already"));
  EXPECT_TRUE(Create(state, Record("b")));
}

TEST_F(States, GivenMakerThatFailsOrDies_WhenLooked_ThenNothingOfIt) {
  const State state = OpenState();
  {
    auto lock = StateLock::Take(state);
    EXPECT_FALSE(lock->Create(Record("a"), [](const std::string&) { return base::Status(base::Fail("no")); }));
    EXPECT_FALSE(std::filesystem::exists(state.folder() + "/shares/.new"));
  }
  std::filesystem::create_directory(state.folder() + "/shares/.new");
  EXPECT_THAT(Names(*StateLock::Take(state)), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(state.folder() + "/shares/.new"));
}

TEST_F(States, GivenNoRoom_WhenRecordMade_ThenErrorNamesItAndNothingIsLeft) {
  const State state = OpenState();
  auto lock = StateLock::Take(state);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{1, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const auto made = lock->Create(Record("a"), [](const std::string&) { return base::Status(); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("/share.json: can not write"));
  EXPECT_FALSE(std::filesystem::exists(state.folder() + "/shares/.new"));
}

// With and without a session, in cron, under sudo -u: one set of books for a user.
TEST_F(States, RuntimeFolderOrNone_ThenTheSameFolder) {
  ::unsetenv("HAMI_STATE_DIR");
  for (const std::string& runtime : {std::string("relative"), folder_ + "/missing", std::string(), folder_}) {
    ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
    EXPECT_EQ(DefaultStateFolder(1234), "/tmp/hami-1234") << runtime;
    EXPECT_EQ(DefaultStateFolder(0), "/var/lib/hami") << runtime;
  }
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(DefaultStateFolder(1234), "/tmp/hami-1234");
  ::setenv("HAMI_STATE_DIR", "/chosen", 1);
  EXPECT_EQ(DefaultStateFolder(0), "/chosen");
  EXPECT_EQ(DefaultStateFolder(1234), "/chosen");
  ::unsetenv("HAMI_STATE_DIR");
}

// systemd-tmpfiles takes this lock of a folder before it removes old files in it.
TEST_F(States, FolderKeptFromCleaners_ThenTheyFindItLocked) {
  const State state = OpenState();
  const base::Fd cleaner = base::Open(state.folder(), O_RDONLY | O_DIRECTORY).value();
  {
    const base::Fd kept = state.KeepFromCleaners();
    ASSERT_TRUE(kept);
    EXPECT_FALSE(*base::TryLock(cleaner.get(), base::LockMode::kExclusive));
    EXPECT_TRUE(state.KeepFromCleaners()) << "any number of shares may";
    EXPECT_TRUE(StateLock::Take(state));
  }
  EXPECT_TRUE(*base::TryLock(cleaner.get(), base::LockMode::kExclusive));
}

TEST_F(States, GivenImpossibleFolder_WhenOpened_ThenErrorNamesTheVariable) {
  ASSERT_TRUE(base::WriteNewFile(folder_ + "/file", "x", 0600));
  const auto state = State::OpenAt(folder_ + "/file/hami");
  ASSERT_FALSE(state);
  EXPECT_THAT(state.error().message, HasSubstr(folder_ + "/file/hami"));
  EXPECT_THAT(state.error().hint, HasSubstr("HAMI_STATE_DIR"));
}

TEST_F(States, GivenSpoiltRecord_WhenLivingShareListed_ThenListedWithoutIt) {
  const State state = OpenState();
  const base::Fd life_line = Create(state, Record("a")).value();
  const std::string path = state.folder() + "/shares/a/share.json";
  std::filesystem::remove(path);
  ASSERT_TRUE(base::WriteNewFile(path, "{", 0600));
  const auto lock = StateLock::Take(state);
  ASSERT_EQ(lock->shares().size(), 1u);
  EXPECT_FALSE(lock->shares()[0].record);
}

TEST_F(States, GivenForeignThingsInTheFolder_WhenListed_ThenLeftAlone) {
  const State state = OpenState();
  ASSERT_TRUE(base::WriteNewFile(state.folder() + "/shares/.keep", "x", 0600));
  ASSERT_TRUE(base::WriteNewFile(folder_ + "/outside", "x", 0600));
  std::filesystem::create_symlink(folder_, state.folder() + "/shares/link");
  EXPECT_THAT(Names(*StateLock::Take(state)), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(state.folder() + "/shares/.keep"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/outside")) << "a planted link must not lead the broom outside";
}

TEST_F(States, GivenFolderOthersCanWrite_WhenOpened_ThenRefused) {
  const State state = OpenState();
  ASSERT_EQ(::chmod(state.folder().c_str(), 0777), 0);
  EXPECT_FALSE(State::OpenAt(state.folder()));
  std::filesystem::create_directory_symlink(folder_, folder_ + "/alias");
  EXPECT_FALSE(State::OpenAt(folder_ + "/alias"));
}

TEST_F(States, GivenStateLockHeld_WhenAnotherProcessTakesIt_ThenItWaits) {
  const State state = OpenState();
  auto lock = std::make_unique<StateLock>(StateLock::Take(state).value());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    lock->shares();
    // The inherited lock belongs to the parent's description; a new one has to wait for it.
    const base::Fd mine = base::Open(state.folder() + "/lock", O_RDWR).value();
    const bool free = base::TryLock(mine.get(), base::LockMode::kExclusive).value();
    _exit(free ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  lock.reset();
  EXPECT_TRUE(StateLock::Take(state));
}

}  // namespace
}  // namespace hami::cli
