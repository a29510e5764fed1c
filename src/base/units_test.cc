// SPDX-License-Identifier: Apache-2.0

#include "base/units.h"

#include <gtest/gtest.h>

namespace hami::base {
namespace {

struct SizeCase {
  const char* text;
  std::uint64_t bytes;  // 0: refused
};

class Sizes : public testing::TestWithParam<SizeCase> {};

TEST_P(Sizes, GivenText_WhenParsed_ThenExactBytesOrRefusal) {
  const auto parsed = ParseBytes(GetParam().text);
  if (GetParam().bytes == 0) {
    EXPECT_FALSE(parsed) << GetParam().text;
  } else {
    ASSERT_TRUE(parsed) << GetParam().text;
    EXPECT_EQ(Count(*parsed), GetParam().bytes) << GetParam().text;
  }
}

INSTANTIATE_TEST_SUITE_P(Understood, Sizes,
                         testing::Values(SizeCase{"1", 1}, SizeCase{"4096", 4096}, SizeCase{"17b", 17},
                                         SizeCase{"3g", 3 * kGiB}, SizeCase{"3G", 3 * kGiB}, SizeCase{"3gb", 3 * kGiB},
                                         SizeCase{"3GB", 3 * kGiB}, SizeCase{"3GiB", 3 * kGiB},
                                         SizeCase{"3Gi", 3 * kGiB}, SizeCase{"512m", 512 * kMiB},
                                         SizeCase{"512MiB", 512 * kMiB}, SizeCase{"64k", 64 * kKiB},
                                         SizeCase{" 3 g ", 3 * kGiB}, SizeCase{"1.5g", 3 * kGiB / 2},
                                         SizeCase{"0.5m", kMiB / 2}, SizeCase{"0.1k", 102}, SizeCase{"0x1000", 4096},
                                         SizeCase{"010g", 10 * kGiB},
                                         SizeCase{"18446744073709551615", 18446744073709551615ULL},
                                         SizeCase{"17179869183g", 17179869183ULL * kGiB}));

INSTANTIATE_TEST_SUITE_P(Refused, Sizes,
                         testing::Values(SizeCase{"", 0}, SizeCase{"0", 0}, SizeCase{"0g", 0}, SizeCase{"0.0g", 0},
                                         SizeCase{"g", 0}, SizeCase{"-3g", 0}, SizeCase{"+3g", 0}, SizeCase{"3gg", 0},
                                         SizeCase{"3t", 0}, SizeCase{"3g x", 0}, SizeCase{"1.g", 0}, SizeCase{".5g", 0},
                                         SizeCase{"1.2.3g", 0}, SizeCase{"0x", 0}, SizeCase{"0xg", 0},
                                         SizeCase{"0x10g", 0}, SizeCase{"30%", 0}, SizeCase{"three", 0},
                                         SizeCase{"18446744073709551616", 0}, SizeCase{"17179869184g", 0},
                                         SizeCase{"1.1234567890g", 0}));

TEST(Percentages, GivenText_WhenParsed_ThenOneToHundredOrRefusal) {
  EXPECT_EQ(ParsePercent("30").value(), 30u);
  EXPECT_EQ(ParsePercent("30%").value(), 30u);
  EXPECT_EQ(ParsePercent("1").value(), 1u);
  EXPECT_EQ(ParsePercent("100 %").value(), 100u);
  for (const char* text : {"", "0", "101", "-1", "30%%", "3.5", "x", "%"}) EXPECT_FALSE(ParsePercent(text)) << text;
}

TEST(Portions, GivenPercentSign_WhenParsed_ThenPercentElseBytes) {
  EXPECT_EQ(std::get<Percent>(ParsePortion("25%").value()).value, 25u);
  EXPECT_EQ(std::get<Bytes>(ParsePortion("25m").value()), Bytes{25 * kMiB});
  EXPECT_FALSE(ParsePortion("200%"));
}

TEST(Formatting, GivenBytes_WhenFormatted_ThenRoundedDownToOneDecimal) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(kMiB), "1 MiB");
  EXPECT_EQ(FormatBytes(3 * kGiB / 2), "1.5 GiB");
  EXPECT_EQ(FormatBytes(3 * kGiB - 1), "2.9 GiB");
  EXPECT_EQ(FormatBytes(80 * kGiB), "80 GiB");
}

TEST(Formatting, GivenSeconds_WhenFormatted_ThenTwoLargestUnits) {
  EXPECT_EQ(FormatAge(-5), "0s");
  EXPECT_EQ(FormatAge(59), "59s");
  EXPECT_EQ(FormatAge(185), "3m05s");
  EXPECT_EQ(FormatAge(7800), "2h10m");
  EXPECT_EQ(FormatAge(4 * 86400 + 3 * 3600), "4d03h");
}

}  // namespace
}  // namespace hami::base
