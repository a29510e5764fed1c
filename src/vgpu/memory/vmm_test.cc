// SPDX-License-Identifier: Apache-2.0
// The life of physical memory, against an account of three lines.
#include "vgpu/testing/vmm_world.h"

namespace hami::vgpu {
namespace {

TEST_F(VmmTest, GivenSparseMemory_WhenReleased_ThenItCountsUntilUnmapped) {
  Create(kHandle);
  MapTiles(kArray, Row(1, 1), kHandle);
  Release(kHandle);
  EXPECT_EQ(g_charged, 10 * kMiB);
  UnmapTiles(kArray, Row(2, 1));  // another part
  UnmapTiles(kArray + 8, Row(1, 1));
  Wait();
  EXPECT_EQ(g_charged, 10 * kMiB);
  UnmapTiles(kArray, Row(1, 1));
  Wait();
  EXPECT_EQ(g_charged, 0u);
  UnmapTiles(kArray, Row(1, 1));
  Wait();
  VmmArrayGone(kArray);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenTiles_WhenUnmappedInPieces_ThenMemoryCountsUntilLast) {
  const TileBox all{1, 3, {2, 0, 4}, {20, 10, 5}};
  Create(kHandle);
  MapTiles(kArray, all, kHandle);
  Release(kHandle);
  UnmapTiles(kArray, {0, 3, {0, 0, 0}, {30, 30, 30}});  // another level
  UnmapTiles(kArray, {1, 2, {0, 0, 0}, {30, 30, 30}});  // another layer
  UnmapTiles(kArray, {kTailLevel, 3, {0, 0, 0}, {30, 1, 1}});
  UnmapTiles(kArray, {1, 3, {2, 0, 4}, {20, 10, 4}});
  UnmapTiles(kArray, {1, 3, {2, 0, 8}, {20, 9, 1}});
  UnmapTiles(kArray, {1, 3, {2, 9, 8}, {19, 1, 1}});
  Wait();
  EXPECT_EQ(g_charged, 10 * kMiB) << "one tile is left";
  UnmapTiles(kArray, {1, 3, {21, 9, 8}, {1, 1, 1}});
  Wait();
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenABoxAsLargeAsAnyArray_WhenUnmapped_ThenTheTilesInItEnd) {
  Create(kHandle);
  Create(kOther);
  MapTiles(kArray, {0, 0, {5, 6, 7}, {1, 1, 1}}, kHandle);
  MapTiles(kArray, {1, 0, {5, 6, 7}, {1, 1, 1}}, kOther);
  Release(kHandle);
  Release(kOther);
  UnmapTiles(kArray, {0, 0, {0, 0, 0}, {16384, 16384, 16384}});
  Wait();
  EXPECT_EQ(g_charged, 10 * kMiB);
  UnmapTiles(kArray, {1, 0, {0, 0, 8}, {16384, 16384, 16384}});
  Wait();
  EXPECT_EQ(g_charged, 10 * kMiB);
}

TEST_F(VmmTest, GivenMorePiecesThanOneSum_WhenDestroyedOrUnmapped_ThenAllEnd) {
  constexpr unsigned kPieces = 1000;
  for (const bool destroy : {true, false}) {
    for (unsigned i = 0; i < kPieces; ++i) {
      Create(kHandle + i, kMiB);
      MapTiles(kArray, Row(2 * i, 2), kHandle + i);
      Release(kHandle + i);
    }
    Create(kOther + kPieces);
    MapTiles(kArray + 8, Row(0, 1), kOther + kPieces);
    Release(kOther + kPieces);
    EXPECT_EQ(g_charged, kPieces * kMiB + 10 * kMiB);
    if (destroy) {
      VmmArrayGone(kArray);
    } else {
      UnmapTiles(kArray, Row(0, 2 * kPieces));
      Wait();
    }
    EXPECT_EQ(g_charged, 10 * kMiB);
    VmmArrayGone(kArray + 8);
    EXPECT_EQ(g_charged, 0u);
  }
}

TEST_F(VmmTest, GivenTiles_WhenRemapped_ThenOldMemoryGoesOnceStreamGetsThere) {
  Create(kHandle);
  Create(kOther);
  MapTiles(kArray, Row(0, 4), kHandle);
  MapTiles(kArray, Row(1, 4), kOther);
  Release(kHandle);
  Wait();
  EXPECT_EQ(g_charged, 20 * kMiB) << "its first tile";
  MapTiles(kArray, Row(0, 1), kOther);
  EXPECT_EQ(g_charged, 20 * kMiB);
  Wait();
  EXPECT_EQ(g_charged, 10 * kMiB);
  MapTiles(kArray, Row(0, 5), kOther);  // again the same
  Release(kOther);
  Wait();
  EXPECT_EQ(g_charged, 10 * kMiB);
  UnmapTiles(kArray, Row(0, 5));
  Wait();
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenUnmappingBehindWork_ThenOnlyStreamOrContextWaitEndsUse) {
  const auto unmapped = [] {
    Create(kHandle);
    MapTiles(kArray, Row(0, 2), kHandle);
    Release(kHandle);
    UnmapTiles(kArray, Row(0, 2));
  };
  EXPECT_FALSE(VmmUsesEndLater());
  const Waited before{g_memory.pools.frees.SoFar(), kStream};
  unmapped();
  EXPECT_TRUE(VmmUsesEndLater());
  VmmReached(before);
  VmmReached({});
  Wait({kStream.number + 1, nullptr});
  VmmArrayGone(kArray);
  VmmLostContext(nullptr);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Wait({kStream.number, nullptr});
  EXPECT_EQ(g_charged, 0u);
  unmapped();
  Wait({0, kStream.context});
  EXPECT_EQ(g_charged, 0u);
  unmapped();
  VmmLostContext(kStream.context);
  EXPECT_EQ(g_charged, 0u);
  EXPECT_FALSE(VmmUsesEndLater());
}

TEST_F(VmmTest, GivenWholeArrayOfForeignMemory_ThenItIsChargedWhileMapped) {
  VmmImport import;
  import.device = 0;
  VmmImported(kHandle, import);
  const TileBox whole = BoxOf({}, {}, 64 * kMiB);
  MapTiles(kArray, whole, kHandle);
  EXPECT_EQ(g_charged, 64 * kMiB);
  MapTiles(kArray, whole, kHandle);  // anew: the first one counts until the stream got there
  EXPECT_EQ(g_charged, 128 * kMiB);
  Wait();
  EXPECT_EQ(g_charged, 64 * kMiB);
  UnmapTiles(kArray, whole);
  EXPECT_EQ(g_charged, 64 * kMiB);
  Wait();
  EXPECT_EQ(g_charged, 0u);
  MapTiles(kArray, whole, kHandle);
  VmmArrayGone(kArray);
  EXPECT_EQ(g_charged, 0u);
  g_room = 64 * kMiB - 1;
  VmmUse use;
  EXPECT_FALSE(VmmUsing(kHandle, whole.bytes(), &use));
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenPartsOfArrays_ThenTheirTilesAreCounted) {
  CUarrayMapInfo map{};
  map.subresource.sparseLevel = {2, 3, 128, 64, 0, 130, 64, 1};
  TileBox box = BoxOf(map, {64, 32, 1}, 0);
  EXPECT_EQ(box.level, 2u);
  EXPECT_EQ(box.layer, 3u);
  EXPECT_EQ(box.first[0], 2u);
  EXPECT_EQ(box.count[0], 3u) << "the last one in part";
  EXPECT_EQ(box.first[1], 2u);
  EXPECT_EQ(box.count[1], 2u);
  EXPECT_EQ(box.bytes(), 6 * kTileBytes);
  box = BoxOf(map, {}, 3 * kTileBytes - 1);
  EXPECT_EQ(box.level, kWholeLevel);
  EXPECT_EQ(box.tiles(), 1u);
  EXPECT_EQ(box.bytes(), 3 * kTileBytes);
  map.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  map.subresource.miptail = {1, kTileBytes, kTileBytes + 1};
  box = BoxOf(map, {64, 32, 1}, 0);
  EXPECT_EQ(box.level, kTailLevel);
  EXPECT_EQ(box.layer, 1u);
  EXPECT_EQ(box.first[0], 1u);
  EXPECT_EQ(box.count[0], 2u);
}

TEST_F(VmmTest, GivenMulticastMemory_WhenReleased_ThenItCountsUntilUnbound) {
  VmmMulticastCreated(kMulticast);
  Create(kHandle, 4 * kMiB);
  Bind({kMulticast, 2 * kMiB, 4 * kMiB}, kHandle);
  Release(kHandle);
  EXPECT_EQ(g_charged, 4 * kMiB);
  VmmMulticastUnbound({kMulticast, 2 * kMiB, 4 * kMiB}, 1);  // another device's
  EXPECT_EQ(g_charged, 4 * kMiB);
  VmmMulticastUnbound({kMulticast, 0, 8 * kMiB}, 0);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenMulticast_WhenLastReferenceAndMappingGo_ThenBindingsEnd) {
  VmmMulticastCreated(kMulticast);
  Create(kHandle);
  Map(0x10000000, kMulticast);
  Bind({kMulticast, 0, 10 * kMiB}, kHandle);
  Release(kHandle);
  Release(kMulticast);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenAddressBoundToOthersMulticast_ThenItCountsUntilRelease) {
  Create(kHandle);
  Map(0x10000000, kHandle);
  VmmMulticastBoundAddress({kMulticast, 0, 10 * kMiB}, 0x10000000);
  Release(kHandle);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kMulticast);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenMulticastReimported_WhenReleasedOnce_ThenBindingsStay) {
  VmmMulticastCreated(kMulticast);
  VmmImported(kMulticast, {0, 0, kUnlimited});
  Create(kHandle);
  Bind({kMulticast, 0, 10 * kMiB}, kHandle);
  Release(kHandle);
  Release(kMulticast);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kMulticast);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenBoundMulticastImport_WhenReleased_ThenMappingKeepsIt) {
  VmmImported(kMulticast, {0, 0, kUnlimited});
  EXPECT_FALSE(VmmHoldsImports()) << "it has no memory";
  Map(0x10000000, kMulticast);
  EXPECT_EQ(g_charged, 0u);
  Create(kHandle);
  Bind({kMulticast, 0, 10 * kMiB}, kHandle);
  Release(kHandle);
  Release(kMulticast);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenAddressInMapping_WhenBoundOrRetained_ThenMemoryIsMeant) {
  Create(kHandle);
  Create(kOther);
  Map(0x10000000, kHandle);
  Map(0x10000000 + 10 * kMiB, kOther);
  Release(kHandle);
  VmmRetained(kHandle, 0x10000000 + 10 * kMiB - 1);
  VmmMulticastCreated(kMulticast);
  VmmMulticastBoundAddress({kMulticast, 0, 4 * kMiB}, 0x10000000 + 8 * kMiB);  // the end of one, the begin of the other
  Release(kOther);
  VmmUnmapped(0x10000000, 20 * kMiB);
  VmmRetained(kMulticast + 1, 0x10000000 + 10 * kMiB);  // nothing is there
  EXPECT_EQ(g_charged, 20 * kMiB);
  Release(kMulticast);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kHandle);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenMapping_WhenAnotherAtAddressFails_ThenFirstStaysKnown) {
  Create(kHandle);
  VmmImported(kOther, {0, 0, 0});
  Map(0x10000000, kHandle);
  Map(0x10000000, kHandle, false);
  Map(0x10000000, kOther, false);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kHandle);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 0u);
}

}  // namespace

bool Reserve(int, uint64_t bytes, Kind) {
  if (bytes > g_room) return false;
  g_charged += bytes;
  return true;
}
void ChargeAnyway(int, uint64_t bytes, Kind) { g_charged += bytes; }
void Refund(int, uint64_t bytes, Kind) { g_charged -= bytes; }
void* DriverSymbol(Sym) { return nullptr; }
int DeviceOfOrdinal(CUdevice ordinal) { return ordinal; }

FileName NameFile(int fd) { return {g_files[fd], 0, 0}; }
bool IsFile(int fd, const FileName& name) { return g_files[fd] != 0 && g_files[fd] == name.device; }
uint64_t ShareMemory(int, uint64_t, uint64_t object) {
  if (!g_shared.named) return 0;
  g_shared.uses = 1;
  return object != 0 ? object : 1;
}
void TagMemory(int, const SharedMemory& memory) { g_shared.tag = memory; }
SharedMemory ReadMemoryTag(int) { return g_shared.tag; }
bool JoinMemory(uint64_t) {
  if (g_shared.uses == 0 && !g_shared.others) return false;
  ++g_shared.uses;
  return true;
}
bool LeaveMemory(uint64_t) {
  if (g_shared.uses == 0) return false;
  if (--g_shared.uses == 0) g_charged = 0;
  return true;
}

}  // namespace hami::vgpu
