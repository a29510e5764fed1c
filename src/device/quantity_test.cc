// SPDX-License-Identifier: Apache-2.0

#include "device/quantity.h"
#include "device/amount.h"

#include <gtest/gtest.h>

#include <limits>

namespace hami::device {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Quantity, GivenWholeNumbersWithAnySuffix_ThenThatIsTheirValue) {
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
    EXPECT_EQ(ParseQuantity(text)->value, value) << text;
  }
}

TEST(Quantity, GivenAWholeNumberInAnySpelling_ThenItIsWhole) {
  for (const char* text : {"1000m", "1.0", "16.0Gi", "0.5Gi", "1Pi", "1e30", "1000000u", "0n"}) {
    ASSERT_TRUE(ParseQuantity(text)) << text;
    EXPECT_TRUE(ParseQuantity(text)->whole) << text;
    EXPECT_EQ(ParseQuantity(text)->Floor(), ParseQuantity(text)->value) << text;
  }
  for (const char* text : {"0.5", "1m", "1u", "1n", "1.5", "1e-3", "1500m", "0.0000000001Gi"}) {
    ASSERT_TRUE(ParseQuantity(text)) << text;
    EXPECT_FALSE(ParseQuantity(text)->whole) << text;
    EXPECT_EQ(ParseQuantity(text)->Floor(), ParseQuantity(text)->value - 1) << text;
  }
  EXPECT_EQ(ParseQuantity("-1.5")->Floor(), -1);
  for (const char* text : {"1Ki", "1Gi", "0Ei"}) EXPECT_TRUE(ParseQuantity(text)->binary) << text;
  for (const char* text : {"1", "1k", "1G", "1e9", "1E"}) EXPECT_FALSE(ParseQuantity(text)->binary) << text;
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
      {"340282366920938463463374607431768211456e-30", 340282367},
      {"340282366920938463463374607431768211456", kMax},
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

TEST(Amount, MemoryIsMiBOrBytesByItsSuffix) {
  struct Case {
    const char* text;
    std::int64_t factor;
    MiB mib;
    bool from_bytes;
  };
  const Case cases[] = {{"3000", 1, 3000, false},     {"3k", 1, 3000, false},
                        {"1e3", 1, 1000, false},      {"10", 256, 2560, false},
                        {"16Gi", 1, 16384, true},     {"2Gi", 256, 2048, true},
                        {"1.5Gi", 1, 1536, true},     {"0.0029296875Gi", 1, 3, true},
                        {"1048575Ki", 1, 1023, true}, {"0", 1, 0, false},
                        {"0Gi", 1, 0, true},          {"16777215", 1, kMostOfCard, false}};
  for (const Case& one : cases) {
    const auto memory = ReadMemory(one.text, one.factor, kMostOfCard);
    ASSERT_TRUE(memory) << one.text << ": " << memory.error().message;
    EXPECT_EQ(memory->mib, one.mib) << one.text;
    EXPECT_EQ(memory->from_bytes, one.from_bytes) << one.text;
  }
}

TEST(Amount, WhatCannotBeMeantIsRefusedWithTheRemedy) {
  const std::pair<const char*, const char*> cases[] = {{"20G", "if bytes are meant, write 19073Mi"},
                                                       {"2147483648", "if bytes are meant, write 2048Mi"},
                                                       {"16777216", "if bytes are meant, write 16Mi"},
                                                       {"2Ki", "a plain number counts MiB; Mi, Gi and Ti count bytes"},
                                                       {"16Ti", "a plain number counts MiB; Mi, Gi and Ti count bytes"},
                                                       {"-1", "a plain number counts MiB; Mi, Gi and Ti count bytes"},
                                                       {"1.5", "a plain number counts MiB; Mi, Gi and Ti count bytes"},
                                                       {"16gb", "a plain number counts MiB; Mi, Gi and Ti count bytes"},
                                                       {"", "a plain number counts MiB; Mi, Gi and Ti count bytes"}};
  for (const auto& [text, remedy] : cases) {
    const auto memory = ReadMemory(text, 1, kMostOfCard);
    ASSERT_FALSE(memory) << text;
    EXPECT_EQ(memory.error().hint, remedy) << text;
  }
}

TEST(Amount, ACountIsAWholeNumberWithinItsBounds) {
  for (const char* text : {"0", "7", "1.0", "1000m", "100"}) EXPECT_TRUE(ReadCount(text, 100)) << text;
  for (const char* text : {"", "-1", "0.5", "101", "1e30", "?"}) EXPECT_FALSE(ReadCount(text, 100)) << text;
}

}  // namespace
}  // namespace hami::device
