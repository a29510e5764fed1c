// SPDX-License-Identifier: Apache-2.0

#include "base/json_parts.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/testing/json_parts.h"

namespace hami::base {
namespace {

using testing::ByCursor;
using testing::ByParser;

constexpr Part kInner[] = {{"a"}, {"name"}};
constexpr Part kOuter[] = {{"name"}, {"spec", kInner}, {"list", kInner}, {"é"}};

// Documents that are nearly JSON, or wholly: what parsers differ about is more frequent than in the wild.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  std::string Value(int depth) {
    switch (Pick(depth > 4 ? 5 : 8)) {
      case 0:
        return Any({"null", "true", "false", "nul", "True", "trueish"});
      case 1:
        return Any({"0", "-0", "7", "-12", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
                    "18446744073709551616", "1.5", "1e3", "-1.25E-2", "01", "1.", ".5", "-", "1e", "+1", "0x1"});
      case 2:
      case 3:
      case 4:
        return String();
      case 5:
        return List(depth);
      default:
        return Object(depth);
    }
  }
  std::string Broken(std::string text) {
    if (text.empty() || Pick(2) == 0) return text;
    const std::size_t at = Pick(text.size());
    if (Pick(3) == 0) return text.substr(0, at);
    text[at] = Pick(4) == 0 ? static_cast<char>(Pick(256)) : "{}[]\",:\\ u\n"[Pick(11)];
    return text;
  }

 private:
  std::size_t Pick(std::size_t count) { return random_() % count; }
  std::string Any(std::initializer_list<const char*> some) { return some.begin()[Pick(some.size())]; }
  std::string Blank() { return Pick(4) == 0 ? Any({" ", "\n", "\t\r", "  "}) : ""; }
  std::string String() {
    std::string text = "\"";
    for (std::size_t i = Pick(5) == 0 ? 40 : Pick(6); i > 0; --i) {
      text += Pick(12) != 0 ? std::string(1, static_cast<char>('a' + Pick(26)))
                            : Any({"\\n",
                                   "\\\"",
                                   "\\\\",
                                   "\\/",
                                   "\\b",
                                   "\\f",
                                   "\\r",
                                   "\\t",
                                   "\\u0041",
                                   "\\u00e9",
                                   "\\u20AC",
                                   "\\ud83d\\ude00",
                                   "\\ud83d",
                                   "\\ude00",
                                   "\\ud83dx",
                                   "\\x",
                                   "\\u12",
                                   "é",
                                   "€",
                                   "😀",
                                   "\xc0\x80",
                                   "\xed\xa0\x80",
                                   "\xf4\x90\x80\x80",
                                   "\x80",
                                   "\xe2\x82",
                                   "\x7f"});
    }
    return text + '"';
  }
  std::string Key() {
    return Pick(3) == 0 ? String() : Any({"\"name\"", "\"spec\"", "\"list\"", "\"a\"", "\"n\\u0061me\"", "\"é\""});
  }
  std::string List(int depth) {
    std::string text = "[" + Blank();
    for (std::size_t i = Pick(4); i > 0; --i) text += Blank() + Value(depth + 1) + Blank() + (i > 1 ? "," : "");
    return text + "]";
  }
  std::string Object(int depth) {
    std::string text = "{" + Blank();
    for (std::size_t i = Pick(6); i > 0; --i) {
      text += Blank() + Key() + Blank() + ":" + Blank() + Value(depth + 1) + Blank() + (i > 1 ? "," : "");
    }
    return text + "}";
  }

  std::minstd_rand random_;
};

TEST(JsonParts, GivenAnyText_WhenPartsAreTaken_ThenTheyAreThoseOfTheParser) {
  int understood = 0;
  for (unsigned seed = 0; seed < 60'000; ++seed) {
    Generator generate(seed);
    const std::string text = generate.Broken(generate.Value(0));
    for (const Parts parts : {Parts(kOuter), Parts(kInner), Parts()}) {
      const auto expected = ByParser(text, parts);
      ASSERT_EQ(ByCursor(text, parts), expected) << text;
      understood += expected ? 1 : 0;
    }
  }
  EXPECT_GT(understood, 30'000);
}

TEST(JsonParts, GivenListsNestedTooDeep_WhenReadOrPassedOver_ThenRefused) {
  for (const int depth : {JsonCursor::kMostDepth - 2, JsonCursor::kMostDepth - 1, JsonCursor::kMostDepth}) {
    const auto count = static_cast<std::size_t>(depth);
    for (const char* key : {"spec", "other"}) {
      const std::string text =
          std::string(R"({")") + key + R"(":)" + std::string(count, '[') + std::string(count, ']') + "}";
      EXPECT_EQ(ByCursor(text, kOuter), ByParser(text, kOuter)) << text;
      EXPECT_EQ(ByCursor(text, kOuter).has_value(), depth < JsonCursor::kMostDepth);
    }
  }
}

}  // namespace
}  // namespace hami::base
