// SPDX-License-Identifier: Apache-2.0
// Physical memory that other processes have too: what was imported, exported, and what descriptors keep.
#include "vgpu/testing/vmm_world.h"

namespace hami::vgpu {
namespace {

// Where it is not known whose memory it is, it counts: twice in a container that shares it with itself.
TEST_F(VmmTest, GivenImportedMemory_ThenItCountsWhileMapped) {
  VmmImported(kOther, {0, 0, 0});
  EXPECT_EQ(g_charged, 0u);
  Map(0x10000000, kOther);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kOther);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenImport_WhenBoundOrTiled_ThenItCountsOrIsRefused) {
  VmmMulticastCreated(kMulticast);
  VmmImported(kOther, {0, 0, 0});
  Bind({kMulticast, 0, 6 * kMiB}, kOther, false);
  EXPECT_EQ(g_charged, 0u);
  Bind({kMulticast, 0, 6 * kMiB}, kOther);
  EXPECT_EQ(g_charged, 6 * kMiB);
  MapTiles(kArray, Row(0, 16), kOther);
  EXPECT_EQ(g_charged, 7 * kMiB);
  Map(0x10000000, kOther);
  VmmMulticastBoundAddress({kMulticast, 6 * kMiB, 4 * kMiB}, 0x10000000 + 6 * kMiB);
  EXPECT_EQ(g_charged, 21 * kMiB);
  g_room = 2 * kMiB;
  VmmUse use;
  EXPECT_FALSE(VmmUsing(kOther, 4 * kMiB, &use));
  VmmMulticastBound({kMulticast, 10 * kMiB, 4 * kMiB}, use, false);
  EXPECT_EQ(g_charged, 21 * kMiB);
  Release(kOther);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 11 * kMiB);
  VmmMulticastUnbound({kMulticast, 0, 10 * kMiB}, 0);
  EXPECT_EQ(g_charged, kMiB);
  UnmapTiles(kArray, Row(0, 8));
  Wait();
  EXPECT_EQ(g_charged, kMiB / 2);
  VmmArrayGone(kArray);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenExportedMemory_WhenReleased_ThenRegionDecidesItsEnd) {
  Create(kHandle);
  VmmExported(kHandle, kDescriptor);
  EXPECT_EQ(g_shared.tag.object, 1u);
  EXPECT_EQ(g_shared.tag.bytes, 10 * kMiB);
  EXPECT_EQ(g_shared.uses, 1u);
  VmmExported(kHandle, kDescriptor);
  EXPECT_EQ(g_shared.uses, 1u) << "the same object again";
  Map(0x10000000, kHandle);
  Release(kHandle);
  EXPECT_EQ(g_shared.uses, 1u);
  g_shared.others = true;
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_shared.uses, 0u);
  EXPECT_EQ(g_charged, 0u) << "another pays on";
}

TEST_F(VmmTest, GivenExportRegionForgot_WhenReleased_ThenChargeIsGivenBack) {
  Create(kHandle);
  VmmExported(kHandle, kDescriptor);
  g_shared.uses = 0;
  Release(kHandle);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenOpenDescriptor_WhenReleased_ThenItCountsUntilSeenClosed) {
  Create(kHandle);
  Export(kHandle, 3, 100);
  Export(kHandle, 4, 101);
  Map(0x10000000, kHandle);
  Release(kHandle);
  g_files[3] = 0;
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 10 * kMiB);
  EXPECT_EQ(g_shared.uses, 1u);
  EXPECT_TRUE(VmmHoldsImports()) << "what the driver shows of it is not sure";
  g_files[4] = 102;  // another file
  EXPECT_EQ(g_charged, 10 * kMiB) << "nobody has looked";
  VmmSettleDescriptors();
  EXPECT_EQ(g_charged, 0u);
  EXPECT_EQ(g_shared.uses, 0u);
  EXPECT_FALSE(VmmHoldsImports());
}

TEST_F(VmmTest, GivenDescriptors_WhenClosedInAnyOrder_ThenOneLookEndsAllKept) {
  constexpr int kMany = 12;
  g_shared.named = false;
  for (int fd = 0; fd < kMany; ++fd) {
    Create(kHandle + static_cast<unsigned>(fd));
    Export(kHandle + static_cast<unsigned>(fd), fd, 100);
    Release(kHandle + static_cast<unsigned>(fd));
  }
  EXPECT_EQ(g_charged, kMany * 10 * kMiB) << "what the region does not share counts as well";
  for (const int fd : {0, 3, 4, 10, 11}) g_files[fd] = 0;
  VmmSettleDescriptors();
  EXPECT_EQ(g_charged, (kMany - 5) * 10 * kMiB);
  for (int fd = 0; fd < kMany; ++fd) g_files[fd] = 0;
  // In passing a few are looked at by each call, in turn.
  VmmUnmapped(0x10000000, 0);
  EXPECT_GT(g_charged, 0u);
  VmmUnmapped(0x10000000, 0);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenDescriptor_WhenItsNumberIsReused_ThenWhatItKeptEnds) {
  g_shared.named = false;
  Create(kHandle);
  Export(kHandle, 3, 100);
  Release(kHandle);
  Create(kOther, 4 * kMiB);
  Export(kOther, 3, 100);
  EXPECT_EQ(g_charged, 4 * kMiB);
  Release(kOther);
  EXPECT_EQ(g_charged, 4 * kMiB);
  g_memory.vmm.Reset();  // the child of a fork has the descriptor, and no account
  VmmSettleDescriptors();
  EXPECT_EQ(g_charged, 4 * kMiB);
}

TEST_F(VmmTest, GivenImportWithOpenDescriptor_WhenReleased_ThenItIsHeld) {
  g_shared = {{3, 10 * kMiB, 0}, 0, true};
  g_files[kDescriptor] = 100;
  Import(kOther);
  Release(kOther);
  EXPECT_EQ(g_shared.uses, 1u);
  EXPECT_TRUE(VmmHoldsImports() && VmmHoldsSharedImports());
  Import(kHandle);  // the same descriptor again
  EXPECT_EQ(g_shared.uses, 1u);
  g_files[kDescriptor] = 0;
  Release(kHandle);
  EXPECT_EQ(g_shared.uses, 0u);
  EXPECT_FALSE(VmmHoldsImports() || VmmHoldsSharedImports());
}

TEST_F(VmmTest, GivenSharedMemory_WhenImportedAndUsed_ThenNothingIsCharged) {
  g_shared = {{3, 10 * kMiB, 0}, 0, true};
  Import(kOther);
  EXPECT_EQ(g_shared.uses, 1u);
  EXPECT_FALSE(VmmHoldsUnusedImports());
  EXPECT_TRUE(VmmHoldsImports() && VmmHoldsSharedImports());
  Map(0x10000000, kOther);
  Map(0x20000000, kOther);
  Map(0x30000000, kOther, false);
  MapTiles(kArray, Row(1, 1), kOther);
  Import(kOther);
  EXPECT_EQ(g_shared.uses, 1u) << "the driver gave the same handle";
  Import(kHandle);
  EXPECT_EQ(g_shared.uses, 2u) << "or another";
  g_shared.tag = {};
  VmmExported(kOther, kDescriptor);
  EXPECT_EQ(g_shared.tag.object, 3u) << "handed on under its name";
  EXPECT_EQ(g_shared.tag.bytes, 10 * kMiB);
  Release(kHandle);
  Release(kOther);
  Release(kOther);
  VmmUnmapped(0x10000000, 10 * kMiB);
  VmmUnmapped(0x20000000, 10 * kMiB);
  EXPECT_EQ(g_shared.uses, 1u);
  VmmArrayGone(kArray);
  EXPECT_EQ(g_shared.uses, 0u);
  EXPECT_EQ(g_charged, 0u);
  EXPECT_FALSE(VmmHoldsImports() || VmmHoldsSharedImports());
}

TEST_F(VmmTest, GivenAnImportThatTheDriverRefuses_ThenNothingIsHeld) {
  g_shared = {{3, 10 * kMiB, 0}, 0, true};
  Import(kOther, false);
  EXPECT_EQ(g_shared.uses, 0u);
  g_shared.others = false;
  Import(kOther, false);
  EXPECT_EQ(g_shared.uses, 0u);
  EXPECT_EQ(g_charged, 0u);
}

// The descriptor alone keeps the memory.
TEST_F(VmmTest, GivenUnheldSharedMemory_ThenImportIsChargedUnmappedOrRefused) {
  g_shared = {{3, 10 * kMiB, 0}, 0, false};
  g_room = 9 * kMiB;
  VmmImport import;
  EXPECT_FALSE(VmmImporting(kDescriptor, &import));
  EXPECT_EQ(g_charged, 0u);
  g_room = 10 * kMiB;
  Import(kOther);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Map(0x10000000, kOther);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kOther);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenOtherContainersMemory_WhenReexported_ThenItHasNoName) {
  Import(kOther);
  EXPECT_TRUE(VmmHoldsUnusedImports());
  EXPECT_FALSE(VmmHoldsSharedImports());
  VmmExported(kOther, kDescriptor);
  EXPECT_EQ(g_shared.tag.object, 0u);
  VmmMulticastCreated(kMulticast);
  VmmExported(kMulticast, kDescriptor);
  EXPECT_EQ(g_shared.tag.object, 0u);
}

}  // namespace
}  // namespace hami::vgpu
