// SPDX-License-Identifier: Apache-2.0
// Arrays that memory is mapped into: what they need, and how long a tile holds what backs it.
#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

constexpr std::size_t kTile = 64 * kKiB;

CUDA_ARRAY3D_DESCRIPTOR Shape(std::size_t width, std::size_t height, unsigned flags, std::size_t depth = 0) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = width;
  desc.Height = height;
  desc.Depth = depth;
  desc.Format = CU_AD_FORMAT_FLOAT;
  desc.NumChannels = 1;
  desc.Flags = flags;
  return desc;
}

class SparseTest : public DriverTest {
 protected:
  static CUmemGenericAllocationHandle NewPool(std::size_t size, int ordinal = 0,
                                              unsigned short usage = CU_MEM_CREATE_USAGE_TILE_POOL) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {ordinal}};
    prop.allocFlags.usage = usage;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
  }

  static CUarray NewArray(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
    CUarray array = nullptr;
    EXPECT_OK(cuArray3DCreate_v2(&array, &desc));
    return array;
  }

  // Tiles of a float array are 128x128: `x` and `width` count them, in the first row.
  static CUarrayMapInfo Entry(CUarray array, unsigned x, unsigned width, CUmemGenericAllocationHandle pool) {
    CUarrayMapInfo entry{};
    entry.resourceType = CU_RESOURCE_TYPE_ARRAY;
    entry.resource.array = array;
    entry.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    entry.subresource.sparseLevel = {0, 0, x * 128, 0, 0, width * 128, 128, 1};
    entry.memOperationType = pool != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    entry.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    entry.memHandle.memHandle = pool;
    entry.deviceBitMask = 1;
    return entry;
  }
  static CUarrayMapInfo Tail(CUmipmappedArray mipmap, CUmemGenericAllocationHandle pool) {
    CUarrayMapInfo entry = Entry(nullptr, 0, 1, pool);
    entry.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    entry.resource.mipmap = mipmap;
    entry.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    entry.subresource.miptail = {0, 0, kTile};
    return entry;
  }

  static CUresult Apply(CUarrayMapInfo entry, CUstream stream = nullptr) {
    return cuMemMapArrayAsync(&entry, 1, stream);
  }
  // What a finished call leaves.
  static void Done(CUarrayMapInfo entry) {
    EXPECT_OK(Apply(entry));
    EXPECT_OK(cuStreamSynchronize(nullptr));
  }
};

TEST_F(SparseTest, GivenDevicesThenTheyAnnounceIt) {
  RunWithContext([] {
    for (const auto attribute :
         {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED}) {
      int value = 0;
      EXPECT_OK(cuDeviceGetAttribute(&value, attribute, 0));
      EXPECT_EQ(value, 1);
    }
  });
}

TEST_F(SparseTest, GivenASparseArrayThenItCostsNothingAndTellsItsTiles) {
  RunWithContext([] {
    const CUarray array = NewArray(Shape(4096, 4096, CUDA_ARRAY3D_SPARSE));
    EXPECT_EQ(Used(), kContext);
    CUDA_ARRAY_SPARSE_PROPERTIES properties{};
    EXPECT_OK(cuArrayGetSparseProperties(&properties, array));
    EXPECT_EQ(properties.tileExtent.width, 128U);
    EXPECT_EQ(properties.tileExtent.height, 128U);
    EXPECT_EQ(properties.tileExtent.depth, 1U);
    EXPECT_EQ(properties.miptailSize, 0U);
    CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
    EXPECT_EQ(cuArrayGetMemoryRequirements(&requirements, array, 0), CUDA_ERROR_INVALID_VALUE) << "is not deferred";
    EXPECT_OK(cuArrayDestroy(array));
    EXPECT_EQ(cuArrayGetSparseProperties(&properties, array), CUDA_ERROR_INVALID_VALUE);
    const CUarray plain = NewArray(Shape(64, 64, 0));
    EXPECT_EQ(cuArrayGetSparseProperties(&properties, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuArrayDestroy(plain));
  });
}

TEST_F(SparseTest, GivenShapesThatNothingCanBeMappedIntoThenTheyAreRefused) {
  RunWithContext([] {
    CUarray array = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR desc = Shape(4096, 0, CUDA_ARRAY3D_SPARSE);
    EXPECT_EQ(cuArray3DCreate_v2(&array, &desc), CUDA_ERROR_INVALID_VALUE) << "one dimension";
    desc = Shape(128, 128, CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_CUBEMAP, 6);
    EXPECT_EQ(cuArray3DCreate_v2(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    desc = Shape(128, 128, CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
    EXPECT_EQ(cuArray3DCreate_v2(&array, &desc), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(SparseTest, GivenMappedTilesWhenThePoolIsReleasedThenTheLastTileHoldsIt) {
  RunWithContext([] {
    const CUarray array = NewArray(Shape(1024, 1024, CUDA_ARRAY3D_SPARSE));
    const CUmemGenericAllocationHandle pool = NewPool(2 * kMiB);
    Done(Entry(array, 0, 4, pool));
    EXPECT_OK(cuMemRelease(pool));
    EXPECT_EQ(Used(), kContext + 2 * kMiB);
    Done(Entry(array, 0, 1, 0));
    EXPECT_EQ(Used(), kContext + 2 * kMiB) << "three tiles are left";
    Done(Entry(array, 0, 8, 0));
    EXPECT_EQ(Used(), kContext);
    EXPECT_OK(cuArrayDestroy(array));
  });
}

TEST_F(SparseTest, GivenATileWhenItIsMappedAnewThenItLetsGoOfWhatItHad) {
  RunWithContext([] {
    const CUarray array = NewArray(Shape(1024, 1024, CUDA_ARRAY3D_SPARSE));
    const CUmemGenericAllocationHandle first = NewPool(2 * kMiB);
    const CUmemGenericAllocationHandle second = NewPool(4 * kMiB);
    Done(Entry(array, 0, 2, first));
    Done(Entry(array, 0, 2, second));
    EXPECT_OK(cuMemRelease(first));
    EXPECT_EQ(Used(), kContext + 4 * kMiB);
    EXPECT_OK(cuMemRelease(second));
    EXPECT_OK(cuArrayDestroy(array));
    EXPECT_EQ(Used(), kContext) << "the array took its tiles along";
  });
}

TEST_F(SparseTest, GivenWorkPending_WhenTilesUnmappedBehind_ThenHeldUntilDone) {
  RunWithContext([] {
    const CUarray array = NewArray(Shape(1024, 1024, CUDA_ARRAY3D_SPARSE));
    CUstream stream = nullptr;
    CUdeviceptr gate = 0;
    ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuMemAlloc_v2(&gate, 512));
    ASSERT_OK(cuMemsetD32_v2(gate, 0, 1));
    const std::uint64_t before = Used();
    const CUmemGenericAllocationHandle pool = NewPool(2 * kMiB);
    ASSERT_OK(cuStreamWaitValue32_v2(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(Apply(Entry(array, 0, 2, pool), stream));
    EXPECT_OK(cuMemRelease(pool));
    EXPECT_EQ(Used(), before + 2 * kMiB) << "mapped from the call on";
    EXPECT_OK(Apply(Entry(array, 0, 2, 0), stream));
    EXPECT_EQ(Used(), before + 2 * kMiB) << "unmapped when the stream gets there";
    ASSERT_OK(cuMemsetD32_v2(gate, 1, 1));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQ(Used(), before);
    // The array goes first: what is queued then maps nothing.
    ASSERT_OK(cuMemsetD32_v2(gate, 0, 1));
    const CUmemGenericAllocationHandle late = NewPool(2 * kMiB);
    EXPECT_OK(Apply(Entry(array, 0, 2, late), stream));
    EXPECT_OK(cuMemRelease(late));
    EXPECT_OK(cuArrayDestroy(array));
    EXPECT_EQ(Used(), before);
  });
}

TEST_F(SparseTest, GivenWrongEntry_ThenWholeListRefusedAndHoldsNothing) {
  RunWithContext([] {
    const CUarray array = NewArray(Shape(1024, 1024, CUDA_ARRAY3D_SPARSE));
    const CUarray plain = NewArray(Shape(64, 64, 0));
    const std::uint64_t before = Used();
    const CUmemGenericAllocationHandle pool = NewPool(2 * kMiB);
    const CUmemGenericAllocationHandle data = NewPool(2 * kMiB, 0, 0);
    const CUmemGenericAllocationHandle other = NewPool(2 * kMiB, 1);
    CUarrayMapInfo list[2] = {Entry(array, 0, 1, pool), Entry(array, 0, 1, pool)};
    const auto expect_refused = [&](CUresult why) {
      EXPECT_EQ(cuMemMapArrayAsync(list, 2, nullptr), why);
      list[1] = list[0];
    };
    EXPECT_EQ(cuMemMapArrayAsync(nullptr, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemMapArrayAsync(list, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    list[1].subresource.sparseLevel.offsetX = 5;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].offset = 100;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].offset = 2 * kMiB;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].deviceBitMask = 3;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].deviceBitMask = 2;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].memHandle.memHandle = data;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].memHandle.memHandle = other;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].flags = 1;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].resource.array = plain;
    expect_refused(CUDA_ERROR_INVALID_VALUE);
    list[1].resource.array = nullptr;
    expect_refused(CUDA_ERROR_INVALID_HANDLE);
    for (const auto handle : {pool, data, other}) EXPECT_OK(cuMemRelease(handle));
    EXPECT_EQ(Used(), before);
    EXPECT_EQ(Used(1), 0U);
  });
}

TEST_F(SparseTest, GivenMipmap_ThenTailMappedApartAndLevelsNotByThemselves) {
  RunWithContext([] {
    const CUDA_ARRAY3D_DESCRIPTOR desc = Shape(256, 256, CUDA_ARRAY3D_SPARSE);
    CUmipmappedArray mipmap = nullptr;
    ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &desc, 9));
    EXPECT_EQ(Used(), kContext);
    CUDA_ARRAY_SPARSE_PROPERTIES properties{};
    EXPECT_OK(cuMipmappedArrayGetSparseProperties(&properties, mipmap));
    EXPECT_EQ(properties.miptailFirstLevel, 2U);
    EXPECT_EQ(properties.miptailSize, kTile);
    CUarray level = nullptr;
    ASSERT_OK(cuMipmappedArrayGetLevel(&level, mipmap, 0));
    EXPECT_EQ(cuArrayGetSparseProperties(&properties, level), CUDA_ERROR_INVALID_VALUE);
    const CUmemGenericAllocationHandle pool = NewPool(2 * kMiB);
    EXPECT_EQ(Apply(Entry(level, 0, 1, pool)), CUDA_ERROR_INVALID_VALUE);
    Done(Tail(mipmap, pool));
    EXPECT_OK(cuMemRelease(pool));
    EXPECT_EQ(Used(), kContext + 2 * kMiB);
    EXPECT_OK(cuMipmappedArrayDestroy(mipmap));
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(SparseTest, GivenDeferredMapping_ThenArrayAsksForMemoryAndTakesItWhole) {
  RunWithContext([] {
    const CUarray array = NewArray(Shape(1024, 1024, CUDA_ARRAY3D_DEFERRED_MAPPING));
    EXPECT_EQ(Used(), kContext);
    CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
    EXPECT_OK(cuArrayGetMemoryRequirements(&requirements, array, 0));
    EXPECT_EQ(requirements.size, 4 * kMiB);
    EXPECT_EQ(requirements.alignment, kTile);
    EXPECT_EQ(cuArrayGetMemoryRequirements(&requirements, array, 9), CUDA_ERROR_INVALID_VALUE);
    const CUmemGenericAllocationHandle small = NewPool(2 * kMiB);
    EXPECT_EQ(Apply(Entry(array, 0, 1, small)), CUDA_ERROR_INVALID_VALUE) << "less than it needs";
    const CUmemGenericAllocationHandle pool = NewPool(4 * kMiB);
    Done(Entry(array, 0, 1, pool));
    EXPECT_OK(cuMemRelease(small));
    EXPECT_OK(cuMemRelease(pool));
    EXPECT_EQ(Used(), kContext + 4 * kMiB);
    CUmipmappedArray mipmap = nullptr;
    const CUDA_ARRAY3D_DESCRIPTOR desc = Shape(256, 256, CUDA_ARRAY3D_DEFERRED_MAPPING);
    ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &desc, 2));
    EXPECT_OK(cuMipmappedArrayGetMemoryRequirements(&requirements, mipmap, 0));
    EXPECT_EQ(requirements.size, 256 * kKiB + kTile);
    EXPECT_OK(cuMipmappedArrayDestroy(mipmap));
    EXPECT_OK(cuArrayDestroy(array));
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(SparseTest, GivenAContextThatEndsThenItsArraysLetGo) {
  RunWithContext([] {
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxCreate_v2(&ctx, 0, 0));
    const CUarray array = NewArray(Shape(1024, 1024, CUDA_ARRAY3D_SPARSE));
    const CUmemGenericAllocationHandle pool = NewPool(2 * kMiB);
    Done(Entry(array, 0, 1, pool));
    EXPECT_OK(cuMemRelease(pool));
    EXPECT_OK(cuCtxDestroy_v2(ctx));
    EXPECT_EQ(Used(), kContext);
  });
}

}  // namespace
}  // namespace simgpu::testing
