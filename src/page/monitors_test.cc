// SPDX-License-Identifier: Apache-2.0

#include "page/monitors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/server.h"

namespace hami::page {
namespace {

using testing::HasSubstr;

Monitors Read(const char* text) {
  Monitors monitors;
  ReadSlice(base::ParseJson(text).value(), monitors);
  return monitors;
}

TEST(Monitors, AreFoundByTheEndpointsOfTheirService) {
  const Monitors monitors = Read(R"({"endpoints": [
      {"addresses": ["10.0.0.1", "10.0.0.9"], "nodeName": "a", "conditions": {"ready": true}},
      {"addresses": ["fd00::2"], "nodeName": "b"},
      {"addresses": ["10.0.0.3"], "nodeName": "c", "conditions": {"ready": false}},
      {"addresses": ["10.0.0.4"]}, {"addresses": [], "nodeName": "d"}, {"addresses": [5], "nodeName": "e"}, 7],
      "ports": [{"name": "x"}, {"name": "monitorport", "port": 9394}]})");
  ASSERT_EQ(monitors.size(), 3U);
  EXPECT_EQ(monitors.at("a"), (MonitorAddress{"a", "10.0.0.1", 9394, true}));
  EXPECT_EQ(monitors.at("b"), (MonitorAddress{"b", "fd00::2", 9394, true}));
  EXPECT_FALSE(monitors.at("c").ready);
}

TEST(Monitors, OfTwoOnANodeTheReadyOneCounts) {
  const Monitors monitors = Read(R"({"ports": [{"port": 9394}], "endpoints": [
      {"addresses": ["10.0.0.1"], "nodeName": "a", "conditions": {"ready": false}},
      {"addresses": ["10.0.0.2"], "nodeName": "a", "conditions": {"ready": true}},
      {"addresses": ["10.0.0.3"], "nodeName": "a", "conditions": {"ready": false}}]})");
  EXPECT_EQ(monitors.at("a").host, "10.0.0.2");
}

TEST(Monitors, ASliceWithoutAPortHasNone) {
  for (const char* text : {"[]", "{}", R"({"endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "a"}]})",
                           R"({"endpoints": [{"addresses": ["1"], "nodeName": "a"}], "ports": [{"port": 70000}]})"}) {
    EXPECT_TRUE(Read(text).empty()) << text;
  }
}

// What AskMonitor makes of ANSWER.
std::string Asked(const net::Response& answer) {
  std::string target;
  auto server = net::Server::Start({}, [&](const net::Request& request) {
    target = request.target;
    return answer;
  });
  EXPECT_TRUE(server);
  const net::Canceller stop;
  const auto report = AskMonitor({"n", "127.0.0.1", (*server)->port(), true}, stop);
  EXPECT_EQ(target, "/v1/use");
  return report ? "of " + report->node : report.error().message;
}

TEST(Monitors, AnAnswerIsReadAndAnyOtherIsExplained) {
  EXPECT_EQ(Asked({200, {}, R"({"schema":1,"node":"n","shares":[]})", {}}), "of n");
  EXPECT_THAT(Asked({404, {}, "", {}}), HasSubstr("it is HAMi's, or older"));
  EXPECT_THAT(Asked({503, {}, "", {}}), HasSubstr("answers 503"));
  EXPECT_THAT(Asked({302, {{"Location", "http://127.0.0.1:1/"}}, "", {}}), HasSubstr("answers 302"));
  EXPECT_THAT(Asked({200, {}, "<html>", {}}), HasSubstr("no JSON"));
  EXPECT_THAT(Asked({200, {}, std::string(device::kMostUseBytes + 1, ' '), {}}), HasSubstr("does not answer"));
}

TEST(Monitors, OneThatIsNotThereIsAnError) {
  std::uint16_t port = 0;
  {
    const auto server = net::Server::Start({}, [](const net::Request&) { return net::Response{}; });
    port = (*server)->port();
  }
  const net::Canceller stop;
  const auto report = AskMonitor({"n", "127.0.0.1", port, true}, stop);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("hami-monitor does not answer"));
}

}  // namespace
}  // namespace hami::page
