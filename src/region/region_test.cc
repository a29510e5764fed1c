// SPDX-License-Identifier: Apache-2.0
#include "region/region.h"

#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "region/process.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

int64_t ThreadCpuNanos() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

TEST(RegionCreate, GivenNoFile_WhenAttached_ThenEveryWireWordIsWhereHamiHasIt) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Config config = TestConfig(5);
  std::strcpy(config.devices[1].uuid, "GPU-one");
  config.devices[1].memory_limit = 7;
  config.devices[1].sm_limit = 30;
  config.priority = 0;
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), config), Status::kOk);
  const RawFile file(path);
  EXPECT_GE(file.Size(), 2'008'953);
  EXPECT_EQ(file.Get<int32_t>(0), 19920718);
  EXPECT_EQ(file.Get<uint32_t>(4), 1U);
  EXPECT_EQ(file.Get<uint32_t>(8), 2U);
  EXPECT_EQ(file.Get<uint64_t>(16), 0U) << "owner of the free semaphore";
  EXPECT_EQ(file.Get<uint32_t>(24), 1U) << "semaphore";
  EXPECT_EQ(file.Get<uint64_t>(56), 2U);
  EXPECT_STREQ((file.Get<std::array<char, 8>>(64 + 96).data()), "GPU-one");
  EXPECT_EQ(file.Get<uint64_t>(1600), 5U);
  EXPECT_EQ(file.Get<uint64_t>(1608), 7U);
  EXPECT_EQ(file.Get<uint64_t>(1736), 30U);
  EXPECT_EQ(file.Get<int32_t>(SlotAt(0)), getpid());
  EXPECT_EQ(file.Get<int32_t>(SlotAt(0) + 1928), 1);
  EXPECT_EQ(file.Get<uint64_t>(SlotAt(0) + 1944), ReadProcessStat(getpid()).start_time);
  EXPECT_NE(file.Get<uint64_t>(SlotAt(0) + 1952), 0U) << "token";
  EXPECT_EQ(file.Get<int32_t>(2'008'896), 1);
  EXPECT_EQ(file.Get<int32_t>(2'008'900), 1);
  EXPECT_EQ(file.Get<int32_t>(2'008'904), 2);
  EXPECT_EQ(file.Get<int32_t>(2'008'908), 0);
  EXPECT_EQ(file.Get<uint32_t>(2'008'920), 1U) << "post-init semaphore";
}

TEST(RegionCreate, GivenStrictUmask_WhenAttached_ThenModeIs0666AndUmaskStays) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  const mode_t before = umask(077);
  Attached attachment;
  const Status status = Attach(&attachment, path.c_str(), TestConfig());
  const mode_t during = umask(before);
  ASSERT_EQ(status, Status::kOk);
  EXPECT_EQ(during, 077U);
  struct stat file;
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0666U);
}

TEST(RegionCreate, GivenAnExistingRegion_WhenAttached_ThenItsLimitsWin) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  ASSERT_EQ(Create(path.c_str(), TestConfig(123)), Status::kOk);
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig(999)), Status::kOk);
  EXPECT_EQ(Limit(attachment, 0), 123U);
}

TEST(RegionCreate, GivenExistingRegion_WhenCreated_ThenRefusedAndNothingIsLeft) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Config config = TestConfig();
  std::strcpy(config.share_name, "train");
  ASSERT_EQ(Create(path.c_str(), config), Status::kOk);
  EXPECT_EQ(Create(path.c_str(), TestConfig(7)), Status::kExists);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 1);
  int error = 0;
  EXPECT_EQ(Create((folder / "none/a.cache").c_str(), config, &error), Status::kIo);
  EXPECT_EQ(error, ENOENT);
}

TEST(RegionCreate, GivenMetadata_WhenFirstProcessResetsTable_ThenMetadataStays) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Config config = TestConfig();
  std::strcpy(config.share_name, "train");
  config.flags = kFlagFixedDevices;
  ASSERT_EQ(Create(path.c_str(), config), Status::kOk);
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  EXPECT_STREQ(attachment.area->meta.share_name, "train");
  EXPECT_EQ(Flags(attachment), kFlagFixedDevices);
}

TEST(RegionOpen, GivenNoFile_WhenOpened_ThenMissingAndNothingIsCreated) {
  const TempFolder folder;
  Attached attachment;
  EXPECT_EQ(Open(&attachment, (folder / "a.cache").c_str()), Status::kMissing);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

struct RefusedCase {
  const char* name;
  int64_t size;
  int32_t magic;
  uint32_t major_version;
  Status expected;
};
class RegionRefusal : public ::testing::TestWithParam<RefusedCase> {};
TEST_P(RegionRefusal, GivenAnotherKindOfFile_WhenAttached_ThenItIsRefusedUntouched) {
  const RefusedCase& param = GetParam();
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  std::string before;
  {
    const RawFile file(path);
    file.Resize(param.size);
    if (param.size >= 8) {
      file.Set<int32_t>(0, param.magic);
      file.Set<uint32_t>(4, param.major_version);
    }
    before = file.Bytes();
  }
  const int descriptors = OpenDescriptors();
  Attached attachment;
  EXPECT_EQ(Attach(&attachment, path.c_str(), TestConfig()), param.expected);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_TRUE(RawFile(path).Bytes() == before);
}
INSTANTIATE_TEST_SUITE_P(All, RegionRefusal,
                         ::testing::Values(RefusedCase{"v0", 1'197'897, kMagic, 0, Status::kUnsupported},
                                           RefusedCase{"old", 804'681, kMagic, 0, Status::kUnsupported},
                                           RefusedCase{"interim", 2'008'985, kMagic, 1, Status::kUnsupported},
                                           RefusedCase{"major2", 2'008'953, kMagic, 2, Status::kUnsupported},
                                           RefusedCase{"short", 3, 0, 0, Status::kCorrupt},
                                           RefusedCase{"text", 100, 0x41414141, 0, Status::kCorrupt},
                                           RefusedCase{"garbage", 2'008'953, 0x41414141, 1, Status::kCorrupt},
                                           RefusedCase{"truncated", 500'000, kMagic, 1, Status::kUnsupported}),
                         [](const auto& test) { return test.param.name; });

TEST(RegionRefusalOther, GivenAFolderAFifoOrALink_WhenAttached_ThenItIsRefusedAtOnce) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0666), 0);
  ASSERT_EQ(symlink("target", (folder / "link").c_str()), 0);
  Attached attachment;
  EXPECT_EQ(Attach(&attachment, folder.path().c_str(), TestConfig()), Status::kIo);
  EXPECT_EQ(Attach(&attachment, (folder / "fifo").c_str(), TestConfig()), Status::kCorrupt);
  EXPECT_EQ(Attach(&attachment, (folder / "link").c_str(), TestConfig()), Status::kIo);
  EXPECT_FALSE(std::filesystem::exists(folder / "target"));
}

TEST(RegionRefusalOther, GivenPrivateAreaOfOtherVersion_WhenAttached_ThenItIsRefused) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  ASSERT_EQ(Create(path.c_str(), TestConfig()), Status::kOk);
  RawFile(path).Set<uint32_t>(2'011'136 + 8, 99);
  Attached attachment;
  EXPECT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kUnsupported);
}

TEST(RegionSlots, GivenHoles_WhenProcessesCome_ThenReusedZeroedAndMarkStays) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Attached first;
  Attached third;
  {
    ASSERT_EQ(Attach(&first, path.c_str(), TestConfig()), Status::kOk);
    Attached second;
    ASSERT_EQ(Attach(&second, path.c_str(), TestConfig()), Status::kOk);
    ASSERT_EQ(Attach(&third, path.c_str(), TestConfig()), Status::kOk);
    EXPECT_EQ(second.slot, 1);
    EXPECT_EQ(third.slot, 2);
    ASSERT_EQ(Reserve(&second, 0, 10, Kind::kData), Status::kOk);
    SetHostPid(&second, 4711);
    SetUtilization(&second, 1, 50, 60);
  }
  const RawFile file(path);
  const std::string bytes = file.Bytes().substr(static_cast<size_t>(SlotAt(1)), 1936);
  EXPECT_EQ(bytes.find_first_not_of('\0'), std::string::npos);
  EXPECT_EQ(file.Get<int32_t>(2'008'896), 3);
  EXPECT_EQ(third.slot, 2) << "never compacted";
  Attached fourth;
  ASSERT_EQ(Attach(&fourth, path.c_str(), TestConfig()), Status::kOk);
  EXPECT_EQ(fourth.slot, 1);
}

TEST(RegionSlots, GivenSlotsOfDead_WhenFirstProcessArrives_ThenTheyAreCleared) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  // As after a container restart: a dead pid, and a reused pid with another start time.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Join(Spawn([&] {
                static Attachment lost;
                if (Attach(&lost, path.c_str(), TestConfig()) != Status::kOk) return 1;
                return Reserve(&lost, 0, 100, Kind::kData) == Status::kOk ? 0 : 2;
              })),
              0);
  }
  const RawFile file(path);
  EXPECT_EQ(file.Get<uint64_t>(SlotAt(0) + 8 + 32), 100U) << "the first of the dead was cleared by the second";
  const pid_t pid = getppid();
  file.Set<int32_t>(SlotAt(0), pid);
  file.Set<uint64_t>(SlotAt(0) + 1952, MakeToken(99, pid));
  file.Set<uint64_t>(SlotAt(0) + 1944, 1);
  file.Set<uint64_t>(SlotAt(0) + 1936, 7);  // died inside its seqlock
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  EXPECT_EQ(Used(attachment, 0), 0U);
  EXPECT_EQ(attachment.slot, 0);
  EXPECT_EQ(file.Get<uint64_t>(SlotAt(0) + 1936) % 2, 0U);
  EXPECT_EQ(file.Get<int32_t>(2'008'896), 1);
}

TEST(RegionSlots, GivenLiveNeighbour_WhenAnotherArrives_ThenNoneOfItIsReset) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  const Signal ready, go;
  const pid_t child = Spawn([&] {
    static Attachment neighbour;
    if (Attach(&neighbour, path.c_str(), TestConfig()) != Status::kOk) return 1;
    if (Reserve(&neighbour, 0, 300, Kind::kData) != Status::kOk) return 2;
    ready.Raise();
    go.Await();
    return 0;
  });
  ready.Await();
  Attached attachment;
  EXPECT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  EXPECT_EQ(Sweep(&attachment), 0);
  EXPECT_EQ(Used(attachment, 0), 300U);
  go.Raise();
  EXPECT_EQ(Join(child), 0);
  EXPECT_EQ(Sweep(&attachment), 1);
  EXPECT_EQ(Used(attachment, 0), 0U);
}

TEST(RegionSlots, Given1024LiveProcesses_WhenAnotherArrives_ThenOnlyItFails) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  ASSERT_EQ(Create(path.c_str(), TestConfig()), Status::kOk);
  const RawFile file(path);
  for (int i = 0; i < 1024; ++i) file.Set<int32_t>(SlotAt(i), getppid());
  file.Set<int32_t>(2'008'896, 1024);
  Attached attachment;
  EXPECT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kTableFull);
  file.Set<int32_t>(SlotAt(1000), 0);
  EXPECT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  EXPECT_EQ(attachment.slot, 1000);
}

TEST(RegionFork, GivenUsage_WhenForked_ThenChildGetsEmptySlotParentKeepsIts) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  ASSERT_EQ(Reserve(&attachment, 0, 400, Kind::kData), Status::kOk);
  // Without handlers, as a raw clone; with them; either way the same.
  for (const bool handlers : {false, true}) {
    const int descriptors = OpenDescriptors();
    const pid_t child = Spawn([&] {
      if (handlers) AttachmentAfterFork(&attachment);
      if (Refund(&attachment, 0, 400, Kind::kData) != Status::kClamped) return 1;
      if (OwnUsed(attachment, 0, Kind::kData) != 0 || Used(attachment, 0) != 400) return 2;
      if (attachment.slot >= 0) return 3;  // none before the first charge
      if (Reserve(&attachment, 0, 601, Kind::kData) != Status::kOverLimit) return 4;
      if (Reserve(&attachment, 0, 600, Kind::kData) != Status::kOk || Used(attachment, 0) != 1000) return 5;
      if (attachment.slot != 1 || attachment.pid != getpid()) return 6;
      if (OpenDescriptors() != descriptors) return 7;
      Detach(&attachment);
      return OpenDescriptors() == descriptors - 1 ? 0 : 8;
    });
    EXPECT_EQ(Join(child), 0) << "handlers " << handlers;
    EXPECT_EQ(Used(attachment, 0), 400U);
    EXPECT_EQ(OwnUsed(attachment, 0, Kind::kData), 400U);
    EXPECT_EQ(Sweep(&attachment), 0);
    EXPECT_EQ(Refund(&attachment, 0, 1, Kind::kData), Status::kOk);
    EXPECT_EQ(Reserve(&attachment, 0, 1, Kind::kData), Status::kOk);
  }
}

TEST(RegionExec, GivenUsage_WhenProgramBecomesAnother_ThenMemoryComesBack) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  const Signal ready;
  const pid_t child = Spawn([&] {
    static Attachment lost;
    AttachmentAfterFork(&attachment);
    if (Attach(&lost, path.c_str(), TestConfig()) != Status::kOk) return 1;
    if (Reserve(&lost, 0, 300, Kind::kData) != Status::kOk) return 2;
    ready.Raise();
    execlp("sleep", "sleep", "30", nullptr);
    return 3;
  });
  ready.Await();
  int freed = 0;
  for (int tries = 0; tries < 2000 && freed == 0; ++tries) {
    freed = Sweep(&attachment);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(Used(attachment, 0), 0U);
  kill(child, SIGKILL);
  Join(child);
}

TEST(RegionDescriptor, GivenProgramThatClosesAll_WhenOthersSweep_ThenItStaysCounted) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  const Signal ready, go;
  const pid_t child = Spawn([&] {
    AttachmentAfterFork(&attachment);
    if (Reserve(&attachment, 0, 300, Kind::kData) != Status::kOk) return 1;
    const int fd = attachment.fd;
    close(fd);
    dup2(open("/dev/null", O_RDWR), fd);  // the number now means something else
    ready.Raise();
    go.Await();
    if (Reserve(&attachment, 0, 300, Kind::kData) != Status::kOk) return 2;
    Sweep(&attachment);  // finds the file again
    if (attachment.fd == fd || attachment.fd < 0) return 3;
    ready.Raise();
    go.Await();
    return 0;
  });
  ready.Await();
  EXPECT_EQ(Sweep(&attachment), 0);
  EXPECT_EQ(Used(attachment, 0), 300U);
  int32_t holder = 0;
  EXPECT_EQ(AskRecordLock(attachment.fd, kSlotLockByte + 1, 1, &holder), LockHeld::kNo);
  go.Raise();
  ready.Await();
  EXPECT_EQ(AskRecordLock(attachment.fd, kSlotLockByte + 1, 1, &holder), LockHeld::kYes);
  EXPECT_EQ(holder, child);
  go.Raise();
  EXPECT_EQ(Join(child), 0);
}

TEST(RegionDescriptor, GivenAttachment_ThenDescriptorIsHighAndNotInherited) {
  const TempFolder folder;
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, (folder / "a.cache").c_str(), TestConfig()), Status::kOk);
  EXPECT_GE(attachment.fd, 200);
  EXPECT_EQ(fcntl(attachment.fd, F_GETFD), FD_CLOEXEC);
}

TEST(RegionShrink, GivenTruncatedFile_WhenSlowPathLooks_ThenAttachmentIsBroken) {
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, path.c_str(), TestConfig()), Status::kOk);
  ASSERT_EQ(truncate(path.c_str(), 4096), 0);
  EXPECT_EQ(Sweep(&attachment), 0);
  EXPECT_EQ(Reserve(&attachment, 0, 1, Kind::kData), Status::kBroken);
  EXPECT_EQ(Refund(&attachment, 0, 1, Kind::kData), Status::kBroken);
}

TEST(RegionDevices, GivenMoreThan16_WhenSet_ThenTheyAreCutAndLimitsAreUntouched) {
  const TempFolder folder;
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, (folder / "a.cache").c_str(), TestConfig(77)), Status::kOk);
  std::vector<std::array<char, kUuidBytes>> uuids(20);
  for (size_t i = 0; i < uuids.size(); ++i) std::snprintf(uuids[i].data(), kUuidBytes, "GPU-%zu", i);
  std::memset(uuids[3].data(), 'x', kUuidBytes);
  SetDevices(&attachment, 20, reinterpret_cast<const char(*)[kUuidBytes]>(uuids.data()));
  EXPECT_EQ(DeviceCount(attachment), 16U);
  EXPECT_EQ(FindDevice(attachment, "GPU-15"), 15);
  EXPECT_EQ(FindDevice(attachment, "GPU-1"), 1) << "whole names, no prefixes";
  EXPECT_EQ(FindDevice(attachment, "GPU-16"), -1);
  EXPECT_EQ(FindDevice(attachment, ""), -1);
  EXPECT_EQ(attachment.region->uuids[3][kUuidBytes - 1], '\0');
  EXPECT_EQ(Limit(attachment, 0), 77U);
  EXPECT_EQ(Reserve(&attachment, 16, 1, Kind::kData), Status::kBadDevice);
  EXPECT_EQ(Limit(attachment, 16), 0U);
}

TEST(RegionDevices, GivenFixedDevices_WhenNvmlReportsAll_ThenCreatorsListStays) {
  const TempFolder folder;
  Config config = TestConfig();
  config.device_count = 1;
  config.flags = kFlagFixedDevices;
  std::strcpy(config.devices[0].uuid, "GPU-a");
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, (folder / "a.cache").c_str(), config), Status::kOk);
  const char uuids[2][kUuidBytes] = {"GPU-b", "GPU-c"};
  SetDevices(&attachment, 2, uuids);
  EXPECT_EQ(DeviceCount(attachment), 1U);
  EXPECT_EQ(FindDevice(attachment, "GPU-a"), 0);
}

TEST(RegionHandshake, GivenABlock_WhenALaunchIsNoted_ThenTheBlockStays) {
  const TempFolder folder;
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, (folder / "a.cache").c_str(), TestConfig()), Status::kOk);
  attachment.region->recent_kernel = 0;
  NoteLaunch(&attachment, 1234);
  EXPECT_EQ(attachment.region->recent_kernel, 2);
  EXPECT_EQ(attachment.region->last_kernel_time, 1234U);
  attachment.region->recent_kernel = -1;
  NoteLaunch(&attachment, 1235);
  EXPECT_TRUE(LaunchesBlocked(attachment));
}

TEST(RegionAttach, WhenManyProcessesAttachAtOnce_ThenEachHasItsOwnSlotQuickly) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kProcesses = 60;  // instrumented processes take a hundred times the memory
#else
  constexpr int kProcesses = 500;
#endif
  const TempFolder folder;
  const std::string path = folder / "a.cache";
  struct Shared {
    std::atomic<int> ready, go;
    std::atomic<int64_t> nanos;
    std::atomic<int> slots[1024];
  };
  void* map = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(map, MAP_FAILED);
  auto* shared = new (map) Shared{};
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(Spawn([&] {
      static Attachment attachment;
      shared->ready.fetch_add(1);
      while (shared->go.load() == 0) usleep(1000);
      const int64_t before = ThreadCpuNanos();
      if (Attach(&attachment, path.c_str(), TestConfig(kProcesses)) != Status::kOk) return 1;
      shared->nanos.fetch_add(ThreadCpuNanos() - before);
      shared->slots[attachment.slot].fetch_add(1);
      if (Reserve(&attachment, 0, 1, Kind::kData) != Status::kOk) return 2;
      shared->ready.fetch_add(1);
      while (shared->go.load() == 1) usleep(10'000);
      return 0;
    }));
  }
  while (shared->ready.load() < kProcesses) usleep(1000);
  const int64_t begin = MonotonicNanos();
  shared->go = 1;
  while (shared->ready.load() < 2 * kProcesses && MonotonicNanos() - begin < 30'000'000'000) usleep(1000);
  const int64_t took = MonotonicNanos() - begin;
  std::printf("%d attaches in %d ms, %d ms of processor time in all\n", kProcesses, static_cast<int>(took / 1'000'000),
              static_cast<int>(shared->nanos.load() / 1'000'000));
  Attached attachment;
  EXPECT_EQ(Open(&attachment, path.c_str()), Status::kOk);
  EXPECT_EQ(Used(attachment, 0), static_cast<uint64_t>(kProcesses));
  shared->go = 2;
  for (const pid_t child : children) EXPECT_EQ(Join(child), 0);
  for (int i = 0; i < 1024; ++i) EXPECT_LE(shared->slots[i].load(), 1);
  EXPECT_LT(took, 30'000'000'000) << "generous: the machine may be busy, the build instrumented";
  EXPECT_EQ(Sweep(&attachment), kProcesses);
  EXPECT_EQ(Used(attachment, 0), 0U);
  munmap(map, sizeof(Shared));
}

}  // namespace
}  // namespace hami::region
