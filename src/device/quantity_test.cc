// SPDX-License-Identifier: Apache-2.0

#include "device/quantity.h"

#include <gtest/gtest.h>

#include <limits>

namespace hami::device {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Quantity, GivenWholeNumbersWithAnySuffix_ThenAsInt64IsTheirValue) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"0", 0},
      {"7", 7},
      {"007", 7},
      {"+7", 7},
      {"-7", -7},
      {"2k", 2000},
      {"2M", 2000000},
      {"2G", 2000000000},
      {"2T", 2000000000000},
      {"3P", 3000000000000000},
      {"1E", 1000000000000000000},
      {"2Ki", 2048},
      {"2Mi", 2097152},
      {"16Gi", 17179869184},
      {"1Ti", 1099511627776},
      {"1e3", 1000},
      {"1E3", 1000},
      {"1.5k", 1500},
      {"1.0k", 1000},
      {"2e0", 2},
      {"1.25e2", 125},
  };
  for (const auto& [text, value] : cases) {
    EXPECT_EQ(QuantityAsInt64(text), value) << text;
    EXPECT_EQ(ParseQuantity(text)->value, value) << text;
  }
}

TEST(Quantity, GivenWhatAsInt64Refuses_ThenItIsNotIntegralThoughItMayBeWhole) {
  for (const char* text : {"1000m", "1.0", "16.0Gi", "0.5", "1m", "1u", "1n", "1Pi", "1Ei", "100Ti", "10E", "1.5",
                           "1234567890123456789", "99999999999999999999999999", "1e30", "1e-3"}) {
    ASSERT_TRUE(ParseQuantity(text)) << text;
    EXPECT_EQ(QuantityAsInt64(text), std::nullopt) << text;
  }
}

TEST(Quantity, GivenFractions_ThenTheValueIsRoundedAwayFromZero) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"1000m", 1},
      {"1m", 1},
      {"1500m", 2},
      {"-1500m", -2},
      {"0.5Gi", 536870912},
      {"1n", 1},
      {"1Pi", 1125899906842624},
      {"10E", kMax},
      {"1e30", kMax},
      {"-1e30", -kMax},
      {"0e30", 0},
      {"0.00000000000000000000000000000000000000001", 1},
      {"2.0000000000000000000000000000000", 2},
  };
  for (const auto& [text, value] : cases) EXPECT_EQ(ParseQuantity(text)->value, value) << text;
}

TEST(Quantity, GivenWhatIsNone_ThenItIsRefused) {
  for (const char* text : {"", "-", ".", "k", "1kk", "1 ", " 1", "1KI", "1ki", "1K", "e3", "1e", "1e+", "1.2.3", "0x10",
                           "1,5", "?", "Gi", "--1"}) {
    EXPECT_FALSE(ParseQuantity(text)) << text;
  }
}

}  // namespace
}  // namespace hami::device
