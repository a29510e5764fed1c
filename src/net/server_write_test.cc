// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "net/server.h"
#include "net/testing/server.h"

namespace hami::net {
namespace {

using namespace std::chrono_literals;
using namespace server_testing;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\n\r\n";

// Each piece finds room soon; there is no end to them.
TEST(ServerWrite, GivenSlowReader_WhenStreamIsEndless_ThenThreadHoldIsBounded) {
  std::promise<void> ended;
  ServerOptions options;
  options.max_threads = 1;
  options.write_timeout = 500ms;
  const auto server = StartServer(
      [&](const Request& request) {
        if (request.method == "POST") return Echo(request);
        Response response;
        response.stream = [&](BodyWriter& out) {
          const std::string piece(64U << 10U, 'x');
          while (out.Write(piece)) {
          }
          ended.set_value();
        };
        return response;
      },
      options);
  RawClient slow(*server);
  ASSERT_TRUE(slow.Say(kGet));
  const auto end = ended.get_future();
  const Deadline enough = After(10s);
  while (end.wait_for(10ms) != std::future_status::ready && Clock::now() < enough) {
    for (int i = 0; i < 32; ++i) slow.HearSome();
  }
  EXPECT_EQ(end.wait_for(0s), std::future_status::ready);
  EXPECT_TRUE(ClientOf(*server)->Send(Post("x")));
}

TEST(ServerWrite, GivenPipelinedAnswers_WhenReadSlowly_ThenTheyShareTheirTime) {
  constexpr int kAsked = 100;
  std::atomic<int> answered = 0;
  ServerOptions options;
  options.write_timeout = 500ms;
  const auto server = StartServer(
      [&](const Request&) {
        ++answered;
        return Response{200, {}, std::string(4U << 20U, 'x'), {}};
      },
      options);
  RawClient slow(*server);
  std::string many;
  for (int i = 0; i < kAsked; ++i) many += kGet;
  ASSERT_TRUE(slow.Say(many));
  const Deadline enough = After(10s);
  bool cut = false;
  while (!cut && Clock::now() < enough) {
    for (int i = 0; i < 32 && !cut; ++i) cut = slow.HearSome().empty();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_TRUE(cut);
  EXPECT_LT(answered, kAsked);
}

TEST(ServerWrite, GivenAStreamThatTakesItsTimeWhenItIsReadThenItIsWhole) {
  ServerOptions options;
  options.write_timeout = 300ms;
  const auto server = StartServer(
      [](const Request&) {
        Response response;
        response.stream = [](BodyWriter& out) {
          for (int i = 0; i < 10; ++i) {
            std::this_thread::sleep_for(60ms);
            if (!out.Write(std::to_string(i))) return;
          }
        };
        return response;
      },
      options);
  const auto client = ClientOf(*server);
  for (int round = 0; round < 2; ++round) {
    const auto answer = client->Send({});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->body, "0123456789");
  }
}

}  // namespace
}  // namespace hami::net
