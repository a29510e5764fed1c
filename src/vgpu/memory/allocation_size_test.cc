// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/allocation_size.h"

#include <gtest/gtest.h>

namespace hami::vgpu {
namespace {

CUDA_ARRAY3D_DESCRIPTOR Shape(size_t width, size_t height, size_t depth, CUarray_format format, unsigned channels,
                              unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = width;
  shape.Height = height;
  shape.Depth = depth;
  shape.Format = format;
  shape.NumChannels = channels;
  shape.Flags = flags;
  return shape;
}

TEST(ArrayBytes, GivenPlainShapes_ThenWholeBlocksOf64BytesBy8Rows) {
  EXPECT_EQ(ArrayBytes(Shape(100, 0, 0, CU_AD_FORMAT_FLOAT, 1)), 512u);
  EXPECT_EQ(ArrayBytes(Shape(1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4)), 4u << 20);
  EXPECT_EQ(ArrayBytes(Shape(1000, 10, 3, CU_AD_FORMAT_HALF, 2)), RoundUp(4032u * 16 * 3, 512));
  EXPECT_EQ(ArrayBytes(Shape(4096, 1, 0, CU_AD_FORMAT_FLOAT, 4)), 8u * 65536);
  EXPECT_EQ(ArrayBytes(Shape(4096, 0, 0, CU_AD_FORMAT_FLOAT, 4)), 65536u);
}

TEST(ArrayBytes, GivenCompressedTexels_ThenWholeSquaresOf4By4) {
  for (const unsigned channels : {1u, 4u}) {
    EXPECT_EQ(ArrayBytes(Shape(8192, 8192, 0, CU_AD_FORMAT_BC1_UNORM, channels)), 32u << 20);
    EXPECT_EQ(ArrayBytes(Shape(8192, 8192, 0, CU_AD_FORMAT_BC4_SNORM, channels)), 32u << 20);
    EXPECT_EQ(ArrayBytes(Shape(8192, 8192, 0, CU_AD_FORMAT_BC7_UNORM, channels)), 64u << 20);
    EXPECT_EQ(ArrayBytes(Shape(8192, 8192, 0, CU_AD_FORMAT_BC5_UNORM, channels)), 64u << 20);
  }
  EXPECT_EQ(ArrayBytes(Shape(8190, 8189, 0, CU_AD_FORMAT_BC1_UNORM, 4)), 32u << 20);
  EXPECT_EQ(MipmapBytes(Shape(4, 4, 0, CU_AD_FORMAT_BC1_UNORM, 4), 3), 3u * 512);
}

TEST(ArrayBytes, GivenPackedChannels_ThenFourBytesForAll) {
  EXPECT_EQ(ArrayBytes(Shape(1024, 1024, 0, CU_AD_FORMAT_UNORM_INT_101010_2, 4)), 4u << 20);
}

TEST(ArrayBytes, GivenArrayWithoutOwnMemory_ThenZero) {
  EXPECT_EQ(ArrayBytes(Shape(4096, 4096, 0, CU_AD_FORMAT_FLOAT, 4, 0x40)), 0u);
  EXPECT_EQ(ArrayBytes(Shape(4096, 4096, 0, CU_AD_FORMAT_FLOAT, 4, 0x80)), 0u);
}

TEST(ArrayBytes, GivenAbsurdShape_ThenSaturatesInsteadOfWrapping) {
  EXPECT_GE(ArrayBytes(Shape(size_t{1} << 40, size_t{1} << 40, 2, CU_AD_FORMAT_FLOAT, 4)), UINT64_MAX - 512);
}

TEST(MipmapBytes, GivenLevels_ThenEachIsCounted) {
  const auto shape = Shape(1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4);
  EXPECT_EQ(MipmapBytes(shape, 1), ArrayBytes(shape));
  EXPECT_EQ(MipmapBytes(shape, 2), (4u << 20) + (1u << 20));
  EXPECT_LT(MipmapBytes(shape, 11), 2 * ArrayBytes(shape));
}

TEST(MipmapBytes, GivenLayers_ThenTheyDoNotShrink) {
  const auto shape = Shape(512, 512, 8, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
  EXPECT_EQ(MipmapBytes(shape, 2), 8u * (512 * 4 * 512 + 256 * 4 * 256));
}

TEST(MipmapBytes, GivenMoreLevelsThanTheShapeHas_ThenOnlyThoseThereAreCount) {
  const auto shape = Shape(64, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4);
  EXPECT_EQ(MipmapBytes(shape, 8), MipmapBytes(shape, 7));
  EXPECT_EQ(MipmapBytes(shape, 1000), MipmapBytes(shape, 7));
  EXPECT_LT(MipmapBytes(shape, 6), MipmapBytes(shape, 7));
}

TEST(MipmapBytes, GivenOneDimension_ThenEachLevelIsAnAllocationUnitAtLeast) {
  const auto shape = Shape(16, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  EXPECT_EQ(MipmapBytes(shape, 5), 5u * 512);
}

TEST(RoundUp, GivenValuesAtTheEnds_ThenNeverWraps) {
  EXPECT_EQ(RoundUp(0, 512), 0u);
  EXPECT_EQ(RoundUp(1, 512), 512u);
  EXPECT_EQ(RoundUp(UINT64_MAX, 512), UINT64_MAX - 511);
}

}  // namespace
}  // namespace hami::vgpu
