// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/cubin.h"

#include <gmock/gmock.h>

#include "simgpu/image/cubin_writer.h"
#include "simgpu/image/image_builder.h"

namespace simgpu {
namespace {

using test::Blob;
using test::BlobOf;
using test::BuildCubin;
using test::CubinSpec;
using ::testing::ElementsAre;

MATCHER_P2(ParamIs, offset, size, "") { return arg.offset == unsigned(offset) && arg.size == unsigned(size); }

CubinSpec Example() {
  CubinSpec spec;
  spec.kernels = {{"tile", {{0, 48}, {48, 1}, {50, 2}, {56, 8}}, 28, 48, 1200 + 1024, {128, 2, 1}},
                  {"nothing", {}, 4, 0, 1024, {}}};
  spec.variables = {{"number", ".nv.global.init", 4, BlobOf("\x4d\0\0\0"), true},
                    {"tag", ".nv.global.init", 1, BlobOf("\xab"), false},
                    {"zeroed", ".nv.global", 4000, {}, false},
                    {"table", ".nv.constant3", 3, BlobOf("abc"), false}};
  // A string literal stops at its NUL.
  spec.variables[0].init.resize(4);
  return spec;
}

Image Parsed(const Blob& file) {
  Image image;
  EXPECT_EQ(ParseCubin(file, &image), ParseStatus::kOk);
  return image;
}

TEST(Cubin, GivenCurrentGenerationWhenParsedThenKernelsAreAsDeclared) {
  const Image image = Parsed(BuildCubin(Example()));
  EXPECT_EQ(image.compute_capability, 90);
  ASSERT_EQ(image.kernels.size(), 2u);
  const KernelInfo& tile = image.kernels[0];
  EXPECT_EQ(tile.name, "tile");
  EXPECT_THAT(tile.params, ElementsAre(ParamIs(0, 48), ParamIs(48, 1), ParamIs(50, 2), ParamIs(56, 8)));
  EXPECT_EQ(tile.param_bytes, 64u);
  EXPECT_EQ(tile.registers, 28u);
  EXPECT_EQ(tile.local_bytes, 48u);
  EXPECT_EQ(tile.static_shared, 1200u);
  EXPECT_EQ(tile.max_threads, 256u);
  EXPECT_EQ(image.kernels[1].static_shared, 0u);
  EXPECT_TRUE(image.kernels[1].params.empty());
}

TEST(Cubin, GivenVariablesWhenParsedThenSpaceSizeAndInitialBytesAreKnown) {
  const Image image = Parsed(BuildCubin(Example()));
  ASSERT_EQ(image.globals.size(), 4u);
  EXPECT_EQ(image.FindGlobal("number")->space, GlobalInfo::Space::kManaged);
  EXPECT_EQ(image.FindGlobal("number")->init[0], std::byte{0x4d});
  EXPECT_EQ(image.FindGlobal("tag")->init, BlobOf("\xab"));
  EXPECT_EQ(image.FindGlobal("tag")->space, GlobalInfo::Space::kDevice);
  EXPECT_EQ(image.FindGlobal("zeroed")->size, 4000u);
  EXPECT_TRUE(image.FindGlobal("zeroed")->init.empty());
  EXPECT_EQ(image.FindGlobal("table")->space, GlobalInfo::Space::kConstant);
  EXPECT_EQ(image.FindGlobal("table")->init, BlobOf("abc"));
}

TEST(Cubin, GivenOldGenerationWhenParsedThenArchitectureIsInTheLowByte) {
  CubinSpec spec = Example();
  spec.old_generation = true;
  spec.sm = 75;
  const Image image = Parsed(BuildCubin(spec));
  EXPECT_EQ(image.compute_capability, 75);
  // Before 8.0 nothing is reserved.
  EXPECT_EQ(image.kernels[0].static_shared, 1200u + 1024u);
}

TEST(Cubin, GivenRelocatable_WhenParsed_ThenNoReserveAndItsObjectsCount) {
  CubinSpec spec = Example();
  spec.relocatable = true;
  const Image image = Parsed(BuildCubin(spec));
  EXPECT_EQ(image.kernels[0].static_shared, 1200u + 1024u);
  EXPECT_EQ(image.globals.size(), 4u);
}

TEST(Cubin, GivenWideParameterRecords_WhenParsed_ThenLargeOnesAreKnown) {
  CubinSpec spec;
  spec.wide_params = true;
  spec.kernels = {{"huge", {{0, 20000}, {20000, 4}, {20008, 8}}, 9, 0, 0, {}}};
  const Image image = Parsed(BuildCubin(spec));
  EXPECT_THAT(image.kernels[0].params, ElementsAre(ParamIs(0, 20000), ParamIs(20000, 4), ParamIs(20008, 8)));
}

TEST(Cubin, GivenOverlappingParametersWhenParsedThenItIsInvalid) {
  CubinSpec spec = Example();
  spec.kernels[0].params[1].offset = 40;
  Image image;
  EXPECT_EQ(ParseCubin(BuildCubin(spec), &image), ParseStatus::kInvalidImage);
}

TEST(Cubin, GivenAnyTruncation_WhenParsed_ThenInvalidAndNoReadBeyond) {
  const Blob file = BuildCubin(Example());
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Blob cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    Image image;
    EXPECT_EQ(ParseCubin(cut, &image), ParseStatus::kInvalidImage) << size;
  }
}

TEST(Cubin, GivenForeignElfWhenParsedThenItIsInvalid) {
  Blob file = BuildCubin(Example());
  file[18] = std::byte{62};  // x86-64
  Image image;
  EXPECT_EQ(ParseCubin(file, &image), ParseStatus::kInvalidImage);
}

TEST(Cubin, GivenAllSymbolsAtOneLongName_WhenParsed_ThenNoLargeImage) {
  CubinSpec spec;
  for (int i = 0; i < 4000; ++i) spec.variables.push_back({std::string(4000, 'x'), ".nv.global", 4, {}, false});
  spec.one_name = true;
  const Blob file = BuildCubin(spec);
  ASSERT_LT(file.size(), 200'000u);
  Image image;
  EXPECT_EQ(ParseCubin(file, &image), ParseStatus::kInvalidImage);
}

TEST(Cubin, GivenOnlyItsBytesWhenAskedForItsLengthThenItIsTheWholeFile) {
  const Blob file = BuildCubin(Example());
  test::BlobSource source(file);
  EXPECT_EQ(CubinBytes(source), file.size());
}

TEST(Cubin, GivenTablesThatLieWhenAskedForItsLengthThenThereIsNone) {
  Blob file = BuildCubin(Example());
  const std::uint64_t far = std::uint64_t{1} << 60;
  std::memcpy(file.data() + 40, &far, sizeof far);
  test::BlobSource source(file);
  EXPECT_EQ(CubinBytes(source), std::nullopt);
}

TEST(Cubin, GivenDevicesWhenMatchedThenMajorIsTheSameAndMinorNotAbove) {
  EXPECT_TRUE(CubinRunsOn(80, 86));
  EXPECT_TRUE(CubinRunsOn(90, 90));
  EXPECT_FALSE(CubinRunsOn(86, 80));
  EXPECT_FALSE(CubinRunsOn(80, 90));
  EXPECT_TRUE(CubinRunsOn(75, 0));
}

TEST(CubinWriter, GivenImageWhenWrittenThenItReadsBackTheSame) {
  Image image = Parsed(BuildCubin(Example()));
  image.kernels[0].cost = {CostModel::Kind::kParamTotal, 0, 3};
  image.kernels[0].required_cluster = {2, 1, 1};
  image.kernels[1].cost = {CostModel::Kind::kPerBlock, 12345, 0};
  image.kernels[1].action = HostAction::kFill;
  const Image back = Parsed(WriteCubin(image));
  ASSERT_EQ(back.kernels.size(), image.kernels.size());
  for (std::size_t i = 0; i < back.kernels.size(); ++i) {
    const KernelInfo& a = image.kernels[i];
    const KernelInfo& b = back.kernels[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.params.size(), b.params.size());
    EXPECT_EQ(a.param_bytes, b.param_bytes);
    EXPECT_EQ(a.registers, b.registers);
    EXPECT_EQ(a.static_shared, b.static_shared);
    EXPECT_EQ(a.local_bytes, b.local_bytes);
    EXPECT_EQ(a.max_threads, b.max_threads);
    EXPECT_EQ(a.required_cluster, b.required_cluster);
    EXPECT_EQ(a.cost.kind, b.cost.kind);
    EXPECT_EQ(a.cost.sm_nanos, b.cost.sm_nanos);
    EXPECT_EQ(a.cost.param, b.cost.param);
    EXPECT_EQ(a.action, b.action);
  }
  ASSERT_EQ(back.globals.size(), image.globals.size());
  for (const GlobalInfo& a : image.globals) {
    const GlobalInfo* b = back.FindGlobal(a.name);
    ASSERT_NE(b, nullptr) << a.name;
    EXPECT_EQ(a.size, b->size);
    EXPECT_EQ(a.space, b->space);
    EXPECT_EQ(a.init, b->init);
  }
  EXPECT_EQ(back.compute_capability, 90);
}

}  // namespace
}  // namespace simgpu
