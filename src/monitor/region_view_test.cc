// SPDX-License-Identifier: Apache-2.0

#include "monitor/region_view.h"

#include <gtest/gtest.h>

#include <memory>

#include "region/testing/region.h"

namespace hami::monitor {
namespace {

// A snapshot of one device and as many slots as asked for, all of processes of which nobody knows.
std::unique_ptr<region::Snapshot> WithSlots(int count) {
  auto snapshot = std::make_unique<region::Snapshot>();
  snapshot->version = 1;
  snapshot->device_count = 1;
  snapshot->slot_count = count;
  for (int i = 0; i < count; ++i) {
    region::SnapshotSlot& slot = snapshot->slots[i];
    slot.pid = slot.host_pid = 100 + i;
    slot.status = 1;
    slot.memory[0] = {1, 20, 300, 4000, 50'000, 0, 60};
  }
  return snapshot;
}

TEST(RegionView, GivenSeveralProcesses_ThenFiguresAreSums_AlsoAboveAWholeGpu) {
  const RegionView view = Summarise(*WithSlots(3));
  ASSERT_EQ(view.devices.size(), 1U);
  const DeviceUse& use = view.devices[0];
  EXPECT_EQ(use.context, 3U);
  EXPECT_EQ(use.module, 60U);
  EXPECT_EQ(use.data, 900U);
  EXPECT_EQ(use.offset, 12'000U);
  EXPECT_EQ(use.used, 150'000U);
  EXPECT_EQ(use.sm_percent, 180U);
  EXPECT_EQ(view.possible, 3);
  EXPECT_EQ(view.host_pids, (std::vector<pid_t>{100, 101, 102}));
}

TEST(RegionView, GivenHolderTheKernelNames_ThenItIsTheProcessDespiteTheFile) {
  const auto snapshot = WithSlots(2);
  snapshot->slots[1].holder = 4711;
  EXPECT_EQ(Summarise(*snapshot).host_pids, (std::vector<pid_t>{100, 4711}));
}

// As seen from another pid namespace than the host's: the kernel tells that they live, and not who they are.
TEST(RegionView, GivenProcessesKernelDoesNotName_ThenOnlyDriversPidIsTheirs) {
  const auto snapshot = WithSlots(4);
  snapshot->has_private = true;
  for (int i = 0; i < 4; ++i) snapshot->slots[i].liveness = region::Liveness::kAlive;
  snapshot->slots[0].host_pid = 4711;
  snapshot->slots[1].host_pid = 0;
  snapshot->slots[2].host_pid = 0;
  snapshot->slots[2].memory[0] = {};  // nothing on this GPU, so nothing to be told
  const RegionView view = Summarise(*snapshot);
  EXPECT_EQ(view.host_pids, (std::vector<pid_t>{4711})) << "the last is called as in its container";
  EXPECT_EQ(view.devices[0].nameless, 2U);
  snapshot->slots[1].liveness = snapshot->slots[3].liveness = region::Liveness::kUnknown;
  EXPECT_EQ(Summarise(*snapshot).devices[0].nameless, 0U) << "they may have died";
}

// HAMi's library leaves the figures of a slot that it gave back.
TEST(RegionView, GivenSlotsGivenBackOrOfDeadProcesses_ThenTheyCountForNothing) {
  const auto snapshot = WithSlots(3);
  snapshot->slots[0].status = region::kStatusFree;
  snapshot->slots[1].liveness = region::Liveness::kDead;
  const RegionView view = Summarise(*snapshot);
  EXPECT_EQ(view.devices[0].used, 50'000U);
  EXPECT_EQ(view.devices[0].sm_percent, 60U);
  EXPECT_EQ(view.living + view.possible, 1);
}

// Until the process that has it now looks at its memory, which one that is idle does not.
TEST(RegionView, GivenSharedMemoryItsMakerLetGo_ThenInUseAlthoughInNoSlot) {
  const region::TempFolder folder;
  const std::string path = folder / "a.cache";
  region::Attached maker;
  region::Attached user;
  std::uint32_t device = 0;
  ASSERT_EQ(region::Attach(&maker, path.c_str(), region::TestConfig()), region::Status::kOk);
  ASSERT_EQ(region::Attach(&user, path.c_str(), region::TestConfig()), region::Status::kOk);
  ASSERT_EQ(region::Reserve(&maker, 1, 400, region::Kind::kData), region::Status::kOk);
  const std::uint64_t object = region::Share(&maker, 1, 400);
  ASSERT_TRUE(region::Join(&user, object, &device));
  ASSERT_TRUE(region::Leave(&maker, object));
  const auto snapshot = std::make_unique<region::Snapshot>();
  ASSERT_EQ(region::ReadSnapshotFile(path.c_str(), false, snapshot.get()), region::Status::kOk);
  const DeviceUse use = Summarise(*snapshot).devices.at(1);
  EXPECT_EQ(use.used, 400U);
  EXPECT_EQ(use.data, 400U);
}

TEST(RegionView, GivenFiguresWhoseSumDoesNotFit_ThenItStopsAtTheLargest) {
  const auto snapshot = WithSlots(2);
  snapshot->slots[0].memory[0].total = UINT64_MAX - 1;
  EXPECT_EQ(Summarise(*snapshot).devices[0].used, UINT64_MAX);
}

TEST(RegionView, GivenLimitsBehindNamedDevices_ThenTheyAreKeptWithoutName) {
  const auto snapshot = WithSlots(0);
  snapshot->devices[2].limit = 7;
  const RegionView view = Summarise(*snapshot);
  ASSERT_EQ(view.devices.size(), 3U);
  EXPECT_EQ(view.devices[2].limit, 7U);
  EXPECT_EQ(view.devices[2].uuid, "");
}

}  // namespace
}  // namespace hami::monitor
