// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/ptx.h"

#include <gmock/gmock.h>

#include "simgpu/image/ptx_lexer.h"

namespace simgpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MATCHER_P2(ParamIs, offset, size, "") { return arg.offset == unsigned(offset) && arg.size == unsigned(size); }

constexpr std::string_view kHead = ".version 8.4\n.target sm_90, debug\n.address_size 64\n";

Image Parsed(const std::string& body) {
  Image image;
  std::string log;
  EXPECT_EQ(ParsePtx(std::string(kHead) + body, &image, &log), ParseStatus::kOk) << log;
  return image;
}

std::string Refused(const std::string& text) {
  Image image;
  std::string log;
  EXPECT_EQ(ParsePtx(text, &image, &log), ParseStatus::kInvalidPtx) << text;
  return log;
}

std::vector<unsigned> Bytes(const Image& image, std::string_view name) {
  std::vector<unsigned> bytes;
  for (const std::byte b : image.FindGlobal(name)->init) bytes.push_back(std::to_integer<unsigned>(b));
  return bytes;
}

TEST(Ptx, GivenHeaderWhenParsedThenVersionAndTargetAreKnown) {
  const Image image = Parsed("");
  EXPECT_EQ(image.ptx_version, 84);
  EXPECT_EQ(image.compute_capability, 90);
  EXPECT_EQ(image.kind, ImageKind::kPtx);
}

TEST(Ptx, GivenEntryWhenParsedThenParametersHaveNaturalOffsets) {
  const Image image = Parsed(R"(
    .visible .entry saxpy(
      .param .f32 a, .param .u64 .ptr .global .align 16 x,
      .param .align 8 .b8 big[48], .param .u8 c, .param .u16 s, .param .b64 out
    ) .maxntid 128, 2, 1 .minnctapersm 2 .reqnctapercluster 2, 1, 1 .pragma "nounroll";
    { .reg .b32 %r<5>; ld.param.u64 %rd1, [x]; @%p1 bra $L__BB0_2; ret; })");
  ASSERT_EQ(image.kernels.size(), 1u);
  const KernelInfo& kernel = image.kernels[0];
  EXPECT_THAT(kernel.params, ElementsAre(ParamIs(0, 4), ParamIs(8, 8), ParamIs(16, 48), ParamIs(64, 1), ParamIs(66, 2),
                                         ParamIs(72, 8)));
  EXPECT_EQ(kernel.param_bytes, 80u);
  EXPECT_EQ(kernel.max_threads, 256u);
  EXPECT_THAT(kernel.required_cluster, ElementsAre(2, 1, 1));
}

TEST(Ptx, GivenSharedAndLocalVariables_ThenOnlyDeclarationsCount) {
  const Image image = Parsed(R"(
    .shared .align 4 .b8 used[100]; .shared .b32 unused[1000]; .extern .shared .align 16 .b8 dynamic[];
    .entry k() {
      .local .align 16 .b8 __local_depot0[48];
      .shared .align 8 .b8 tile[1200];
      .loc 1 5 3
      .shared .f64 one;
      ld.local.u32 %r1, [%rd1]; ld.shared.u32 %r2, [used]; st.volatile.shared.u32 [used], %r2; ld.shared.u32 %r3, [dynamic];
      { .shared .b8 inner[4]; }
      L1: .shared .b8 after_label[4];
      ret;
    }
    .entry other() { ret; })");
  EXPECT_EQ(image.kernels[0].local_bytes, 48u);
  // tile 1200, one 8, used 100, inner 4, after_label 4
  EXPECT_EQ(image.kernels[0].static_shared, 1200u + 8u + 100u + 4u + 4u);
  EXPECT_EQ(image.kernels[1].static_shared, 0u);
}

TEST(Ptx, GivenVariablesWhenParsedThenInitialBytesAreLittleEndian) {
  const Image image = Parsed(R"(
    .visible .global .align 4 .b8 counters[16] = {1, 0, 0, 0, 2};
    .global .attribute(.managed) .align 4 .u32 shared_number = 77;
    .const .align 2 .u16 words[] = {0x0102, 3};
    .global .s8 tag = -85;
    .global .f32 half = 0f3F000000;
    .global .f64 minus = -0.5;
    .global .align 8 .u64 pointers[3] = {generic(counters)+8, 97, counters};
    .global .b8 mask[2] = {0xFF(counters), 7};
    .global .u8 rows[2][3] = {{1}, {4, 5, 6}};
    .global .v4 .f32 vector;
    .extern .global .u32 elsewhere;
    .global .u32 a, b = 5;)");
  EXPECT_THAT(Bytes(image, "counters"), ElementsAre(1, 0, 0, 0, 2));
  EXPECT_EQ(image.FindGlobal("counters")->size, 16u);
  EXPECT_EQ(image.FindGlobal("shared_number")->space, GlobalInfo::Space::kManaged);
  EXPECT_THAT(Bytes(image, "shared_number"), ElementsAre(77, 0, 0, 0));
  EXPECT_EQ(image.FindGlobal("words")->space, GlobalInfo::Space::kConstant);
  EXPECT_THAT(Bytes(image, "words"), ElementsAre(2, 1, 3, 0));
  EXPECT_EQ(image.FindGlobal("words")->size, 4u);
  EXPECT_THAT(Bytes(image, "tag"), ElementsAre(0xab));
  EXPECT_THAT(Bytes(image, "half"), ElementsAre(0, 0, 0, 0x3f));
  EXPECT_THAT(Bytes(image, "minus"), ElementsAre(0, 0, 0, 0, 0, 0, 0xe0, 0xbf));
  EXPECT_EQ(image.FindGlobal("pointers")->size, 24u);
  EXPECT_EQ(Bytes(image, "pointers")[8], 97u);
  EXPECT_THAT(Bytes(image, "mask"), ElementsAre(0, 7));
  EXPECT_THAT(Bytes(image, "rows"), ElementsAre(1, 0, 0, 4, 5, 6));
  EXPECT_EQ(image.FindGlobal("vector")->size, 16u);
  EXPECT_EQ(image.FindGlobal("elsewhere"), nullptr);
  EXPECT_EQ(image.FindGlobal("a")->size, 4u);
  EXPECT_THAT(Bytes(image, "b"), ElementsAre(5, 0, 0, 0));
}

TEST(Ptx, GivenEverythingElseOfAModuleWhenParsedThenItIsSkipped) {
  const Image image = Parsed(R"(
    .file 1 "x.cu", 1, 2
    .func (.param .b32 r) helper(.param .b64 a) { st.param.b32 [r], 0; ret; }
    .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b) ;
    .visible .entry declared_only();
    .pragma "nounroll"; .alias f, g;
    .section .debug_str { .b8 1, 2 info: .b32 3 }
    .weak .entry w() { { // callseq 0, 0
      call.uni (r), vprintf, (p0, p1); } ret; })");
  ASSERT_EQ(image.kernels.size(), 1u);
  EXPECT_EQ(image.kernels[0].name, "w");
}

TEST(Ptx, GivenMistakesWhenParsedThenTheMessageNamesLineAndCause) {
  const std::string head(kHead);
  EXPECT_THAT(Refused("hello"), HasSubstr("line 1: expected .version"));
  EXPECT_THAT(Refused(".version 8.0\n.address_size 64\n"), HasSubstr("no .target"));
  EXPECT_THAT(Refused(head + ".visible .entry k(.param .u99 a) { }"), HasSubstr("unknown type .u99"));
  EXPECT_THAT(Refused(head + ".entry k() { ret;"), HasSubstr("expected }"));
  EXPECT_THAT(Refused(head + ".global .u32 x = {1, 2};"), HasSubstr("more initial values"));
  EXPECT_THAT(Refused(head + ".global .u32 x"), HasSubstr("expected ;"));
  EXPECT_THAT(Refused(head + "garbage"), HasSubstr("unexpected 'garbage'"));
  EXPECT_THAT(Refused(head + ".global .b8 x[18446744073709551615][2];"), HasSubstr("too large"));
  EXPECT_THAT(Refused(head + ".global .align 3 .b8 x;"), HasSubstr("bad alignment"));
  EXPECT_THAT(Refused(head + ".global .b8 x[2][1000000000] = {{1}, {2}};"), HasSubstr("too far apart"));
  EXPECT_THAT(Refused(head + ".global .b8 x[][1000000000000] = {{1}, {}};"), HasSubstr(""));
}

TEST(Ptx, GivenBeginningsWhenDetectedThenOnlyPtxLooksLikePtx) {
  EXPECT_TRUE(LooksLikePtx("\n\n\n\n// made by hand\n/* x */ .version 8.0"));
  EXPECT_FALSE(LooksLikePtx("version 8.0"));
  EXPECT_FALSE(LooksLikePtx(""));
}

TEST(PtxNumber, GivenLiteralsWhenReadThenTheirBitsAreKnown) {
  EXPECT_EQ(ParsePtxNumber("077")->bits, 63u);
  EXPECT_EQ(ParsePtxNumber("0b101U")->bits, 5u);
  EXPECT_EQ(ParsePtxNumber("0xFFFFFFFFFFFFFFFF")->bits, ~std::uint64_t{0});
  EXPECT_EQ(ParsePtxNumber("0d3FF0000000000000")->real, 8);
  EXPECT_FALSE(ParsePtxNumber("0f12").has_value());
  EXPECT_FALSE(ParsePtxNumber("18446744073709551616").has_value());
  EXPECT_FALSE(ParsePtxNumber("12abc").has_value());
}

}  // namespace
}  // namespace simgpu
