// SPDX-License-Identifier: Apache-2.0

#include "monitor/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "region/remote.h"
#include "region/testing/region.h"

namespace hami::monitor {
namespace {

namespace fs = std::filesystem;
using region::MakeHamiFile;
using region::RawFile;

constexpr const char* kName = "3f6c1d0e-6c1b-4d63-9d0f-6a3a0a1b2c3d_main";

class FolderTest : public testing::Test {
 protected:
  FolderTest() { fs::create_directories(Path()); }

  std::string Path(const std::string& file = "") const {
    return temp_.path() + "/containers/" + kName + (file.empty() ? "" : "/" + file);
  }
  Entry TheEntry() {
    auto entries = folder_.List();
    EXPECT_TRUE(entries && entries->size() == 1);
    return entries && !entries->empty() ? entries->front() : Entry{};
  }
  Reading Read() { return folder_.Read(TheEntry()); }
  void Touch(const std::string& file, int age_seconds) {
    const auto now = fs::file_time_type::clock::now();
    fs::last_write_time(Path(file), now - std::chrono::seconds(age_seconds));
  }

  const region::TempFolder temp_;
  Folder folder_{temp_.path()};
};

TEST_F(FolderTest, GivenNoContainersFolder_ThenEmptyOnlyWhereHookPathExists) {
  fs::remove_all(temp_.path() + "/containers");
  EXPECT_TRUE(folder_.List()) << "nothing was allocated yet";
  const auto listed = Folder(temp_.path() + "/nowhere").List();
  ASSERT_FALSE(listed);
  EXPECT_THAT(listed.error().message, testing::HasSubstr("nowhere/containers: No such file"));
}

TEST_F(FolderTest, GivenHamisAndOurRegions_WhenRead_ThenBothAreUnderstood) {
  MakeHamiFile(Path("a.cache"));
  const Reading hami = Read();
  EXPECT_EQ(hami.problem, Problem::kNone);
  EXPECT_EQ(hami.region.version, 1);
  EXPECT_FALSE(hami.region.ours);
  EXPECT_EQ(hami.region.recent_kernel, 2);
  fs::remove(Path("a.cache"));
  ASSERT_EQ(region::Create(Path("b.cache").c_str(), region::TestConfig(1000)), region::Status::kOk);
  const Reading ours = Read();
  EXPECT_EQ(ours.problem, Problem::kNone);
  EXPECT_TRUE(ours.region.ours);
  EXPECT_EQ(ours.region.devices[0].limit, 1000U);
}

TEST_F(FolderTest, GivenAV0RegionAndAV11Region_WhenRead_ThenBothAreUnderstood) {
  const RawFile v0(Path("a.cache"));
  v0.Resize(1'197'897);
  v0.Set<int32_t>(0, 19920718);
  v0.Set<uint64_t>(48, 1);
  v0.Set<uint32_t>(56, 0x2d555047);
  v0.Set<uint64_t>(1592, 4321);
  v0.Set<int32_t>(1'197'892, 3);
  EXPECT_EQ(Read().region.version, 0);
  EXPECT_EQ(Read().region.devices.at(0).limit, 4321U);
  EXPECT_EQ(Read().region.priority, 3);
  fs::remove(Path("a.cache"));
  MakeHamiFile(Path("b.cache"), 1);
  EXPECT_EQ(Read().problem, Problem::kNone);
  EXPECT_EQ(Read().region.minor_version, 1U);
}

TEST_F(FolderTest, GivenAFileOfAYearNoClockCounts_ThenItsTimeIsTheFurthest) {
  MakeHamiFile(Path("a.cache"));
  const auto written_at = [&](std::time_t seconds) {
    const std::array<timespec, 2> times{timespec{seconds, 0}, timespec{seconds, 999'999'999}};
    EXPECT_EQ(::utimensat(AT_FDCWD, Path("a.cache").c_str(), times.data(), 0), 0);
    return Read().written;
  };
  const WallTime now = std::chrono::system_clock::now();
  EXPECT_GT(written_at(15'000'000'000) - now, std::chrono::hours(24 * 365 * 100)) << "the year 2445";
  EXPECT_GT(now - written_at(-2'000'000'000), std::chrono::hours(24 * 365 * 50)) << "the year 1906";
}

// V1: HAMi maps the file; a tenant that truncates it kills the monitor with SIGBUS.
TEST_F(FolderTest, GivenTenantTruncatingAllTheTime_WhenRead_ThenReaderLives) {
  ASSERT_EQ(region::Create(Path("a.cache").c_str(), region::TestConfig()), region::Status::kOk);
  const RawFile file(Path("a.cache"));
  std::atomic<bool> stop{false};
  std::thread tenant([&] {
    for (int i = 0; !stop.load(); ++i) {
      static_cast<void>(::ftruncate(file.fd(), i % 2 == 0 ? 5000 : static_cast<off_t>(region::kFileBytes)));
    }
  });
  const Entry entry = TheEntry();
  for (int i = 0; i < 400; ++i) {
    const Reading reading = folder_.Read(entry);
    const auto writable = folder_.OpenForWriting(entry, reading);
    if (writable) static_cast<void>(region::WriteRecentKernel({writable->get(), reading.region.version}, -1));
  }
  stop.store(true);
  tenant.join();
}

TEST_F(FolderTest, GivenTruncatedOrForeignFiles_WhenRead_ThenTheProblemIsNamed) {
  const RawFile file(Path("a.cache"));
  EXPECT_EQ(Read().problem, Problem::kCorrupt) << "empty";
  file.Resize(2'008'953);
  EXPECT_EQ(Read().problem, Problem::kCorrupt) << "no magic";
  file.Set<int32_t>(0, 19920718);
  file.Set<uint32_t>(4, 7);
  EXPECT_EQ(Read().problem, Problem::kUnsupported) << "another major version";
  file.Resize(804'680);
  EXPECT_EQ(Read().problem, Problem::kUnsupported) << "older than v0";
  file.Resize(8);
  EXPECT_EQ(Read().problem, Problem::kCorrupt) << "less than a head";
}

// V1: a name that leads elsewhere, or that blocks whoever opens it.
TEST_F(FolderTest, GivenLinkFifoOrDirectory_WhenRead_ThenNotOpenedNorBlocking) {
  MakeHamiFile(temp_ / "elsewhere.cache");
  fs::create_symlink(temp_ / "elsewhere.cache", Path("a.cache"));
  EXPECT_EQ(Read().problem, Problem::kCorrupt);
  fs::remove(Path("a.cache"));
  ASSERT_EQ(::mkfifo(Path("a.cache").c_str(), 0666), 0);
  EXPECT_EQ(Read().problem, Problem::kCorrupt);
  fs::remove(Path("a.cache"));
  fs::create_directory(Path("a.cache"));
  EXPECT_EQ(Read().problem, Problem::kCorrupt);
}

TEST_F(FolderTest, GivenContainerLinkedOutOfFolder_WhenListed_ThenLeadsNowhere) {
  fs::remove_all(Path());
  fs::create_directory(temp_ / "elsewhere");
  MakeHamiFile(temp_ / "elsewhere/a.cache");
  fs::create_symlink(temp_ / "elsewhere", Path());
  EXPECT_TRUE(TheEntry().directory.empty());
  EXPECT_EQ(Read().problem, Problem::kNoFile);
}

TEST_F(FolderTest, GivenALinkToAShare_WhenRead_ThenTheShareIsRead) {
  fs::remove_all(Path());
  fs::create_directories(temp_ / "shares/7f-1");
  MakeHamiFile(temp_ / "shares/7f-1/a.cache");
  fs::create_symlink("../shares/7f-1", Path());
  EXPECT_EQ(Read().problem, Problem::kNone);
}

// V2: HAMi looks at the magic once; the file may become another afterwards.
TEST_F(FolderTest, GivenRegionRemadeInPlace_WhenReadAgain_ThenNewContentIsSeen) {
  MakeHamiFile(Path("a.cache"));
  ASSERT_EQ(Read().region.version, 1);
  const RawFile file(Path("a.cache"));
  file.Set<int32_t>(0, 0);
  EXPECT_EQ(Read().problem, Problem::kCorrupt);
  file.Resize(0);
  file.Resize(1'197'897);
  file.Set<int32_t>(0, 19920718);
  EXPECT_EQ(Read().problem, Problem::kNone);
  EXPECT_EQ(Read().region.version, 0);
}

// V3: HAMi shows no container whose directory holds more than two such files, and takes the first of two.
TEST_F(FolderTest, GivenManyFiles_WhenRead_ThenTheNewestValidOneCounts) {
  MakeHamiFile(Path("old.cache"));
  RawFile(Path("old.cache")).Set<uint64_t>(1600, 1);
  MakeHamiFile(Path("new.cache"));
  RawFile(Path("new.cache")).Set<uint64_t>(1600, 2);
  for (int i = 0; i < 20; ++i) RawFile(Path("junk" + std::to_string(i) + ".cache")).Resize(100);
  RawFile(Path("libvgpu.so.1")).Resize(1);
  RawFile(Path("libvgpu.so.2")).Resize(1);
  Touch("old.cache", 20);
  Touch("new.cache", 10);
  const Reading reading = Read();
  ASSERT_EQ(reading.problem, Problem::kNone);
  EXPECT_EQ(reading.file, "new.cache");
  EXPECT_EQ(reading.region.devices.at(0).limit, 2U);
}

// V2, V3: a program that starts makes its file first and fills it then.
TEST_F(FolderTest, GivenNewerFileNotReadyYet_WhenReady_ThenItCountsFromThenOn) {
  MakeHamiFile(Path("old.cache"));
  Touch("old.cache", 20);
  RawFile(Path("new.cache")).Resize(100);
  ASSERT_EQ(Read().file, "old.cache");
  MakeHamiFile(Path("new.cache"));
  EXPECT_EQ(Read().file, "new.cache");
}

TEST_F(FolderTest, GivenUnopenableDirectoryOrFile_ThenProblemAndNotAbsence) {
  MakeHamiFile(Path("a.cache"));
  const Entry entry = TheEntry();
  ASSERT_EQ(folder_.Read(entry).problem, Problem::kNone);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);  // descriptors are given out from the lowest free number on
  ::close(next);
  for (int free = 0; free < 3; ++free) {
    const rlimit few{static_cast<rlim_t>(next + free), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    EXPECT_EQ(folder_.Read(entry).problem, Problem::kUnreadable) << free;
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(folder_.Read(entry).problem, Problem::kNone);
  fs::remove_all(Path());
  EXPECT_EQ(folder_.Read(entry).problem, Problem::kNoFile) << "gone since it was listed";
}

TEST_F(FolderTest, GivenFileInPlaceOfFolder_WhenListed_ThenErrorAndNotEmpty) {
  fs::remove_all(temp_ / "containers");
  RawFile(temp_ / "containers").Resize(1);
  EXPECT_FALSE(folder_.List());
}

TEST_F(FolderTest, GivenFloodOfFiles_WhenRead_ThenOnlyThatContainersProblem) {
  for (int i = 0; i < 1500; ++i) RawFile(Path("x" + std::to_string(i) + ".cache")).Resize(0);
  EXPECT_EQ(Read().problem, Problem::kCorrupt);
}

// V10: HAMi keeps the mapping of a file that was deleted when the directory was made anew.
TEST_F(FolderTest, GivenDirectoryRemadeUnderSameName_WhenRead_ThenNewFileSeen) {
  MakeHamiFile(Path("first.cache"));
  ASSERT_EQ(Read().file, "first.cache");
  fs::remove_all(Path());
  fs::create_directory(Path());
  EXPECT_EQ(Read().problem, Problem::kNoFile);
  MakeHamiFile(Path("second.cache"));
  EXPECT_EQ(Read().file, "second.cache");
}

TEST_F(FolderTest, GivenFileReplacedSinceRead_WhenOpenedForWriting_ThenRefused) {
  MakeHamiFile(Path("a.cache"));
  const Entry entry = TheEntry();
  const Reading reading = folder_.Read(entry);
  MakeHamiFile(Path("b.cache"));
  fs::rename(Path("b.cache"), Path("a.cache"));
  EXPECT_FALSE(folder_.OpenForWriting(entry, reading));
  EXPECT_TRUE(folder_.OpenForWriting(entry, folder_.Read(entry)));
}

TEST_F(FolderTest, GivenNoFolderYet_WhenListed_ThenItIsEmpty) {
  fs::remove_all(temp_ / "containers");
  const auto entries = folder_.List();
  ASSERT_TRUE(entries);
  EXPECT_TRUE(entries->empty());
}

TEST_F(FolderTest, GivenProcess_WhenRead_ThenKnownToLiveUntilItDies) {
  const region::Signal ready, go;
  const std::string path = Path("a.cache");
  const pid_t pid = region::Spawn([&] {
    static region::Attachment attachment;
    if (region::Attach(&attachment, path.c_str(), region::TestConfig()) != region::Status::kOk) return 1;
    ready.Raise();
    go.Await();
    _exit(0);  // without giving its slot back
    return 0;
  });
  ready.Await();
  EXPECT_EQ(Read().region.living, 1);
  go.Raise();
  region::Join(pid);
  EXPECT_EQ(Read().region.living, 0);
  EXPECT_EQ(Read().region.possible, 0);
}

TEST_F(FolderTest, GivenRemovedDirectory_ThenNameGoesAtOnceAndContentBitByBit) {
  for (int i = 0; i < 30; ++i) RawFile(Path("f" + std::to_string(i))).Resize(1);
  ASSERT_TRUE(folder_.Remove(TheEntry()));
  EXPECT_FALSE(fs::exists(Path()));
  EXPECT_FALSE(folder_.EmptyTrash(10));
  ASSERT_TRUE(folder_.List()) << "and what an earlier monitor left is found again";
  EXPECT_TRUE(folder_.EmptyTrash(1000));
  EXPECT_TRUE(fs::is_empty(temp_ / "containers"));
}

TEST_F(FolderTest, GivenDirectoryChangedSinceListed_WhenRemoved_ThenItStays) {
  const Entry entry = TheEntry();
  fs::remove_all(Path());
  fs::create_directory(Path());
  MakeHamiFile(Path("a.cache"));
  EXPECT_FALSE(folder_.Remove(entry));
  EXPECT_TRUE(fs::exists(Path("a.cache")));
}

TEST_F(FolderTest, GivenALink_WhenRemoved_ThenWhatItLeadsToStays) {
  fs::remove_all(Path());
  fs::create_directories(temp_ / "shares/7f");
  fs::create_symlink("../shares/7f", Path());
  ASSERT_TRUE(folder_.Remove(TheEntry()));
  EXPECT_FALSE(fs::exists(fs::symlink_status(Path())));
  EXPECT_TRUE(fs::exists(temp_ / "shares/7f"));
}

}  // namespace
}  // namespace hami::monitor
