// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/fatbin.h"

#include <gmock/gmock.h>

#include "simgpu/image/image_builder.h"

namespace simgpu {
namespace {

using test::Blob;
using test::BlobOf;
using test::BuildFatbin;
using test::FatbinEntry;
using test::Packing;

Blob CubinFor(int sm) {
  test::CubinSpec spec;
  spec.sm = sm;
  spec.kernels = {{"k" + std::to_string(sm), {}, 8, 0, 0, {}}};
  return test::BuildCubin(spec);
}

Blob PtxFor(int sm) {
  const std::string number = std::to_string(sm);
  return BlobOf(".version 8.0\n.target sm_" + number + "\n.address_size 64\n.visible .entry p" + number +
                "() { ret; }\n");
}

// The name of the one kernel that was chosen for a device, or the status.
std::string Chosen(const Blob& file, int device) {
  Image image;
  const ParseStatus status = ParseFatbin(file, Target{device}, &image, nullptr);
  if (status == ParseStatus::kNoBinaryForGpu) return "none";
  if (status != ParseStatus::kOk) return "invalid";
  return image.kernels.size() == 1 ? image.kernels[0].name : "several";
}

TEST(Fatbin, GivenSeveralArchitecturesWhenChosenThenAsTheDriverDoes) {
  const Blob file = BuildFatbin({{false, 75, Packing::kRaw, 64, PtxFor(75)},
                                 {true, 80, Packing::kRaw, 72, CubinFor(80)},
                                 {false, 90, Packing::kRaw, 104, PtxFor(90)},
                                 {true, 86, Packing::kRaw, 96, CubinFor(86)}});
  EXPECT_EQ(Chosen(file, 86), "k86");
  EXPECT_EQ(Chosen(file, 80), "k80");
  EXPECT_EQ(Chosen(file, 89), "k86");  // same major, greatest minor not above
  EXPECT_EQ(Chosen(file, 75), "p75");
  EXPECT_EQ(Chosen(file, 90), "p90");
  EXPECT_EQ(Chosen(file, 100), "p90");  // no cubin of that major: the newest PTX
  EXPECT_EQ(Chosen(file, 70), "none");
  EXPECT_EQ(Chosen(file, 0), "k80");  // any device: the first cubin
}

TEST(Fatbin, GivenCompressedEntriesWhenParsedThenTheyAreUnpacked) {
  for (const Packing packing : {Packing::kRaw, Packing::kLz4, Packing::kZstd}) {
    const Blob file = BuildFatbin({{true, 90, packing, 80, CubinFor(90)}, {false, 75, packing, 64, PtxFor(75)}});
    EXPECT_EQ(Chosen(file, 90), "k90");
    EXPECT_EQ(Chosen(file, 75), "p75");
  }
}

TEST(Fatbin, GivenAnyTruncationWhenParsedThenItIsInvalid) {
  const Blob file = BuildFatbin({{true, 90, Packing::kZstd, 64, CubinFor(90)}});
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(Chosen(Blob(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)), 90), "invalid") << size;
  }
}

TEST(Fatbin, GivenDamagedPackedBytesWhenParsedThenItIsInvalid) {
  for (const Packing packing : {Packing::kLz4, Packing::kZstd}) {
    Blob file = BuildFatbin({{true, 90, packing, 64, CubinFor(90)}});
    for (std::size_t at = 80; at < 100; ++at) file[at] = std::byte{0xff};
    EXPECT_EQ(Chosen(file, 90), "invalid");
  }
}

TEST(Fatbin, GivenHugeUnpackedSize_WhenParsed_ThenRefusedBeforeAllocation) {
  Blob file = BuildFatbin({{true, 90, Packing::kZstd, 64, CubinFor(90)}});
  const std::uint64_t huge = std::uint64_t{1} << 40;
  std::memcpy(file.data() + 16 + 56, &huge, sizeof huge);
  EXPECT_EQ(Chosen(file, 90), "invalid");
}

TEST(Fatbin, GivenEntryHeaderThatIsTooSmallWhenParsedThenItIsInvalid) {
  Blob file = BuildFatbin({{true, 90, Packing::kRaw, 64, CubinFor(90)}});
  const std::uint32_t none = 0;
  std::memcpy(file.data() + 16 + 4, &none, sizeof none);
  EXPECT_EQ(Chosen(file, 90), "invalid");  // and does not loop for ever
}

TEST(Fatbin, GivenOnlyItsBytesWhenAskedForItsLengthThenItIsTheWholeFile) {
  const Blob file = BuildFatbin({{true, 90, Packing::kRaw, 64, CubinFor(90)}});
  test::BlobSource source(file);
  EXPECT_EQ(FatbinBytes(source), file.size());
}

}  // namespace
}  // namespace simgpu
