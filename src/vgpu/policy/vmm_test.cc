// SPDX-License-Identifier: Apache-2.0
// The life of physical memory, against an account of three lines.
#include "vgpu/policy/vmm.h"

#include <gtest/gtest.h>

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

constinit uint64_t g_charged = 0;
constinit uint64_t g_room = UINT64_MAX;

// The region as the rest of the container left it.
struct Shared {
  SharedMemory tag;     // of kDescriptor
  uint32_t uses = 0;    // by this process
  bool others = false;  // somebody else holds it, and pays
};
constinit Shared g_shared{};

class VmmTest : public testing::Test {
 protected:
  ~VmmTest() override {
    ResetVmm();
    g_charged = 0;
    g_room = UINT64_MAX;
    g_shared = {};
  }
  static void Create(CUmemGenericAllocationHandle handle, uint64_t bytes = 10 * kMiB) {
    g_charged += bytes;  // as the hook does before the driver's call
    VmmCreated(handle, bytes, 0);
  }
  static void Map(CUdeviceptr address, CUmemGenericAllocationHandle handle, bool agreed = true) {
    VmmMap map;
    EXPECT_TRUE(VmmMapping(handle, 10 * kMiB, &map));
    VmmMapped(map, address, agreed);
  }
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
  VmmBound(kArray, 1, kHandle);
  Release(kHandle);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnbound(kArray, 2);  // another part
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnbound(kArray, 1);
  EXPECT_EQ(g_charged, 0u);
  VmmUnbound(kArray, 1);
  VmmOwnerGone(kArray);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenManyPartsInASparseArray_WhenItIsDestroyed_ThenAllOfThemEnd) {
  Create(kHandle);
  Create(kOther);
  for (uint64_t part = 0; part < 1000; ++part) VmmBound(kArray, part, part % 2 == 0 ? kHandle : kOther);
  VmmBound(kArray + 8, 0, kOther);
  Release(kHandle);
  Release(kOther);
  EXPECT_EQ(g_charged, 20 * kMiB);
  VmmOwnerGone(kArray);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmOwnerGone(kArray + 8);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenAPart_WhenOtherMemoryIsMappedThere_ThenTheFirstIsLetGo) {
  Create(kHandle);
  Create(kOther);
  VmmBound(kArray, 1, kHandle);
  VmmBound(kArray, 1, kOther);
  Release(kHandle);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmBound(kArray, 1, kOther);  // again the same
  Release(kOther);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnbound(kArray, 1);
  EXPECT_EQ(g_charged, 0u);
}

TEST_F(VmmTest, GivenMemoryBoundToMulticast_WhenReleased_ThenItCountsUntilUnbound) {
  VmmMulticastCreated(kMulticast);
  Create(kHandle, 4 * kMiB);
  VmmMulticastBound({kMulticast, 2 * kMiB, 4 * kMiB}, kHandle);
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
  VmmMulticastBound({kMulticast, 0, 10 * kMiB}, kHandle);
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
  VmmMulticastBound({kMulticast, 0, 10 * kMiB}, kHandle);
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
  VmmMulticastBound({kMulticast, 0, 10 * kMiB}, kHandle);
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

TEST_F(VmmTest, GivenMemoryThatTheContainerShares_WhenImportedAndUsed_ThenNothingIsCharged) {
  g_shared = {{3, 10 * kMiB, 0}, 0, true};
  Import(kOther);
  EXPECT_EQ(g_shared.uses, 1u);
  EXPECT_FALSE(VmmHoldsUnusedImports());
  EXPECT_TRUE(VmmHoldsImports() && VmmHoldsSharedImports());
  Map(0x10000000, kOther);
  Map(0x20000000, kOther);
  Map(0x30000000, kOther, false);
  VmmBound(kArray, 1, kOther);
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
  VmmOwnerGone(kArray);
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
void Refund(int, uint64_t bytes, Kind) { g_charged -= bytes; }
int DeviceOfOrdinal(CUdevice ordinal) { return ordinal; }

uint64_t ShareMemory(int, uint64_t, uint64_t object) {
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
