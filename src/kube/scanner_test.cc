// SPDX-License-Identifier: Apache-2.0

#include "kube/scanner.h"

#include <gtest/gtest.h>

#include "kube/error.h"

namespace hami::kube {
namespace {

namespace json = base::json;

struct Scanned {
  std::vector<json::value> items;
  json::value frame;
};

Result<Scanned> Scan(std::string_view text, std::size_t piece, std::size_t most_item = 1U << 20U) {
  Scanned scanned;
  ListScanner scanner(
      [&](std::string_view item) -> Status {
        auto value = ParseDocument(item);
        if (!value) return tl::unexpected(value.error());
        scanned.items.push_back(*std::move(value));
        return {};
      },
      most_item);
  for (std::size_t at = 0; at < text.size(); at += piece) HAMI_NET_TRY(scanner.Feed(text.substr(at, piece)));
  auto frame = scanner.Finish();
  if (!frame) return tl::unexpected(frame.error());
  scanned.frame = *std::move(frame);
  return scanned;
}

constexpr std::string_view kTricky = R"( {"kind":"PodList","x":["[","]",{"items":[1,2]}],"items\"":[7],"a\"items":[8],
  "metadata":{"resourceVersion":"12","items":[3]} , "items" : [ {"a":"}]{[\"\\"} , {"items":[{"b":1},[2]],"c":{}},{} ]
  , "tail":"items"} )";

TEST(ListScanner, GivenTrickyListInAnyPieces_ThenItemsAndFrameAsInWholeParse) {
  const auto whole = json::parse({kTricky.data(), kTricky.size()});
  for (std::size_t piece = 1; piece <= kTricky.size(); ++piece) {
    const auto scanned = Scan(kTricky, piece);
    ASSERT_TRUE(scanned) << scanned.error().message << " with pieces of " << piece;
    EXPECT_EQ(json::value(json::array(scanned->items.begin(), scanned->items.end())), whole.at("items"));
    json::value frame = whole;
    frame.as_object()["items"] = json::array{};
    EXPECT_EQ(scanned->frame, frame);
  }
}

TEST(ListScanner, GivenNoItemsWhenScannedThenTheListIsEmpty) {
  for (const char* text : {R"({"items":[]})", R"({"items":null})", R"({"metadata":{}})", R"({"items":[ ]})"}) {
    const auto scanned = Scan(text, 3);
    ASSERT_TRUE(scanned) << text;
    EXPECT_TRUE(scanned->items.empty());
  }
}

TEST(ListScanner, GivenABrokenListWhenScannedThenItIsAnError) {
  for (const char* text :
       {"", "{", R"({"items":[)", R"({"items":[{])", R"({"items":[{}{}]})", R"({"items":[{},]})", R"({"items":[,{}]})",
        R"({"items":[1]})", R"({"items":[[]]})", R"({"items":[{}]}})", R"({"items":[{]})", R"({"items":[{"a":}]})",
        R"({"items":[{}],"items":[{}]})", R"({"items":[{}]} x)", R"({"items":["a)"}) {
    EXPECT_FALSE(Scan(text, 1)) << text;
    EXPECT_FALSE(Scan(text, 100)) << text;
  }
}

TEST(ListScanner, GivenDepthOrSizeBeyondMeasureWhenScannedThenItIsAnError) {
  EXPECT_FALSE(Scan(R"({"items":[{"a":)" + std::string(200, '[') + std::string(200, ']') + "}]}", 7));
  EXPECT_FALSE(Scan(R"({"items":[{"a":")" + std::string(200, 'x') + R"("}]})", 7, 100));
  EXPECT_FALSE(Scan(R"({"items":[{"a":")" + std::string(200, 'x') + R"("}]})", 1000, 100));
  EXPECT_FALSE(Scan(R"({"metadata":")" + std::string(2U << 20U, 'x') + R"("})", 65536));
}

TEST(Error, GivenAStatusWhenReadThenReasonMessageAndAdviceAreThere) {
  const Error conflict = FromAnswer(409, R"({"kind":"Status","message":"m","reason":"Conflict","code":409})", nullptr);
  EXPECT_EQ(conflict.reason, Reason::kConflict);
  EXPECT_EQ(conflict.message, "m");
  const Error exists = FromAnswer(409, R"({"kind":"Status","reason":"AlreadyExists","code":409})", nullptr);
  EXPECT_EQ(exists.reason, Reason::kAlreadyExists);
  const std::string five = "5";
  const Error busy = FromAnswer(429, "slow down", &five);
  EXPECT_EQ(busy.reason, Reason::kTooManyRequests);
  EXPECT_EQ(busy.retry_after, std::chrono::seconds(5));
  EXPECT_NE(busy.message.find("slow down"), std::string::npos);
  const Error advised = FromAnswer(500, R"({"kind":"Status","code":500,"details":{"retryAfterSeconds":3}})", nullptr);
  EXPECT_EQ(advised.retry_after, std::chrono::seconds(3));
  EXPECT_EQ(FromAnswer(410, "", nullptr).reason, Reason::kExpired);
  EXPECT_EQ(FromAnswer(404, "{}", nullptr).reason, Reason::kNotFound);
  EXPECT_EQ(FromAnswer(502, "<html>", nullptr).reason, Reason::kServerError);
}

}  // namespace
}  // namespace hami::kube
