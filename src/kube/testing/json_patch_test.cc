// SPDX-License-Identifier: Apache-2.0

#include "kube/testing/json_patch.h"

#include <gtest/gtest.h>

namespace hami::kube {
namespace {

namespace json = base::json;

// The document after PATCH, or null when it was refused (and then the document must be as before).
std::string Patched(const char* document, const char* patch) {
  const json::value before = json::parse(document);
  json::value value = before;
  if (!ApplyJsonPatch(value, json::parse(patch))) {
    EXPECT_EQ(value, before);
    return "null";
  }
  return json::serialize(value);
}

TEST(JsonPatch, GivenEachOperation_WhenApplied_ThenDocumentChangesAsRfcSays) {
  EXPECT_EQ(Patched(R"({"a":1})", R"([{"op":"add","path":"/b","value":[]}])"), R"({"a":1,"b":[]})");
  EXPECT_EQ(Patched(R"([1,3])", R"([{"op":"add","path":"/1","value":2}])"), "[1,2,3]");
  EXPECT_EQ(Patched(R"([1])", R"([{"op":"add","path":"/-","value":2}])"), "[1,2]");
  EXPECT_EQ(Patched(R"({"a":1})", R"([{"op":"remove","path":"/a"}])"), "{}");
  EXPECT_EQ(Patched(R"({"a":{"b":1}})", R"([{"op":"replace","path":"/a/b","value":2}])"), R"({"a":{"b":2}})");
  EXPECT_EQ(Patched(R"({"a":1})", R"([{"op":"move","from":"/a","path":"/b"}])"), R"({"b":1})");
  EXPECT_EQ(Patched(R"({"a":1})", R"([{"op":"copy","from":"/a","path":"/b"}])"), R"({"a":1,"b":1})");
  EXPECT_EQ(Patched(R"({"a/b":1,"c~d":2})", R"([{"op":"remove","path":"/a~1b"},{"op":"remove","path":"/c~0d"}])"),
            "{}");
}

TEST(JsonPatch, GivenAStepThatFailsWhenAppliedThenNothingChanges) {
  EXPECT_EQ(Patched(R"({"a":1})", R"([{"op":"remove","path":"/a"},{"op":"test","path":"/a","value":1}])"), "null");
  EXPECT_EQ(Patched(R"({"a":1})", R"([{"op":"test","path":"/a","value":2}])"), "null");
  EXPECT_EQ(Patched(R"([1])", R"([{"op":"add","path":"/2","value":2}])"), "null");
  EXPECT_EQ(Patched(R"([1])", R"([{"op":"remove","path":"/01"}])"), "null");
  EXPECT_EQ(Patched("{}", R"([{"op":"replace","path":"/a","value":1}])"), "null");
  EXPECT_EQ(Patched("{}", R"([{"op":"add","path":"a","value":1}])"), "null");
  EXPECT_EQ(Patched("{}", R"([{"op":"add","path":"/a/b","value":1}])"), "null");
  EXPECT_EQ(Patched("{}", R"([{"op":"fly","path":"/a"}])"), "null");
  EXPECT_EQ(Patched("{}", R"({"op":"add"})"), "null");
}

TEST(MergePatch, GivenNullsAndNestingWhenAppliedThenMembersGoAndMerge) {
  json::value value = json::parse(R"({"a":"b","c":{"d":"e","f":"g"},"h":[1]})");
  ApplyMergePatch(value, json::parse(R"({"a":"z","c":{"f":null},"h":[2,null],"n":{"x":null,"y":1}})"));
  EXPECT_EQ(value, json::parse(R"({"a":"z","c":{"d":"e"},"h":[2,null],"n":{"y":1}})"));
}

}  // namespace
}  // namespace hami::kube
