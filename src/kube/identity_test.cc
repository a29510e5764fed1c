// SPDX-License-Identifier: Apache-2.0

#include "kube/identity.h"

#include <gtest/gtest.h>

#include <string>

namespace hami::kube {
namespace {

std::string Found(std::string_view text) {
  base::JsonCursor cursor(text);
  Identity found;
  if (!FindIdentity(cursor, found)) return "-";
  std::string all(found.ns);
  for (const std::string_view part : {found.name, found.uid, found.version}) all.append("|").append(part);
  return all;
}

TEST(Identity, GivenObject_WhenIdentityIsSought_ThenMetadataAloneSaysIt) {
  EXPECT_EQ(Found(R"({"kind":"Pod","spec":{"metadata":{"name":"no"}},"metadata":{"labels":{"name":"no","uid":"no"},
                     "annotations":{"a":"{\"name\":\"no\"}}"},"name":"p","namespace":"n","uid":"u",
                     "resourceVersion":"7"},"status":{}})"),
            "n|p|u|7");
  EXPECT_EQ(Found(R"({"metadata":{"name":"p","uid":"u","resourceVersion":"7"}})"), "|p|u|7");
}

TEST(Identity, GivenAnythingElseWhenItsIdentityIsSoughtThenThereIsNone) {
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
