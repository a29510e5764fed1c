// SPDX-License-Identifier: Apache-2.0
// The life of physical memory, against an account of three lines.
#include "vgpu/policy/vmm.h"

#include <gtest/gtest.h>

#include "vgpu/policy/bindings.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/sharing.h"

namespace hami::vgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr CUmemGenericAllocationHandle kHandle = 0x100;
constexpr CUmemGenericAllocationHandle kOther = 0x200;
constexpr CUmemGenericAllocationHandle kMulticast = 0x300;
constexpr uint64_t kArray = 0x7000;

constexpr int kDescriptor = 7;
const StreamName kStream{5, reinterpret_cast<CUcontext>(uintptr_t{16})};

constinit uint64_t g_charged = 0;
constinit uint64_t g_room = UINT64_MAX;

// The region as the rest of the container left it.
struct Shared {
  SharedMemory tag;     // of kDescriptor
  uint32_t uses = 0;    // by this process
  bool others = false;  // somebody else holds it, and pays
  bool named = true;    // what is exported gets a name
};
constinit Shared g_shared{};
constinit uint64_t g_files[16]{};  // what each descriptor is; 0 = closed

class VmmTest : public testing::Test {
 protected:
  ~VmmTest() override {
    ResetVmm();
    g_charged = 0;
    g_room = UINT64_MAX;
    g_shared = {};
    for (uint64_t& file : g_files) file = 0;
  }
  static void Export(CUmemGenericAllocationHandle handle, int fd, uint64_t file) {
    g_files[fd] = file;
    VmmExported(handle, fd);
  }
  static void Create(CUmemGenericAllocationHandle handle, uint64_t bytes = 10 * kMiB) {
    g_charged += bytes;  // as the hook does before the driver's call
    VmmCreated(handle, bytes, 0);
  }
  static void Map(CUdeviceptr address, CUmemGenericAllocationHandle handle, bool agreed = true) {
    VmmUse use;
    EXPECT_TRUE(VmmUsing(handle, 10 * kMiB, &use));
    VmmMapped(use, address, agreed);
  }
  static void Bind(const MulticastRange& at, CUmemGenericAllocationHandle memory, bool agreed = true) {
    VmmUse use;
    EXPECT_TRUE(VmmUsing(memory, at.bytes, &use));
    VmmMulticastBound(at, use, agreed);
  }
  // A row of tiles, and what the program does that proves that the stream got there.
  static TileBox Row(unsigned first, unsigned count) { return {0, 0, {first, 0, 0}, {count, 1, 1}}; }
  static void MapTiles(uint64_t array, const TileBox& box, CUmemGenericAllocationHandle pool) {
    VmmUse use;
    EXPECT_TRUE(VmmUsing(pool, box.bytes(), &use));
    VmmTilesMapped(array, box, use, kStream);
  }
  static void UnmapTiles(uint64_t array, const TileBox& box) { VmmTilesUnmapped(array, box, kStream); }
  static void Wait(const StreamName& on = kStream) { VmmReached({FreesSoFar(), on}); }
  // As the hook does around the driver's call.
  static void Import(CUmemGenericAllocationHandle handle, bool agreed = true) {
    VmmImport import;
    ASSERT_TRUE(VmmImporting(kDescriptor, &import));
    if (agreed) {
      if (import.object == 0) import.device = 0;
      VmmImported(handle, import);
    } else {
      VmmImportFailed(import);
    }
  }
  static void Release(CUmemGenericAllocationHandle handle) { VmmReleased(handle, VmmReleasing(handle), true); }
};

TEST_F(VmmTest, GivenMemoryInASparseArray_WhenReleased_ThenItCountsUntilUnmapped) {
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

TEST_F(VmmTest, GivenManyTiles_WhenUnmappedInPieces_ThenTheMemoryCountsUntilTheLast) {
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

TEST_F(VmmTest, GivenTilesOfMorePiecesOfMemoryThanAreSummedUpAtOnce_WhenTheArrayIsDestroyedOrUnmapped_ThenAllEnd) {
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

TEST_F(VmmTest, GivenTiles_WhenOtherMemoryIsMappedThere_ThenTheFirstIsLetGoWhenTheStreamGotThere) {
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

TEST_F(VmmTest, GivenAnUnmappingBehindWork_ThenOnlyAWaitForItsStreamOrContextEndsTheUse) {
  const auto unmapped = [] {
    Create(kHandle);
    MapTiles(kArray, Row(0, 2), kHandle);
    Release(kHandle);
    UnmapTiles(kArray, Row(0, 2));
  };
  EXPECT_FALSE(g_vmm_uses_end_later);
  const Waited before{FreesSoFar(), kStream};
  unmapped();
  EXPECT_TRUE(g_vmm_uses_end_later);
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
  EXPECT_FALSE(g_vmm_uses_end_later);
}

TEST_F(VmmTest, GivenAnotherContainersMemory_WhenAnArrayIsMappedAsAWhole_ThenItIsChargedUntilUnmappedOrGone) {
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

TEST_F(VmmTest, GivenMemoryBoundToMulticast_WhenReleased_ThenItCountsUntilUnbound) {
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

TEST_F(VmmTest, GivenMulticastObject_WhenItsLastReferenceAndMappingGo_ThenItsBindingsEnd) {
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

TEST_F(VmmTest, GivenMulticastObjectOfAnotherProcess_WhenBoundByAddress_ThenTheMemoryCountsUntilItIsReleased) {
  Create(kHandle);
  Map(0x10000000, kHandle);
  VmmMulticastBoundAddress({kMulticast, 0, 10 * kMiB}, 0x10000000);
  Release(kHandle);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kMulticast);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenMulticastObjectImportedAgain_WhenReleasedOnce_ThenItKeepsItsBindings) {
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

TEST_F(VmmTest, GivenMulticastObjectImportedAndMapped_WhenBoundAndReleased_ThenTheMappingKeepsIt) {
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

TEST_F(VmmTest, GivenAnAddressInsideAMapping_WhenBoundOrRetained_ThenItsMemoryIsMeant) {
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

TEST_F(VmmTest, GivenMapping_WhenAnotherAtItsAddressFails_ThenTheFirstIsStillKnown) {
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

TEST_F(VmmTest, GivenImportedMemory_WhenBoundOrTiled_ThenItCountsLikewiseOrIsRefused) {
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

TEST_F(VmmTest, GivenExportedMemory_WhenOthersHoldItOrNot_ThenItsEndIsTheRegionsBusiness) {
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

TEST_F(VmmTest, GivenExportedMemoryThatTheRegionForgot_WhenReleased_ThenItsChargeIsGivenBack) {
  Create(kHandle);
  VmmExported(kHandle, kDescriptor);
  g_shared.uses = 0;
  Release(kHandle);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenAnOpenDescriptor_WhenTheMemoryIsReleased_ThenItCountsUntilTheDescriptorIsSeenClosed) {
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

TEST_F(VmmTest, GivenManyOpenDescriptors_WhenClosedInAnyOrder_ThenOneLookEndsAllThatTheyKept) {
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

TEST_F(VmmTest, GivenADescriptor_WhenItsNumberIsGivenOutAgain_ThenWhatItKeptEnds) {
  g_shared.named = false;
  Create(kHandle);
  Export(kHandle, 3, 100);
  Release(kHandle);
  Create(kOther, 4 * kMiB);
  Export(kOther, 3, 100);
  EXPECT_EQ(g_charged, 4 * kMiB);
  Release(kOther);
  EXPECT_EQ(g_charged, 4 * kMiB);
  ResetVmm();  // the child of a fork has the descriptor, and no account
  VmmSettleDescriptors();
  EXPECT_EQ(g_charged, 4 * kMiB);
}

TEST_F(VmmTest, GivenAnImportWhoseDescriptorStaysOpen_WhenReleased_ThenItIsHeld) {
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

TEST_F(VmmTest, GivenMemoryThatTheContainerShares_WhenImportedAndUsed_ThenNothingIsCharged) {
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
TEST_F(VmmTest, GivenSharedMemoryThatNobodyHolds_WhenImported_ThenItIsChargedUnmappedOrRefused) {
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

TEST_F(VmmTest, GivenMemoryOfAnotherContainer_WhenExportedAgain_ThenItHasNoName) {
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
