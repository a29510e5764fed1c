// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/sparse_layout.h"

#include <gtest/gtest.h>

namespace simgpu {
namespace {

CUDA_ARRAY3D_DESCRIPTOR Desc(std::size_t width, std::size_t height, std::size_t depth, unsigned channels = 1,
                             CUarray_format format = CU_AD_FORMAT_FLOAT, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = width;
  desc.Height = height;
  desc.Depth = depth;
  desc.Format = format;
  desc.NumChannels = channels;
  desc.Flags = CUDA_ARRAY3D_SPARSE | flags;
  return desc;
}

SparseLayout LayoutOf(const CUDA_ARRAY3D_DESCRIPTOR& desc, unsigned levels = 1, bool mipmap = false) {
  SparseLayout layout;
  EXPECT_EQ(LayOutTiles(desc, levels, mipmap, &layout), CUDA_SUCCESS);
  return layout;
}

std::array<unsigned, 3> TileOf(const CUDA_ARRAY3D_DESCRIPTOR& desc) { return LayoutOf(desc).tile; }

using Tile = std::array<unsigned, 3>;

TEST(SparseLayout, GivenFormatsThenEveryTileIs64KiBOfTheStandardShape) {
  EXPECT_EQ(TileOf(Desc(512, 512, 0, 1, CU_AD_FORMAT_UNSIGNED_INT8)), (Tile{256, 256, 1}));
  EXPECT_EQ(TileOf(Desc(512, 512, 0, 1, CU_AD_FORMAT_HALF)), (Tile{256, 128, 1}));
  EXPECT_EQ(TileOf(Desc(512, 512, 0, 1)), (Tile{128, 128, 1}));
  EXPECT_EQ(TileOf(Desc(512, 512, 0, 2)), (Tile{128, 64, 1}));
  EXPECT_EQ(TileOf(Desc(512, 512, 0, 4)), (Tile{64, 64, 1}));
  EXPECT_EQ(TileOf(Desc(512, 512, 0, 1, CU_AD_FORMAT_BC1_UNORM)), (Tile{512, 256, 1}));
  EXPECT_EQ(TileOf(Desc(512, 512, 0, 1, CU_AD_FORMAT_BC7_UNORM)), (Tile{256, 256, 1}));
  EXPECT_EQ(TileOf(Desc(64, 64, 64, 1, CU_AD_FORMAT_UNSIGNED_INT8)), (Tile{64, 32, 32}));
  EXPECT_EQ(TileOf(Desc(64, 64, 64, 1)), (Tile{32, 32, 16}));
  EXPECT_EQ(TileOf(Desc(64, 64, 64, 4)), (Tile{16, 16, 16}));
  EXPECT_EQ(TileOf(Desc(512, 512, 3, 1, CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_LAYERED)), (Tile{128, 128, 1}));
}

TEST(SparseLayout, GivenAMipmapThenWhatIsSmallerThanATileIsTheTailOfEachLayer) {
  const auto properties = PropertiesOf(LayoutOf(Desc(512, 512, 0), 10, true));
  EXPECT_EQ(properties.miptailFirstLevel, 3U) << "512, 256, 128 hold tiles of 128";
  EXPECT_EQ(properties.miptailSize, kTileBytes) << "64x64 and less are some 21 KiB";
  EXPECT_EQ(properties.flags, 0U);
  const auto layered = LayoutOf(Desc(512, 512, 4, 1, CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_LAYERED), 10, true);
  EXPECT_EQ(layered.tail_bytes, kTileBytes);
  const auto plain = PropertiesOf(LayoutOf(Desc(64, 64, 0)));
  EXPECT_EQ(plain.miptailFirstLevel, 0U);
  EXPECT_EQ(plain.miptailSize, 0U) << "an array that is no mipmapped one has none";
}

CUarrayMapInfo Part(unsigned x, unsigned y, unsigned width, unsigned height, unsigned level = 0, unsigned layer = 0) {
  CUarrayMapInfo entry{};
  entry.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  entry.subresource.sparseLevel = {level, layer, x, y, 0, width, height, 1};
  return entry;
}

CUarrayMapInfo Tail(unsigned layer, unsigned long long offset, unsigned long long size) {
  CUarrayMapInfo entry{};
  entry.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  entry.subresource.miptail = {layer, offset, size};
  return entry;
}

std::size_t BytesOf(const SparseLayout& layout, const CUarrayMapInfo& entry) {
  TileBox box;
  return BoxOf(layout, entry, &box) == CUDA_SUCCESS ? box.bytes : 0;
}

TEST(SparseLayout, GivenPartsThenTheyMustLieOnTilesAndMayEndAtTheEdge) {
  const SparseLayout layout = LayoutOf(Desc(300, 256, 0));
  EXPECT_EQ(BytesOf(layout, Part(0, 0, 128, 128)), kTileBytes);
  EXPECT_EQ(BytesOf(layout, Part(128, 0, 128, 256)), 2 * kTileBytes);
  EXPECT_EQ(BytesOf(layout, Part(256, 0, 44, 128)), kTileBytes) << "up to the edge";
  EXPECT_EQ(BytesOf(layout, Part(256, 0, 128, 128)), kTileBytes) << "or the whole tile there";
  EXPECT_EQ(BytesOf(layout, Part(256, 0, 43, 128)), 0U);
  EXPECT_EQ(BytesOf(layout, Part(64, 0, 128, 128)), 0U);
  EXPECT_EQ(BytesOf(layout, Part(0, 0, 100, 128)), 0U);
  EXPECT_EQ(BytesOf(layout, Part(384, 0, 128, 128)), 0U) << "outside";
  EXPECT_EQ(BytesOf(layout, Part(0, 0xffffff80, 128, 128)), 0U) << "no number wraps around";
  EXPECT_EQ(BytesOf(layout, Part(0, 0, 0, 128)), 0U);
  EXPECT_EQ(BytesOf(layout, Part(0, 0, 128, 128, 1)), 0U) << "no such level";
  EXPECT_EQ(BytesOf(layout, Part(0, 0, 128, 128, 0, 1)), 0U) << "no such layer";
  CUarrayMapInfo deep = Part(0, 0, 128, 128);
  deep.subresource.sparseLevel.extentDepth = 2;
  EXPECT_EQ(BytesOf(layout, deep), 0U);
  EXPECT_EQ(BytesOf(layout, Tail(0, 0, kTileBytes)), 0U) << "no tail";
}

TEST(SparseLayout, GivenMipmap_ThenTailMappedInWholeTilesAndLevelsAreNot) {
  const SparseLayout layout =
      LayoutOf(Desc(256, 256, 2, 4, CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_LAYERED), 9, true);  // tiles of 64, tail from 32
  EXPECT_EQ(layout.first_tail_level, 3U);
  EXPECT_EQ(layout.tail_bytes, kTileBytes);
  EXPECT_EQ(BytesOf(layout, Tail(1, 0, kTileBytes)), kTileBytes);
  EXPECT_EQ(BytesOf(layout, Tail(2, 0, kTileBytes)), 0U);
  EXPECT_EQ(BytesOf(layout, Tail(0, 0, 2 * kTileBytes)), 0U);
  EXPECT_EQ(BytesOf(layout, Tail(0, kTileBytes, kTileBytes)), 0U);
  EXPECT_EQ(BytesOf(layout, Tail(0, 0, 100)), 0U);
  EXPECT_EQ(BytesOf(layout, Part(0, 0, 64, 64, 2, 1)), kTileBytes);
  EXPECT_EQ(BytesOf(layout, Part(0, 0, 32, 32, 3, 0)), 0U) << "that level lies in the tail";
}

TEST(SparseLayout, GivenDeferredMappingThenTheWholeIsMappedWhateverPartIsNamed) {
  CUDA_ARRAY3D_DESCRIPTOR desc = Desc(100, 100, 0);
  desc.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
  EXPECT_EQ(BytesOf(LayoutOf(desc), Part(1, 2, 3, 4, 5, 6)), kTileBytes);
  desc.Width = 256;
  EXPECT_EQ(BytesOf(LayoutOf(desc), Part(0, 0, 0, 0)), 2 * kTileBytes) << "104 rows of 1 KiB";
}

TEST(SparseLayout, GivenABoxThenItContainsItsTilesOnly) {
  TileBox box;
  box.level = 1;
  box.layer = 2;
  box.first = {4, 0, 0};
  box.count = {2, 3, 1};
  EXPECT_TRUE(box.Contains(1, 2, {5, 2, 0}));
  EXPECT_FALSE(box.Contains(1, 2, {3, 0, 0}));
  EXPECT_FALSE(box.Contains(1, 2, {6, 0, 0}));
  EXPECT_FALSE(box.Contains(0, 2, {5, 2, 0}));
  EXPECT_FALSE(box.Contains(1, 1, {5, 2, 0}));
}

}  // namespace
}  // namespace simgpu
