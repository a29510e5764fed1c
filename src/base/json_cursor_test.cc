// SPDX-License-Identifier: Apache-2.0

#include "base/json_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace hami::base {
namespace {

bool Plain(char c) {
  return static_cast<unsigned char>(c) >= 32 && static_cast<unsigned char>(c) < 128 && c != '"' && c != '\\';
}

TEST(JsonCursor, GivenAnyTextWhenPlainCharactersAreCountedThenTheFirstOtherEndsThem) {
  std::minstd_rand random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 40, 'x');
    for (char& c : text) c = static_cast<char>(random() % 4 != 0 ? 'a' + random() % 26 : random() % 256);
    const auto end = std::find_if_not(text.begin(), text.end(), Plain);
    ASSERT_EQ(PlainLength(text), static_cast<std::size_t>(end - text.begin())) << testing::PrintToString(text);
  }
  for (int c = 0; c < 256; ++c) {
    const std::string text = "1234567" + std::string(1, static_cast<char>(c)) + "9";
    EXPECT_EQ(PlainLength(text), Plain(static_cast<char>(c)) ? 9U : 7U) << c;
  }
}

}  // namespace
}  // namespace hami::base
