// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/array_desc.h"

#include <gtest/gtest.h>

namespace simgpu {
namespace {

CUDA_ARRAY3D_DESCRIPTOR Desc(std::size_t width, std::size_t height, std::size_t depth,
                             CUarray_format format = CU_AD_FORMAT_FLOAT, unsigned channels = 1, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = width;
  desc.Height = height;
  desc.Depth = depth;
  desc.Format = format;
  desc.NumChannels = channels;
  desc.Flags = flags;
  return desc;
}

std::size_t Bytes(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  ArrayLayout layout;
  EXPECT_EQ(LayOut(desc, &layout), CUDA_SUCCESS);
  return layout.bytes;
}

CUresult Verdict(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  ArrayLayout layout;
  return LayOut(desc, &layout);
}

TEST(ArrayDesc, GivenOneDimensionThenOnlyTheRowIsPadded) {
  EXPECT_EQ(Bytes(Desc(1, 0, 0)), 64U);
  EXPECT_EQ(Bytes(Desc(16, 0, 0, CU_AD_FORMAT_FLOAT, 4)), 256U);
}

TEST(ArrayDesc, GivenTwoDimensionsThenRowsComeInEights) {
  EXPECT_EQ(Bytes(Desc(16, 1, 0)), 64U * 8);
  EXPECT_EQ(Bytes(Desc(17, 9, 0)), 128U * 16);
}

TEST(ArrayDesc, GivenLayersThenEachIsASlice) {
  EXPECT_EQ(Bytes(Desc(16, 8, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED)), 64U * 8 * 5);
  EXPECT_EQ(Bytes(Desc(16, 0, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED)), 64U * 5);
}

TEST(ArrayDesc, GivenACompressedFormatThenBlocksOfFourByFourCount) {
  EXPECT_EQ(Bytes(Desc(64, 64, 0, CU_AD_FORMAT_BC1_UNORM)), 16U * 8 * 16);
  EXPECT_EQ(Bytes(Desc(64, 64, 0, CU_AD_FORMAT_BC7_UNORM)), 16U * 16 * 16);
}

TEST(ArrayDesc, GivenWhatTheApiForbidsThenItIsAnError) {
  EXPECT_EQ(Verdict(Desc(0, 0, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(8, 0, 8)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(8, 8, 0, CU_AD_FORMAT_FLOAT, 3)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(131073, 0, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(8, 65537, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(8, 8, 16385)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(8, 8, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(8, 8, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP)), CUDA_SUCCESS);
  EXPECT_EQ(Verdict(Desc(8, 8, 0, CU_AD_FORMAT_NV12)), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Verdict(Desc(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE)), CUDA_SUCCESS);
  EXPECT_EQ(Verdict(Desc(8, 0, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Verdict(Desc(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0x8000)), CUDA_ERROR_INVALID_VALUE);
}

TEST(ArrayDesc, GivenLevelsThenExtentsAreHalvedDownToOneAndLayersStay) {
  const auto level = LevelOf(Desc(10, 3, 4), 2);
  EXPECT_EQ(level.Width, 2U);
  EXPECT_EQ(level.Height, 1U);
  EXPECT_EQ(level.Depth, 1U);
  EXPECT_EQ(LevelOf(Desc(10, 3, 4, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED), 2).Depth, 4U);
  EXPECT_EQ(MaxLevels(Desc(10, 3, 0)), 4U);
  EXPECT_EQ(MaxLevels(Desc(1, 0, 0)), 1U);
  EXPECT_EQ(MaxLevels(Desc(0, 0, 0)), 0U);
}

}  // namespace
}  // namespace simgpu
