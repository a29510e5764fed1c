// SPDX-License-Identifier: Apache-2.0
#include "region/reader.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "region/gpu_time.h"
#include "region/process.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

class ReaderTest : public ::testing::Test {
 protected:
  Status ReadIt(bool check_liveness = true) { return ReadSnapshotFile(path_.c_str(), check_liveness, snapshot_.get()); }
  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
  const std::unique_ptr<Snapshot> snapshot_ = std::make_unique<Snapshot>();
};

TEST_F(ReaderTest, GivenLivingAndDeadProcess_ThenBothShowButOnlyLivingCounts) {
  Config config = TestConfig(1000);
  std::strcpy(config.devices[0].uuid, "GPU-zero");
  std::strcpy(config.share_name, "train");
  config.devices[0].physical_bytes = 5000;
  config.devices[0].sm_limit = 30;
  config.creator_pid = 12;
  config.creator_start_time = 34;
  config.flags = kFlagOversubscribe;
  config.policy = 1;
  ASSERT_EQ(Create(path_.c_str(), config), Status::kOk);
  const Signal ready, go;
  const auto live = [&](uint64_t bytes) {
    const pid_t pid = Spawn([&, bytes] {
      static Attachment attachment;
      if (Attach(&attachment, path_.c_str(), TestConfig()) != Status::kOk) return 1;
      if (Reserve(&attachment, 0, bytes, Kind::kData) != Status::kOk) return 2;
      NoteRefusal(&attachment, 0);
      SetHostPid(&attachment, 77);
      SetUtilization(&attachment, 0, 55, 66);
      ready.Raise();
      go.Await();
      return 0;
    });
    ready.Await();
    return pid;
  };
  const pid_t first = live(300);
  const pid_t second = live(400);
  kill(first, SIGKILL);
  Join(first);
  ASSERT_EQ(ReadIt(), Status::kOk);
  go.Raise();
  Join(second);

  EXPECT_EQ(snapshot_->version, 1);
  EXPECT_EQ(snapshot_->device_count, 2U);
  EXPECT_STREQ(snapshot_->devices[0].uuid, "GPU-zero");
  EXPECT_EQ(snapshot_->devices[0].limit, 1000U);
  EXPECT_EQ(snapshot_->devices[0].sm_limit, 30U);
  EXPECT_EQ(snapshot_->devices[0].used, 400U);
  EXPECT_EQ(snapshot_->devices[0].peak, 700U);
  EXPECT_EQ(snapshot_->devices[0].refusals, 2U);
  EXPECT_EQ(snapshot_->devices[0].physical_bytes, 5000U);
  EXPECT_TRUE(snapshot_->has_private);
  EXPECT_STREQ(snapshot_->share_name, "train");
  EXPECT_EQ(snapshot_->creator_pid, 12);
  EXPECT_EQ(snapshot_->creator_start_time, 34U);
  EXPECT_EQ(snapshot_->flags, kFlagOversubscribe);
  EXPECT_EQ(snapshot_->policy, 1);
  EXPECT_GT(snapshot_->created_at, 1'600'000'000);
  EXPECT_EQ(snapshot_->utilization_switch, 1);
  EXPECT_EQ(snapshot_->recent_kernel, 2);
  ASSERT_EQ(snapshot_->slot_count, 2);
  const SnapshotSlot& dead = snapshot_->slots[0];
  EXPECT_EQ(dead.pid, first);
  EXPECT_EQ(dead.liveness, Liveness::kDead);
  EXPECT_EQ(dead.holder, 0);
  const SnapshotSlot& alive = snapshot_->slots[1];
  EXPECT_EQ(alive.pid, second);
  EXPECT_EQ(alive.liveness, Liveness::kAlive);
  EXPECT_EQ(alive.holder, second) << "whatever the slot says";
  EXPECT_EQ(alive.host_pid, 77);
  EXPECT_EQ(alive.status, kStatusRunning);
  EXPECT_TRUE(alive.has_token);
  EXPECT_EQ(alive.pid_namespace, OwnPidNamespace());
  EXPECT_NE(std::strstr(alive.command, "region_reader"), nullptr) << alive.command;
  EXPECT_EQ(alive.memory[0].data, 400U);
  EXPECT_EQ(alive.memory[0].total, 400U);
  EXPECT_EQ(alive.memory[0].sm_percent, 55U);
  EXPECT_EQ(alive.memory[0].monitor_used, 66U);
}

TEST_F(ReaderTest, GivenHamiFile_WhenRead_ThenNoPrivatePartAndUnknownLiveness) {
  MakeHamiFile(path_, 1);
  const RawFile file(path_);
  file.Set<int32_t>(SlotAt(2), 99);
  file.Set<uint64_t>(SlotAt(2) + 8 + 32, 500);
  file.Set<int32_t>(2'008'896, 3);
  file.Set<uint64_t>(2'008'912, 1234);
  ASSERT_EQ(ReadIt(), Status::kOk);
  EXPECT_FALSE(snapshot_->has_private);
  EXPECT_EQ(snapshot_->minor_version, 1U);
  EXPECT_EQ(snapshot_->last_kernel_time, 1234U);
  ASSERT_EQ(snapshot_->slot_count, 1);
  EXPECT_EQ(snapshot_->slots[0].index, 2);
  EXPECT_EQ(snapshot_->slots[0].liveness, Liveness::kUnknown);
  EXPECT_FALSE(snapshot_->slots[0].has_token);
  EXPECT_EQ(snapshot_->devices[0].used, 500U);
}

TEST_F(ReaderTest, GivenWhatTheLibraryCounted_WhenRead_ThenItIsShownPerDevice) {
  Attached attached;
  ASSERT_EQ(Attach(&attached, path_.c_str(), TestConfig(1000)), Status::kOk);
  NoteThrottled(&attached, 1, 5'000);
  NoteThrottled(&attached, 1, 2'000);
  NoteSpilled(&attached, 0, 4096);
  NoteSpilled(&attached, 16, 1);
  GpuTimeCharge(&GpuTimeOf(attached.area)->devices[1], 900, MonotonicNanos(), 5000);
  ASSERT_EQ(ReadIt(), Status::kOk);
  EXPECT_EQ(snapshot_->devices[0].spilled_bytes, 4096U);
  EXPECT_EQ(snapshot_->devices[1].throttled_ns, 7'000U);
  EXPECT_EQ(snapshot_->devices[1].gpu_ns, 900U);
  EXPECT_EQ(snapshot_->devices[0].gpu_ns, 0U);
}

TEST_F(ReaderTest, GivenAV0File_WhenRead_ThenTheOldOffsetsAreUsed) {
  const RawFile file(path_);
  file.Resize(1'197'897);
  file.Set<int32_t>(0, 19920718);
  file.Set<uint64_t>(48, 1);
  file.Set<uint32_t>(56, 0x2d555047);  // "GPU-"
  file.Set<uint64_t>(1592, 1000);
  file.Set<uint64_t>(1720, 40);
  const int64_t slot = 1848 + 1168;
  file.Set<int32_t>(slot, 5);
  file.Set<int32_t>(slot + 4, 6);
  file.Set<uint64_t>(slot + 8 + 16, 70);
  file.Set<uint64_t>(slot + 8 + 32, 80);
  file.Set<uint64_t>(slot + 648, 90);
  file.Set<uint64_t>(slot + 776 + 16, 33);
  file.Set<int32_t>(slot + 1160, 1);
  file.Set<int32_t>(1'197'880, 2);
  file.Set<int32_t>(1'197'884, 1);
  file.Set<int32_t>(1'197'888, -1);
  file.Set<int32_t>(1'197'892, 3);
  ASSERT_EQ(ReadIt(), Status::kOk);
  EXPECT_EQ(snapshot_->version, 0);
  EXPECT_EQ(snapshot_->device_count, 1U);
  EXPECT_STREQ(snapshot_->devices[0].uuid, "GPU-");
  EXPECT_EQ(snapshot_->devices[0].limit, 1000U);
  EXPECT_EQ(snapshot_->devices[0].sm_limit, 40U);
  EXPECT_EQ(snapshot_->devices[0].used, 80U);
  ASSERT_EQ(snapshot_->slot_count, 1);
  EXPECT_EQ(snapshot_->slots[0].pid, 5);
  EXPECT_EQ(snapshot_->slots[0].host_pid, 6);
  EXPECT_EQ(snapshot_->slots[0].status, 1);
  EXPECT_EQ(snapshot_->slots[0].memory[0].data, 70U);
  EXPECT_EQ(snapshot_->slots[0].memory[0].monitor_used, 90U);
  EXPECT_EQ(snapshot_->slots[0].memory[0].sm_percent, 33U);
  EXPECT_EQ(snapshot_->utilization_switch, 1);
  EXPECT_EQ(snapshot_->recent_kernel, -1);
  EXPECT_EQ(snapshot_->priority, 3);
  EXPECT_EQ(snapshot_->last_kernel_time, 0U);
}

TEST_F(ReaderTest, GivenOtherSizesAndMagics_WhenRead_ThenTheyAreRefused) {
  const RawFile file(path_);
  EXPECT_EQ(ReadIt(), Status::kCorrupt) << "empty";
  file.Resize(2'008'953);
  EXPECT_EQ(ReadIt(), Status::kCorrupt) << "no magic";
  file.Set<int32_t>(0, 19920718);
  EXPECT_EQ(ReadIt(), Status::kUnsupported) << "major version 0 in a file of this size";
  file.Set<uint32_t>(4, 1);
  EXPECT_EQ(ReadIt(), Status::kOk);
  file.Resize(2'008'985);
  EXPECT_EQ(ReadIt(), Status::kUnsupported) << "the interim form";
  file.Resize(804'681);
  EXPECT_EQ(ReadIt(), Status::kUnsupported);
  EXPECT_EQ(ReadSnapshotFile((folder_ / "none").c_str(), true, snapshot_.get()), Status::kMissing);
  EXPECT_EQ(ReadSnapshotFile(folder_.path().c_str(), true, snapshot_.get()), Status::kCorrupt);
  ASSERT_EQ(symlink(path_.c_str(), (folder_ / "link").c_str()), 0);
  EXPECT_EQ(ReadSnapshotFile((folder_ / "link").c_str(), true, snapshot_.get()), Status::kIo);
}

TEST_F(ReaderTest, GivenHostileNumbersAndTexts_ThenAllIsClampedAndPrintable) {
  ASSERT_EQ(Create(path_.c_str(), TestConfig()), Status::kOk);
  const RawFile file(path_);
  file.Set<uint64_t>(56, UINT64_MAX);
  for (int64_t byte = 64; byte < 64 + 96; ++byte) file.Set<char>(byte, '\x1b');
  file.Set<int32_t>(2'008'896, INT32_MAX);
  for (int i = 0; i < 1024; ++i) {
    file.Set<int32_t>(SlotAt(i), i % 2 == 0 ? 5 : -5);
    file.Set<uint64_t>(SlotAt(i) + 8 + 32, UINT64_MAX);
    file.Set<uint64_t>(SlotAt(i) + 1936, 1);
  }
  for (int64_t byte = 0; byte < 64; ++byte) file.Set<char>(2'011'136 + 128 + byte, '\xff');
  ASSERT_EQ(ReadIt(), Status::kOk);
  EXPECT_EQ(snapshot_->device_count, 16U);
  EXPECT_EQ(std::string(snapshot_->devices[0].uuid), std::string(96, '?'));
  EXPECT_EQ(std::string(snapshot_->share_name), std::string(64, '?'));
  EXPECT_EQ(snapshot_->slot_count, 512);
  EXPECT_EQ(snapshot_->devices[0].used, UINT64_MAX) << "saturated, not wrapped";
  file.Set<int32_t>(2'008'896, -1);
  ASSERT_EQ(ReadIt(), Status::kOk);
  EXPECT_EQ(snapshot_->slot_count, 0);
}

TEST_F(ReaderTest, GivenFileShrinkingAndGrowing_WhenRead_ThenAnswerAndNoSignal) {
  ASSERT_EQ(Create(path_.c_str(), TestConfig()), Status::kOk);
  const RawFile file(path_);
  file.Set<int32_t>(2'008'896, 1024);
  std::atomic<bool> stop{false};
  std::thread tenant([&] {
    for (int i = 0; !stop.load(); ++i) {
      if (ftruncate(file.fd(), i % 2 == 0 ? 1'500'000 : static_cast<off_t>(kFileBytes)) != 0) std::abort();
    }
  });
  for (int i = 0; i < 200; ++i) {
    const Status status = ReadIt(false);
    EXPECT_TRUE(status == Status::kOk || status == Status::kIo) << StatusName(status);
  }
  stop = true;
  tenant.join();
}

TEST_F(ReaderTest, GivenBytesInMemory_WhenParsed_ThenTheResultIsThatOfTheFile) {
  ASSERT_EQ(Create(path_.c_str(), TestConfig(4711)), Status::kOk);
  const std::string bytes = RawFile(path_).Bytes();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  ASSERT_EQ(ParseSnapshot(data, bytes.size(), snapshot_.get()), Status::kOk);
  EXPECT_EQ(snapshot_->devices[3].limit, 4711U);
  EXPECT_TRUE(snapshot_->has_private);
  EXPECT_EQ(ParseSnapshot(data, 0, snapshot_.get()), Status::kCorrupt);
  EXPECT_EQ(ParseSnapshot(nullptr, 0, snapshot_.get()), Status::kCorrupt);
}

TEST(ProcessStatTest, GivenAnyCommandName_WhenParsed_ThenStateAndStartTimeAreFound) {
  const auto parse = [](const std::string& text, char* state, uint64_t* start) {
    uint64_t threads = 0;
    const bool parsed = ParseProcessStat(text.data(), text.size(), state, &threads, start);
    EXPECT_TRUE(!parsed || threads == 17);
    return parsed;
  };
  char state = 0;
  uint64_t start = 0;
  const std::string rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 98765 20 21\n";
  EXPECT_TRUE(parse("42 (a) b) R 1 (x) S" + rest, &state, &start));
  EXPECT_EQ(state, 'S');
  EXPECT_EQ(start, 98765U);
  EXPECT_FALSE(parse("", &state, &start));
  EXPECT_FALSE(parse("42 (a)", &state, &start));
  EXPECT_FALSE(parse("42 (a) S 1 2 3", &state, &start));
  EXPECT_FALSE(parse("no parentheses at all", &state, &start));
  EXPECT_EQ(ReadProcessStat(0).presence, Presence::kGone);
  EXPECT_EQ(ReadProcessStat(getpid()).presence, Presence::kThere);
  EXPECT_EQ(ProcessStartTime(getpid()), ReadProcessStat(getpid()).start_time);
  const pid_t zombie = Spawn([] { return 0; });
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ReadProcessStat(zombie).presence, Presence::kGone);
  Join(zombie);
  EXPECT_EQ(ReadProcessStat(zombie).presence, Presence::kGone);
}

TEST(ProcessMapsTest, GivenMapping_WhenAsked_ThenOnlyProcessesWithSameFileHaveIt) {
  const TempFolder folder;
  Attached attachment;
  ASSERT_EQ(Attach(&attachment, (folder / "a.cache").c_str(), TestConfig()), Status::kOk);
  const Signal go;
  const pid_t child = Spawn([&] {
    go.Await();
    return 0;
  });
  EXPECT_EQ(ProcessMapsSameFile(child, attachment.region), Presence::kThere);
  EXPECT_EQ(ProcessMapsSameFile(getppid(), attachment.region), Presence::kGone);
  int local = 0;
  EXPECT_EQ(ProcessMapsSameFile(child, &local), Presence::kUnknown) << "not the start of a mapping of ours";
  go.Raise();
  Join(child);
}

}  // namespace
}  // namespace hami::region
