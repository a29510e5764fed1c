// SPDX-License-Identifier: Apache-2.0
// The life of physical memory, against an account of three lines.
#include "vgpu/policy/vmm.h"

#include <gtest/gtest.h>

#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"

namespace hami::vgpu {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr CUmemGenericAllocationHandle kHandle = 0x100;
constexpr CUmemGenericAllocationHandle kOther = 0x200;
constexpr CUmemGenericAllocationHandle kMulticast = 0x300;
constexpr uint64_t kArray = 0x7000;

constinit uint64_t g_charged = 0;

class VmmTest : public testing::Test {
 protected:
  ~VmmTest() override {
    ResetVmm();
    g_charged = 0;
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

TEST_F(VmmTest, GivenMapping_WhenAnotherAtItsAddressFails_ThenTheFirstIsStillKnown) {
  Create(kHandle);
  VmmImported(kOther, {0, 0});
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
  VmmImported(kOther, {0, 0});
  EXPECT_EQ(g_charged, 0u);
  Map(0x10000000, kOther);
  EXPECT_EQ(g_charged, 10 * kMiB);
  Release(kOther);
  EXPECT_EQ(g_charged, 10 * kMiB);
  VmmUnmapped(0x10000000, 10 * kMiB);
  EXPECT_EQ(g_charged, 0u);
}

}  // namespace

bool Reserve(int, uint64_t bytes, Kind) {
  g_charged += bytes;
  return true;
}
void Refund(int, uint64_t bytes, Kind) { g_charged -= bytes; }
int DeviceOfOrdinal(CUdevice ordinal) { return ordinal; }
uint64_t ShareMemory(int, uint64_t) { return 0; }
void TagMemory(int, uint64_t) {}
uint64_t JoinMemory(int, int*) { return 0; }
bool LeaveMemory(uint64_t) { return false; }

}  // namespace hami::vgpu
