// SPDX-License-Identifier: Apache-2.0

#include "scheduler/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::scheduler {
namespace {

using testing::HasSubstr;

net::Request Ask(std::string method, std::string target, std::string body = "", net::Headers headers = {}) {
  return {std::move(method), std::move(target), std::move(headers), std::move(body), [] { return false; }};
}

std::string ContentType(const net::Response& response) {
  const std::string* type = response.headers.Find("Content-Type");
  return type == nullptr ? "" : *type;
}

class Routes : public testing::Test {
 protected:
  static net::Handler Make(std::function<net::Response(const net::Request&)> pprof) {
    return MainRoutes(
        {[](std::string_view body, const Abandoned&) {
           return Reply{200, "filtered " + std::string(body)};
         },
         [](std::string_view body, const Abandoned&) {
           return body.empty() ? Reply{400, "Please send a request body"} : Reply{200, "bound " + std::string(body)};
         },
         [](std::string_view body) {
           return Reply{200, "scored " + std::string(body)};
         },
         [](std::string_view body) {
           return Reply{200, "evicted " + std::string(body)};
         },
         [](std::string_view body) {
           if (body == "busy") return AdmissionAnswer{503, "try again\n", false, false};
           return AdmissionAnswer{body == "bad" ? 400 : 200, "reviewed", true, false};
         },
         [] { return std::string("leading\n"); }, std::move(pprof)});
  }
  net::Handler main_ = Make(nullptr);
};

TEST_F(Routes, TheExtenderAnswersJson) {
  const net::Response filter = main_(Ask("POST", "/filter?x=1", "a"));
  EXPECT_EQ(filter.status, 200);
  EXPECT_EQ(filter.body, "filtered a");
  EXPECT_EQ(ContentType(filter), "application/json");
  EXPECT_EQ(main_(Ask("POST", "/bind", "b")).body, "bound b");
  EXPECT_EQ(main_(Ask("POST", "/prioritize", "c")).body, "scored c");
  EXPECT_EQ(main_(Ask("POST", "/preempt", "d")).body, "evicted d");
  const net::Response empty = main_(Ask("POST", "/bind"));
  EXPECT_EQ(empty.status, 400);
  EXPECT_EQ(empty.body, "Please send a request body");
}

TEST_F(Routes, TheWebhookWantsJson) {
  EXPECT_EQ(main_(Ask("POST", "/webhook", "x", {{"Content-Type", "application/json"}})).status, 200);
  EXPECT_EQ(main_(Ask("POST", "/webhook", "x", {{"content-type", "Application/JSON; charset=utf-8"}})).status, 200);
  EXPECT_EQ(main_(Ask("POST", "/webhook", "bad")).status, 400);
  EXPECT_EQ(ContentType(main_(Ask("POST", "/webhook", "bad"))), "application/json");
  EXPECT_EQ(main_(Ask("POST", "/webhook", "x", {{"Content-Type", "text/xml"}})).status, 415);
}

TEST_F(Routes, AReviewThatFindsNoRoomIsToldWhenToComeAgain) {
  const net::Response busy = main_(Ask("POST", "/webhook", "busy"));
  EXPECT_EQ(busy.status, 503);
  EXPECT_THAT(ContentType(busy), HasSubstr("text/plain"));
  ASSERT_NE(busy.headers.Find("Retry-After"), nullptr);
  EXPECT_EQ(*busy.headers.Find("Retry-After"), "1");
}

TEST_F(Routes, ProbesAnswerWhateverTheState) {
  EXPECT_EQ(main_(Ask("GET", "/healthz")).status, 200);
  EXPECT_EQ(main_(Ask("GET", "/healthz")).body, "");
  EXPECT_EQ(main_(Ask("HEAD", "/healthz")).status, 200);
  EXPECT_EQ(main_(Ask("GET", "/readyz")).status, 200);
  EXPECT_EQ(main_(Ask("GET", "/readyz")).body, "leading\n");
  EXPECT_THAT(main_(Ask("GET", "/version")).body, HasSubstr("hami-scheduler "));
}

TEST_F(Routes, WrongMethodsAndPathsSayWhatIsRight) {
  const net::Response method = main_(Ask("GET", "/filter"));
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(*method.headers.Find("Allow"), "POST");
  EXPECT_EQ(*main_(Ask("DELETE", "/healthz")).headers.Find("Allow"), "GET");
  EXPECT_EQ(main_(Ask("POST", "/refit", "x")).status, 404);
  EXPECT_THAT(main_(Ask("GET", "/")).body, HasSubstr("/webhook"));
}

TEST_F(Routes, ProfilesAreUnknownUnlessTheyAreWanted) {
  for (const char* path : {"/debug/pprof/", "/debug/pprof/profile?seconds=5", "/debug/pprof", "/debug/pprofile"}) {
    EXPECT_EQ(main_(Ask("GET", path)).status, 404) << path;
  }
  const net::Handler wanted = Make([](const net::Request& request) { return Text(200, "profile " + request.target); });
  EXPECT_EQ(wanted(Ask("GET", "/debug/pprof/profile?seconds=5")).body, "profile /debug/pprof/profile?seconds=5");
  EXPECT_EQ(wanted(Ask("GET", "/debug/pprofile")).status, 404);
  EXPECT_EQ(wanted(Ask("POST", "/filter", "a")).status, 200);
}

TEST_F(Routes, EveryRouteTakesWhatItsSendersNeed) {
  EXPECT_EQ(BodyLimitOf("/filter?timeout=30s").bytes, 256U << 20U);
  EXPECT_THAT(BodyLimitOf("/filter").remedy, HasSubstr("nodeCacheCapable: true"));
  EXPECT_EQ(BodyLimitOf("/webhook?timeout=10s").bytes, 16U << 20U);
  EXPECT_EQ(BodyLimitOf("/debug/pprof/symbol").bytes, 4U << 20U);
  for (const char* target : {"/bind", "/healthz", "/filters", "/", "*", ""}) {
    EXPECT_EQ(BodyLimitOf(target).bytes, 64U << 10U) << target;
    EXPECT_FALSE(BodyLimitOf(target).remedy.empty());
  }
}

class Collected : public net::BodyWriter {
 public:
  bool Write(std::string_view piece) override {
    text += piece;
    return true;
  }
  bool Alive() override { return true; }
  void Cut() override {}
  std::string text;
};

TEST(MetricsListener, StreamsTheScrape) {
  const net::Handler handler = MetricsRoutes([](net::BodyWriter& out) { out.Write("up 1\n"); });
  const net::Response response = handler(Ask("GET", "/metrics"));
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(ContentType(response), HasSubstr("version=0.0.4"));
  Collected out;
  response.stream(out);
  EXPECT_EQ(out.text, "up 1\n");
  EXPECT_EQ(handler(Ask("POST", "/metrics")).status, 405);
  EXPECT_EQ(handler(Ask("GET", "/filter")).status, 404);
}

}  // namespace
}  // namespace hami::scheduler
