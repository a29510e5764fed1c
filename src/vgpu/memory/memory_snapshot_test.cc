// SPDX-License-Identifier: Apache-2.0
// One look at the driver's figures, while the other processes of the container move.
#include "vgpu/memory/memory_snapshot.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "vgpu/memory/account.h"
#include "vgpu/memory/graphs.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/shared_memory.h"
#include "vgpu/memory/vmm.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// The container: this process, and another one, as the driver shows them and as they are counted.
uint64_t g_own_seen = 0;
uint64_t g_other_seen = 0;
uint64_t g_own_counted = 0;
uint64_t g_other_counted = 0;
void (*g_before_measure)() = nullptr;
void (*g_after_measure)() = nullptr;

region::Region g_region{};
region::Attachment g_attachment{};
constinit ProcessList g_list{};

}  // namespace

void SettleGraphs(int) {}
bool SettlePools(int) { return true; }
void VmmSettleDescriptors() {}
bool VmmHoldsImports() { return true; }
bool VmmHoldsUnusedImports() { return false; }
bool VmmHoldsSharedImports() { return true; }
void ClaimMemory() {}
uint64_t GuestMemory(int) { return 2 * kMiB; }  // which the other one pays, and the driver may show here
uint64_t OwnBytes(int, Kind) { return g_own_counted; }
uint64_t UsedBytes(int) { return g_own_counted + g_other_counted; }
region::Attachment* attachment() { return &g_attachment; }

Measurement Measure(nvmlDevice_t, ProcessList* list) {
  if (g_before_measure != nullptr) g_before_measure();
  list->count = 2;
  list->items[0] = {};
  list->items[0].pid = 1;
  list->items[0].usedGpuMemory = g_own_seen;
  list->items[1] = {};
  list->items[1].pid = 2;
  list->items[1].usedGpuMemory = g_other_seen;
  Measurement seen;
  seen.own_known = true;
  seen.own = g_own_seen;
  if (g_after_measure != nullptr) g_after_measure();
  return seen;
}

namespace {

class MemorySnapshotTest : public testing::Test {
 protected:
  MemorySnapshotTest() {
    g_region = {};
    g_region.slot_count = 2;
    for (int i = 0; i < 2; ++i) {
      g_region.slots[i].pid = i + 1;
      g_region.slots[i].used[0].total = 100 * kMiB;
    }
    g_attachment.region = &g_region;
    g_own_counted = 98 * kMiB;
    g_other_counted = 102 * kMiB;
    g_own_seen = 100 * kMiB;  // with what the other one pays
    g_other_seen = 100 * kMiB;
    g_before_measure = g_after_measure = nullptr;
  }
  static MemorySnapshot SnapshotNow() { return TakeSnapshot(0, nullptr, &g_list); }
};

TEST_F(MemorySnapshotTest, GivenSharedMemoryShownHereByDriver_ThenNothingIsUncounted) {
  const MemorySnapshot snapshot = SnapshotNow();
  EXPECT_EQ(snapshot.unstated(), 2 * kMiB);
  EXPECT_EQ(snapshot.paid_elsewhere, 2 * kMiB);
  EXPECT_EQ(snapshot.uncounted, 0u);
}

TEST_F(MemorySnapshotTest, GivenGrowthThatNobodyCounts_ThenItIsUncounted) {
  g_own_seen += 5 * kMiB;
  EXPECT_EQ(SnapshotNow().uncounted, 5 * kMiB);
}

void TakeBefore() {
  g_other_counted += 2 * kMiB, g_other_seen += 2 * kMiB;
  g_region.slots[1].seqlock += 2;
}
void GiveBackAfter() {
  g_other_seen -= 2 * kMiB, g_other_counted -= 2 * kMiB;
  g_region.slots[1].seqlock += 2;
}
void OnlyOnce() {
  GiveBackAfter();
  g_before_measure = g_after_measure = nullptr;
}

// No count taken before or after is that of the moment, so it is looked at again.
TEST_F(MemorySnapshotTest, GivenAnotherTakesAndGivesBackAroundLook_ThenItLooksAgain) {
  g_before_measure = &TakeBefore;
  g_after_measure = &OnlyOnce;
  EXPECT_EQ(SnapshotNow().uncounted, 0u);
  g_before_measure = &TakeBefore;
  g_after_measure = &OnlyOnce;
  g_own_seen += 5 * kMiB;
  EXPECT_EQ(SnapshotNow().uncounted, 5 * kMiB);
}

// A look has to end: too much then seems uncounted by what moved, until the next one.
TEST_F(MemorySnapshotTest, GivenAnotherThatMovesAroundEachLook_ThenTheLookEnds) {
  g_before_measure = &TakeBefore;
  g_after_measure = &GiveBackAfter;
  EXPECT_EQ(SnapshotNow().uncounted, 2 * kMiB);
}

// Either alone is seen through.
TEST_F(MemorySnapshotTest, GivenAnotherOnlyTakesOrGivesBack_ThenNothingSeemsUncounted) {
  g_before_measure = [] { g_other_counted += 2 * kMiB, g_other_seen += 2 * kMiB; };
  EXPECT_EQ(SnapshotNow().uncounted, 0u);
  g_before_measure = nullptr;
  g_after_measure = [] { g_other_seen -= 2 * kMiB, g_other_counted -= 2 * kMiB; };
  EXPECT_EQ(SnapshotNow().uncounted, 0u);
}

}  // namespace
}  // namespace hami::vgpu
