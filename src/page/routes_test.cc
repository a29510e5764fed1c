// SPDX-License-Identifier: Apache-2.0

#include "page/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "page/assets.h"

namespace hami::page {
namespace {

using testing::HasSubstr;

net::Request Get(std::string target, net::Headers headers = {{"Host", "localhost:9396"}}, std::string method = "GET") {
  return {std::move(method), std::move(target), std::move(headers), "", [] { return false; }};
}

std::string Header(const net::Response& response, const char* name) {
  const std::string* value = response.headers.Find(name);
  return value == nullptr ? "" : *value;
}

net::Handler Routes(PageOptions options = {}) {
  return PageRoutes({[](const Ask& ask, const auto&) { return "since " + std::to_string(ask.since); },
                     [](const std::string& node) { return "use of " + node; }},
                    std::move(options));
}

TEST(PageRoutes, EveryAnswerIsGuarded) {
  const net::Handler routes = Routes();
  for (const char* target : {"/", "/main.js", "/v1/state", "/nothing", "/v1/state?bad"}) {
    const net::Response response = routes(Get(target));
    EXPECT_THAT(Header(response, "Content-Security-Policy"), HasSubstr("default-src 'none'")) << target;
    EXPECT_THAT(Header(response, "Content-Security-Policy"), Not(HasSubstr("unsafe"))) << target;
    EXPECT_EQ(Header(response, "X-Content-Type-Options"), "nosniff") << target;
    EXPECT_EQ(Header(response, "Cross-Origin-Resource-Policy"), "same-origin") << target;
  }
}

TEST(PageRoutes, ThePageAndItsStateAreThereAndNothingCanBeWritten) {
  const net::Handler routes = Routes();
  EXPECT_EQ(routes(Get("/")).status, 200);
  EXPECT_THAT(Header(routes(Get("/")), "Content-Type"), HasSubstr("text/html"));
  EXPECT_EQ(routes(Get("/../etc/passwd")).status, 404);
  EXPECT_EQ(routes(Get("/v1/state?since=e.7")).body, "since 7");
  EXPECT_EQ(Header(routes(Get("/v1/state")), "Cache-Control"), "no-store");
  EXPECT_EQ(routes(Get("/v1/state?x=1")).status, 400);
  EXPECT_EQ(routes(Get("/v1/use?node=node-1")).body, "use of node-1");
  for (const char* bad : {"/v1/use", "/v1/use?node=", "/v1/use?node=a&node=b", "/v1/use?card=a"}) {
    EXPECT_EQ(routes(Get(bad)).status, 400) << bad;
  }
  EXPECT_EQ(routes(Get("/v1/use?node=" + std::string(254, 'n'))).status, 400);
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    EXPECT_EQ(routes(Get("/v1/state", {{"Host", "localhost"}}, method)).status, 405) << method;
  }
}

TEST(PageRoutes, OnTheLoopbackANameThatPointsHereReadsNothing) {
  const net::Handler routes = Routes({nullptr, true});
  EXPECT_EQ(routes(Get("/v1/state", {{"Host", "127.0.0.1:9396"}})).status, 200);
  EXPECT_EQ(routes(Get("/v1/state", {{"Host", "evil.example.org"}})).status, 421);
  EXPECT_EQ(routes(Get("/v1/state", {})).status, 421);
  for (const char* good : {"localhost", "LOCALHOST:1", "127.0.0.1", "[::1]", "[::1]:80"}) {
    EXPECT_TRUE(NamesLoopback(good)) << good;
  }
  for (const char* bad : {"", ":80", "127.0.0.1.example.org", "127.evil:80", "localhost.evil", "10.0.0.1", "[::2]:1"}) {
    EXPECT_FALSE(NamesLoopback(bad)) << bad;
  }
}

TEST(PageRoutes, ReadersWithoutTheRightSeeThePageAndNoState) {
  Access access = Access::kNoToken;
  const net::Handler routes = Routes({[&](const std::string*) { return access; }, false});
  EXPECT_EQ(routes(Get("/")).status, 200);
  EXPECT_EQ(routes(Get("/v1/state")).status, 401);
  EXPECT_EQ(Header(routes(Get("/v1/state")), "WWW-Authenticate"), "Bearer");
  EXPECT_EQ(routes(Get("/v1/use?node=n")).status, 401);
  access = Access::kForbidden;
  EXPECT_EQ(routes(Get("/v1/state")).status, 403);
  access = Access::kUnreachable;
  EXPECT_EQ(routes(Get("/v1/state")).status, 503);
  access = Access::kAllowed;
  EXPECT_EQ(routes(Get("/v1/state")).status, 200);
}

TEST(Assets, EachFileIsThereOnceAndNamesNoOtherSite) {
  std::set<std::string_view> paths;
  for (const Asset& asset : Assets()) {
    EXPECT_TRUE(paths.insert(asset.path).second) << asset.path;
    EXPECT_FALSE(asset.text.empty()) << asset.path;
    if (asset.path != "/icon.svg") {
      EXPECT_THAT(std::string(asset.text), Not(HasSubstr("://"))) << asset.path;
    }
  }
  EXPECT_EQ(FindAsset("/index.html")->type, "text/html; charset=utf-8");
  EXPECT_EQ(FindAsset("index.html"), nullptr);
}

}  // namespace
}  // namespace hami::page
