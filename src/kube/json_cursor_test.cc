// SPDX-License-Identifier: Apache-2.0

#include "kube/json_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace hami::kube {
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

std::string Found(std::string_view text) {
  JsonCursor cursor(text);
  Identity found;
  if (!FindIdentity(cursor, found)) return "-";
  std::string all(found.ns);
  for (const std::string_view part : {found.name, found.uid, found.version}) all.append("|").append(part);
  return all;
}

TEST(JsonCursor, GivenAnObjectWhenItsIdentityIsSoughtThenItsMetadataAloneSaysIt) {
  EXPECT_EQ(Found(R"({"kind":"Pod","spec":{"metadata":{"name":"no"}},"metadata":{"labels":{"name":"no","uid":"no"},
                     "annotations":{"a":"{\"name\":\"no\"}}"},"name":"p","namespace":"n","uid":"u",
                     "resourceVersion":"7"},"status":{}})"),
            "n|p|u|7");
  EXPECT_EQ(Found(R"({"metadata":{"name":"p","uid":"u","resourceVersion":"7"}})"), "|p|u|7");
}

TEST(JsonCursor, GivenAnythingElseWhenItsIdentityIsSoughtThenThereIsNone) {
  for (const char* text :
       {"", "{}", "[]", R"({"metadata":{}})", R"({"metadata":null})", R"({"metadata":"m"})",
        R"({"metadata":{"name":"p","uid":"u"}})", R"({"metadata":{"name":"p","uid":"u","resourceVersion":7}})",
        R"({"metadata":{"name":"p\u0041","uid":"u","resourceVersion":"7"}})",
        R"({"metadata":{"name":"p","uid":"u","resourceVersion":"7")", R"({"spec":{},"status":{}})",
        R"({"Metadata":{"name":"p","uid":"u","resourceVersion":"7"}})"}) {
    EXPECT_EQ(Found(text), "-") << text;
  }
}

}  // namespace
}  // namespace hami::kube
