// SPDX-License-Identifier: Apache-2.0

#include "net/url.h"

#include <gtest/gtest.h>

namespace hami::net {
namespace {

TEST(Url, GivenSchemeHostPortAndPathWhenParsedThenAllPartsAreThere) {
  const auto url = ParseUrl("https://api.example:6443/prefix/");
  ASSERT_TRUE(url);
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->host, "api.example");
  EXPECT_EQ(url->port, 6443);
  EXPECT_EQ(url->path, "/prefix");
  EXPECT_EQ(url->Authority(), "api.example:6443");
}

TEST(Url, GivenNoPortWhenParsedThenTheSchemeDecides) {
  EXPECT_EQ(ParseUrl("https://a")->port, 443);
  EXPECT_EQ(ParseUrl("http://a")->port, 80);
  EXPECT_EQ(ParseUrl("a:8080")->port, 8080);
  EXPECT_EQ(ParseUrl("https://a")->Authority(), "a");
}

TEST(Url, GivenIpv6LiteralWhenParsedThenBracketsGoAndComeBack) {
  const auto url = ParseUrl("https://[::1]:6443");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->Authority(), "[::1]:6443");
  EXPECT_EQ(ParseUrl("https://[fd00::1]")->port, 443);
}

TEST(Url, GivenNonsenseWhenParsedThenItIsRefused) {
  for (const char* text : {"", "https://", "ftp://a", "http://a:0", "http://a:65536", "http://a:b", "http://u@a",
                           "http://a b", "http://[::1", "http://[::1]x", "http://a\r\nHost: b", "http://a:"}) {
    EXPECT_FALSE(ParseUrl(text)) << text;
  }
}

TEST(PercentEncoding, GivenAnyBytesWhenEncodedAndDecodedThenTheyAreTheSame) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(PercentDecode(PercentEncode(all)), all);
  EXPECT_EQ(PercentEncode("a b/c"), "a%20b%2Fc");
}

TEST(PercentEncoding, GivenACutEscapeWhenDecodedThenNothing) {
  EXPECT_FALSE(PercentDecode("%"));
  EXPECT_FALSE(PercentDecode("%4"));
  EXPECT_FALSE(PercentDecode("%zz"));
}

TEST(Query, GivenPairsWhenEncodedAndParsedThenTheyAreTheSame) {
  const Query query{{"labelSelector", "a=b,c!=d"}, {"limit", "500"}, {"empty", ""}};
  EXPECT_EQ(ParseQuery("/pods" + EncodeQuery(query)), query);
  EXPECT_EQ(PathOf("/pods" + EncodeQuery(query)), "/pods");
  EXPECT_TRUE(ParseQuery("/pods").empty());
}

}  // namespace
}  // namespace hami::net
