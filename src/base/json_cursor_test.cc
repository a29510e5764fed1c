// SPDX-License-Identifier: Apache-2.0

#include "base/json_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace hami::base {
namespace {

bool Plain(char c) {
  return static_cast<unsigned char>(c) >= 32 && static_cast<unsigned char>(c) < 128 && c != '"' && c != '\\';
}

TEST(JsonCursor, GivenAnyText_WhenPlainPrefixIsCounted_ThenFirstOtherEndsIt) {
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

using Strings = std::vector<std::string_view>;

// The items up to the end of the list one by one. Nothing: it is no list of strings.
std::optional<Strings> OneByOne(JsonCursor& cursor, Strings strings = {}) {
  do {
    bool plain = false;
    if (!cursor.TakeString(strings.emplace_back(), plain)) return std::nullopt;
  } while (cursor.Take(','));
  if (!cursor.Take(']')) return std::nullopt;
  return strings;
}

std::string AnyList(std::minstd_rand& random) {
  const auto any = [&](std::initializer_list<const char*> texts) { return texts.begin()[random() % texts.size()]; };
  const bool strange = random() % 2 == 0;
  const std::size_t usual = random() % 40;
  std::string text;
  for (std::size_t left = 1 + random() % 200; left > 0; --left) {
    text += '"' + std::string(random() % 100 == 0 ? random() % 2000 : usual + random() % 4, 'x');
    if (strange && random() % 50 == 0) text += any({"\\n", "\\\"", "\\u0041", "\n", "\x80", "é", "\x7f", "\"", "\\"});
    text += '"';
    if (left > 1) text += strange && random() % 50 == 0 ? any({" ,", ", ", ",,", "", "\",\"", ",1,"}) : ",";
  }
  return text + (random() % 20 == 0 ? any({"", ",", ",]", "\"]"}) : "]");
}

TEST(JsonCursor, GivenAnyLength_WhenOneCharacterIsSpecial_ThenTextIsNotPlain) {
  for (std::size_t size = 0; size < 70; ++size) {
    std::string text(size, 'a');
    EXPECT_TRUE(IsPlain(text)) << size;
    for (std::size_t at = 0; at < size; ++at) {
      for (const char c : {'"', '\\', '\n', '\0', '\x1f', '\x80', '\xff', ' ', '~', '\x7f'}) {
        text[at] = c;
        EXPECT_EQ(IsPlain(text), PlainLength(text) == size) << size << " " << at;
        EXPECT_EQ(IsPlain(text), c == ' ' || c == '~' || c == '\x7f') << size << " " << at;
      }
      text[at] = 'a';
    }
  }
}

TEST(JsonCursor, GivenAnyList_WhenPlainStringsTakenTogether_ThenAsOneByOne) {
  std::minstd_rand random(11);
  int lists = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = AnyList(random);
    JsonCursor slow(text);
    const auto expected = OneByOne(slow);
    JsonCursor fast(text);
    Strings strings;
    fast.TakePlainStrings(strings);
    const auto got = OneByOne(fast, std::move(strings));
    ASSERT_EQ(got, expected) << text;
    if (!expected) continue;
    ASSERT_EQ(fast.at(), slow.at()) << text;
    for (std::size_t i = 0; i < got->size(); ++i) ASSERT_EQ((*got)[i].data(), (*expected)[i].data()) << text;
    ++lists;
  }
  EXPECT_GT(lists, 8'000);
}

#ifdef __SSE2__
TEST(JsonCursor, GivenServersList_WhenPlainStringsAreTaken_ThenAllButItsEnd) {
  std::string text;
  for (int i = 1000; i < 6000; ++i) text += "\"gpu-node-" + std::to_string(i) + "\",";
  Strings strings;
  JsonCursor(text).TakePlainStrings(strings);
  EXPECT_GT(strings.size(), 4990U);
}
#endif

TEST(KindOfJson, GivenAnyTextWhenAskedThenItSaysWhatItIs) {
  for (const auto& [text, kind] :
       {std::pair(" {} ", "an object"), std::pair("[1]", "a list"), std::pair("\"a\"", "a string"),
        std::pair("null", "null"), std::pair("true", "true"), std::pair("-0.5e3", "a number"), std::pair("", ""),
        std::pair("[", ""), std::pair("1 2", ""), std::pair("nothing", "")}) {
    EXPECT_EQ(KindOfJson(text), kind) << text;
  }
}

}  // namespace
}  // namespace hami::base
