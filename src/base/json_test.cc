// SPDX-License-Identifier: Apache-2.0

#include "base/json.h"

#include <gtest/gtest.h>

namespace hami::base {
namespace {

TEST(JsonOut, GivenDocument_WhenPretty_ThenOrderKeptAndParsesBack) {
  json::object document;
  document["z"] = 1;
  document["a"] = json::array{"x", json::object{}, json::array{}};
  const std::string text = Pretty(document);
  EXPECT_EQ(text, "{\n  \"z\": 1,\n  \"a\": [\n    \"x\",\n    {},\n    []\n  ]\n}\n");
  EXPECT_EQ(ParseJson(text).value(), json::value(document));
  EXPECT_EQ(Compact(document), "{\"z\":1,\"a\":[\"x\",{},[]]}\n");
}

TEST(JsonOut, GivenAnyText_WhenQuoted_ThenParsingGivesItBack) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {std::string(), std::string("plain"), std::string("\"\\"), all, std::string("größe 𝄞")}) {
    std::string quoted = "[";
    AppendJsonString(quoted, text);
    EXPECT_EQ(ParseJson(quoted + "]").value(), json::value(json::array{text})) << quoted;
  }
}

TEST(JsonIn, GivenBrokenOrDeepText_WhenParsed_ThenErrorNotException) {
  EXPECT_FALSE(ParseJson(""));
  EXPECT_FALSE(ParseJson("{"));
  EXPECT_FALSE(ParseJson("{} x"));
  EXPECT_FALSE(ParseJson(std::string(100, '[') + std::string(100, ']')));
}

TEST(JsonIn, GivenWrongTypes_WhenLookedUp_ThenNothing) {
  const json::value value = ParseJson(R"({"s":"t","n":7,"d":1.0,"neg":-1,"b":true,"l":[]})").value();
  const json::object& object = value.get_object();
  EXPECT_EQ(GetString(object, "s"), "t");
  EXPECT_FALSE(GetString(object, "n"));
  EXPECT_EQ(GetUint(object, "n"), 7u);
  for (const char* key : {"s", "d", "neg", "b", "absent"}) EXPECT_FALSE(GetUint(object, key)) << key;
  EXPECT_EQ(GetBool(object, "b"), true);
  EXPECT_FALSE(GetBool(object, "n"));
  EXPECT_NE(GetArray(object, "l"), nullptr);
  EXPECT_EQ(GetArray(object, "s"), nullptr);
}

}  // namespace
}  // namespace hami::base
