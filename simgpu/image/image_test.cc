// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/image.h"

#include <gmock/gmock.h>

#include "simgpu/image/image_builder.h"

namespace simgpu {
namespace {

using test::Blob;
using test::BlobOf;

constexpr std::string_view kPtx = "\n\n\n\n.version 8.0\n.target sm_75\n.entry p() { ret; }\n";
constexpr std::string_view kText = "simgpu-image 1\nkernel t\n";

Blob SomeCubin() {
  test::CubinSpec spec;
  spec.kernels = {{"c", {}, 8, 0, 0, {}}, {"d", {}, 8, 0, 0, {}}};
  spec.variables = {{"g", ".nv.global", 64, {}, false}};
  return test::BuildCubin(spec);
}

TEST(Image, GivenFirstBytesWhenDetectedThenTheKindIsKnown) {
  EXPECT_EQ(DetectKind(BlobOf("\xb1\x43\x62\x46")), ImageKind::kFatbinWrapper);
  EXPECT_EQ(DetectKind(test::BuildFatbin({})), ImageKind::kFatbin);
  EXPECT_EQ(DetectKind(SomeCubin()), ImageKind::kElf);
  EXPECT_EQ(DetectKind(BlobOf(kPtx)), ImageKind::kPtx);
  EXPECT_EQ(DetectKind(BlobOf(kText)), ImageKind::kSimgpuText);
  EXPECT_EQ(DetectKind(BlobOf("hello, world")), ImageKind::kUnknown);
  EXPECT_EQ(DetectKind({}), ImageKind::kUnknown);
}

TEST(Image, GivenMoreBytesBehind_WhenLengthAsked_ThenOnlyImageCounts) {
  const std::pair<Blob, std::size_t> cases[] = {
      {SomeCubin(), SomeCubin().size()},
      {test::BuildFatbin({{true, 90, test::Packing::kRaw, 64, SomeCubin()}}),
       16 + 64 + (SomeCubin().size() + 7) / 8 * 8},
      {BlobOf(kPtx), kPtx.size()},
      {BlobOf(kText), kText.size()},
  };
  for (const auto& [image, size] : cases) {
    Blob longer = image;
    longer.resize(longer.size() + 1000);
    test::BlobSource source(longer);
    EXPECT_EQ(DeclaredBytes(source), size);
  }
}

TEST(Image, GivenTextWithoutNulWhenAskedForTheLengthThenThereIsNone) {
  const Blob text = BlobOf(kPtx);
  test::BlobSource source(text);
  EXPECT_EQ(DeclaredBytes(source), std::nullopt);
}

TEST(Image, GivenLongTextWhenAskedForTheLengthThenItsNulIsFound) {
  std::string text(kPtx);
  text += std::string(200'000, ' ');
  Blob blob = BlobOf(text);
  blob.push_back(std::byte{0});
  test::BlobSource source(blob);
  EXPECT_EQ(DeclaredBytes(source), text.size());
}

TEST(Image, GivenBareCubinOfAnotherArchitecture_WhenParsed_ThenNoBinary) {
  Image image;
  EXPECT_EQ(ParseImage(SomeCubin(), Target{75}, &image), ParseStatus::kNoBinaryForGpu);
  EXPECT_EQ(ParseImage(SomeCubin(), Target{90}, &image), ParseStatus::kOk);
  EXPECT_EQ(ParseImage(SomeCubin(), Target{}, &image), ParseStatus::kOk);
}

TEST(Image, GivenPtxForANewerDeviceWhenParsedThenItIsInvalid) {
  Image image;
  std::string log;
  EXPECT_EQ(ParseImage(BlobOf(kPtx), Target{70}, &image, &log), ParseStatus::kInvalidPtx);
  EXPECT_FALSE(log.empty());
  EXPECT_EQ(ParseImage(BlobOf(kPtx), Target{90}, &image), ParseStatus::kOk);
}

TEST(Image, GivenAWrapperOrNoiseWhenParsedThenItIsInvalid) {
  Image image;
  EXPECT_EQ(ParseImage(BlobOf("\xb1\x43\x62\x46 and its pointers"), Target{}, &image), ParseStatus::kInvalidImage);
  EXPECT_EQ(ParseImage(BlobOf("hello"), Target{}, &image), ParseStatus::kInvalidImage);
}

TEST(Image, GivenOneNameTwiceWhenMergedThenTheFirstStays) {
  Image merged;
  Image first;
  Image second;
  ASSERT_EQ(ParseImage(BlobOf("simgpu-image 1\nkernel k\n regs 1\nglobal g 4\n"), Target{}, &first), ParseStatus::kOk);
  ASSERT_EQ(ParseImage(BlobOf("simgpu-image 1\nkernel k\n regs 2\nkernel l\nglobal g 8\n"), Target{}, &second),
            ParseStatus::kOk);
  MergeImage(std::move(first), &merged);
  MergeImage(std::move(second), &merged);
  ASSERT_EQ(merged.kernels.size(), 2u);
  EXPECT_EQ(merged.FindKernel("k")->registers, 1u);
  EXPECT_EQ(merged.FindGlobal("g")->size, 4u);
  EXPECT_EQ(merged.FindKernel("none"), nullptr);
}

}  // namespace
}  // namespace simgpu
