// SPDX-License-Identifier: Apache-2.0
//
// Physical memory against an account of three lines, and a region and descriptors of a few words (in vmm_test.cc).
#pragma once

#include <gtest/gtest.h>

#include "vgpu/memory/charge.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/shared_memory.h"
#include "vgpu/memory/sparse_multicast.h"
#include "vgpu/memory/vmm.h"
#include "vgpu/runtime/device_map.h"

namespace hami::vgpu {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr CUmemGenericAllocationHandle kHandle = 0x100;
inline constexpr CUmemGenericAllocationHandle kOther = 0x200;
inline constexpr CUmemGenericAllocationHandle kMulticast = 0x300;
inline constexpr uint64_t kArray = 0x7000;

inline constexpr int kDescriptor = 7;
inline const StreamId kStream{5, reinterpret_cast<CUcontext>(uintptr_t{16})};

inline constinit uint64_t g_charged = 0;
inline constinit uint64_t g_room = UINT64_MAX;

// The region as the rest of the container left it.
struct Shared {
  SharedMemory tag;     // of kDescriptor
  uint32_t uses = 0;    // by this process
  bool others = false;  // somebody else holds it, and pays
  bool named = true;    // what is exported gets a name
};
inline constinit Shared g_shared{};
inline constinit uint64_t g_files[16]{};  // what each descriptor is; 0 = closed

class VmmTest : public testing::Test {
 protected:
  ~VmmTest() override {
    g_memory.vmm.Reset();
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
  static void Wait(const StreamId& on = kStream) { VmmReached({g_memory.pools.frees.SoFar(), on}); }
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

}  // namespace hami::vgpu
