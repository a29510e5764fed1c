// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/simgpu_text.h"

#include <gmock/gmock.h>

namespace simgpu {
namespace {

using ::testing::HasSubstr;

Image Parsed(std::string_view text) {
  Image image;
  std::string log;
  EXPECT_EQ(ParseSimgpuText(text, Target{90}, &image, &log), ParseStatus::kOk) << log;
  return image;
}

std::string Refused(std::string_view text) {
  Image image;
  std::string log;
  EXPECT_EQ(ParseSimgpuText(text, Target{90}, &image, &log), ParseStatus::kInvalidPtx) << text;
  return log;
}

TEST(SimgpuText, GivenAFullImageWhenParsedThenEverythingIsAsDeclared) {
  const Image image = Parsed(R"(simgpu-image 1
# an example
code 64K
kernel spin
  param 8
  param 4
  param 8
  regs 40          # per thread
  shared 2K
  local 16
  max-threads 256
  cluster 2 1 1
  cost param 0
kernel fill
  param 8
  param 8
  param 1
  cost per-block 20us
  action fill
global counters 1M
global table 8 constant = 0102ff
global number 4 managed = 4d
)");
  EXPECT_EQ(image.code_bytes, 65536u);
  ASSERT_EQ(image.kernels.size(), 2u);
  const KernelInfo& spin = image.kernels[0];
  EXPECT_EQ(spin.params[2].offset, 16u);
  EXPECT_EQ(spin.param_bytes, 24u);
  EXPECT_EQ(spin.registers, 40u);
  EXPECT_EQ(spin.static_shared, 2048u);
  EXPECT_EQ(spin.local_bytes, 16u);
  EXPECT_EQ(spin.max_threads, 256u);
  EXPECT_EQ(spin.required_cluster[0], 2u);
  EXPECT_EQ(spin.cost.kind, CostModel::Kind::kParamTotal);
  EXPECT_EQ(image.kernels[1].cost.sm_nanos, 20'000u);
  EXPECT_EQ(image.kernels[1].action, HostAction::kFill);
  EXPECT_EQ(image.FindGlobal("counters")->size, 1u << 20);
  EXPECT_EQ(image.FindGlobal("table")->space, GlobalInfo::Space::kConstant);
  EXPECT_EQ(image.FindGlobal("table")->init[2], std::byte{0xff});
  EXPECT_EQ(image.FindGlobal("number")->space, GlobalInfo::Space::kManaged);
}

TEST(SimgpuText, GivenMistakesWhenParsedThenTheMessageNamesLineAndCause) {
  EXPECT_THAT(Refused("simgpu-image 2\n"), HasSubstr("line 1"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernell x\n"), HasSubstr("line 2: unknown word 'kernell'"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel\n"), HasSubstr("expected a name"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel k\n cost total 5\n"), HasSubstr("unknown unit in '5'"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel k\n cost param 0\n"), HasSubstr("must be there"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel k\n action copy\n param 8\n"),
              HasSubstr("parameter 1 must have 8 bytes"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel k\n regs 256\n"), HasSubstr("too large"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel k\n param 0\n"), HasSubstr("at least one byte"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel k extra\n"), HasSubstr("unexpected 'extra'"));
  EXPECT_THAT(Refused("simgpu-image 1\nglobal g 1 = 0102\n"), HasSubstr("more initial bytes"));
  EXPECT_THAT(Refused("simgpu-image 1\nglobal g 1 = 0\n"), HasSubstr("pairs"));
  EXPECT_THAT(Refused("simgpu-image 1\nglobal g 99999999999999999999\n"), HasSubstr("expected a number"));
  EXPECT_THAT(Refused("simgpu-image 1\nkernel k\n cost total 18446744073709551615s\n"), HasSubstr("too large"));
}

TEST(SimgpuText, GivenAnArchitectureWhenLoadedElsewhereThenThereIsNoBinary) {
  Image image;
  EXPECT_EQ(ParseSimgpuText("simgpu-image 1\narch 75\n", Target{90}, &image, nullptr), ParseStatus::kNoBinaryForGpu);
  EXPECT_EQ(ParseSimgpuText("simgpu-image 1\narch 90\n", Target{90}, &image, nullptr), ParseStatus::kOk);
}

}  // namespace
}  // namespace simgpu
