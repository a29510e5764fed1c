// SPDX-License-Identifier: Apache-2.0
#include "region/remote.h"

#include <memory>

#include "region/reader.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

class RemoteTest : public ::testing::Test {
 protected:
  void WriteAll(const Remote& remote) {
    EXPECT_EQ(WriteRecentKernel(remote, -1), Status::kOk);
    EXPECT_EQ(WriteUtilizationSwitch(remote, 0), Status::kOk);
    EXPECT_EQ(WritePriority(remote, 7), Status::kOk);
    EXPECT_EQ(WriteMemoryLimit(remote, 1, 777), Status::kOk);
    EXPECT_EQ(WriteSmLimit(remote, 1, 33), Status::kOk);
    const auto snapshot = std::make_unique<Snapshot>();
    ASSERT_EQ(ReadSnapshotFile(path_.c_str(), false, snapshot.get()), Status::kOk);
    EXPECT_EQ(snapshot->recent_kernel, -1);
    EXPECT_EQ(snapshot->utilization_switch, 0);
    EXPECT_EQ(snapshot->priority, 7);
    EXPECT_EQ(snapshot->devices[1].limit, 777U);
    EXPECT_EQ(snapshot->devices[1].sm_limit, 33U);
  }
  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
};

TEST_F(RemoteTest, GivenLiveRegion_WhenWordsAreWritten_ThenItsProcessSeesThem) {
  Attached attached;
  ASSERT_EQ(Attach(&attached, path_.c_str(), TestConfig(1000)), Status::kOk);
  const RawFile file(path_);
  WriteAll({file.fd(), 1});
  EXPECT_TRUE(LaunchesBlocked(attached));
  EXPECT_EQ(UtilizationSwitch(attached), 0);
  EXPECT_EQ(SmLimit(attached, 1), 33U);
  EXPECT_EQ(Limit(attached, 1), 777U);
  EXPECT_EQ(Limit(attached, 0), 1000U);
}

TEST_F(RemoteTest, GivenBurst_WhenSetAndChanged_ThenProcessesAndReadersSeeIt) {
  Config config = TestConfig(1000);
  config.devices[1].burst = 80;
  Attached attached;
  ASSERT_EQ(Attach(&attached, path_.c_str(), config), Status::kOk);
  EXPECT_EQ(CoresBurst(attached, 0), 0U);
  EXPECT_EQ(CoresBurst(attached, 1), 80U);
  EXPECT_EQ(CoresBurst(attached, 16), 0U);
  const RawFile file(path_);
  const auto snapshot = std::make_unique<Snapshot>();
  for (const auto& [written, seen] : {std::pair{60U, 60U}, {~0U, 100U}, {0U, 0U}}) {
    ASSERT_EQ(WriteBurst({file.fd(), 1}, 1, written), Status::kOk);
    EXPECT_EQ(CoresBurst(attached, 1), seen);
    ASSERT_EQ(ReadSnapshotFile(path_.c_str(), false, snapshot.get()), Status::kOk);
    EXPECT_EQ(snapshot->devices[1].burst, seen);
    EXPECT_EQ(snapshot->devices[0].burst, 0U);
  }
}

TEST_F(RemoteTest, GivenNoPrivateArea_WhenBurstIsWritten_ThenFileIsLeftAlone) {
  MakeHamiFile(path_);
  const RawFile file(path_);
  const int64_t size = file.Size();
  EXPECT_EQ(WriteBurst({file.fd(), 1}, 0, 50), Status::kUnsupported);
  EXPECT_EQ(WriteBurst({file.fd(), 1}, 16, 50), Status::kBadDevice);
  EXPECT_EQ(file.Size(), size);
}

TEST_F(RemoteTest, GivenV0Region_WhenWordsAreWritten_ThenOldOffsetsAreUsed) {
  const RawFile file(path_);
  file.Resize(1'197'897);
  file.Set<int32_t>(0, 19920718);
  WriteAll({file.fd(), 0});
  EXPECT_EQ(file.Get<int32_t>(1'197'888), -1);
  EXPECT_EQ(file.Get<int32_t>(1'197'884), 0);
  EXPECT_EQ(file.Get<uint64_t>(1600), 777U);
  EXPECT_EQ(file.Get<uint64_t>(1728), 33U);
}

TEST_F(RemoteTest, GivenShrunkOrForeignFile_WhenWritten_ThenItIsLeftAlone) {
  MakeHamiFile(path_);
  const RawFile file(path_);
  file.Resize(4096);
  EXPECT_EQ(WriteRecentKernel({file.fd(), 1}, -1), Status::kCorrupt);
  EXPECT_EQ(file.Size(), 4096);
  EXPECT_EQ(WriteRecentKernel({file.fd(), 0}, -1), Status::kCorrupt);
  file.Resize(static_cast<int64_t>(kInterimFileBytes));
  EXPECT_EQ(WriteRecentKernel({file.fd(), 1}, -1), Status::kCorrupt);
  file.Resize(2'008'953);
  file.Set<uint32_t>(4, 2);
  EXPECT_EQ(WriteRecentKernel({file.fd(), 1}, -1), Status::kCorrupt);
  file.Set<uint32_t>(4, 1);
  EXPECT_EQ(WriteSmLimit({file.fd(), 1}, 16, 1), Status::kBadDevice);
  EXPECT_EQ(WriteMemoryLimit({file.fd(), 1}, 16, 1), Status::kBadDevice);
}

}  // namespace
}  // namespace hami::region
