// SPDX-License-Identifier: Apache-2.0

#include "net/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <latch>
#include <random>
#include <thread>

#include "net/testing/server.h"

namespace hami::net {
namespace {

using namespace std::chrono_literals;
using namespace server_testing;

TEST(Server, GivenManyRequests_WhenSentInTurn_ThenOneConnectionServesThem) {
  const auto server = StartServer(Echo);
  const auto client = ClientOf(*server);
  for (int i = 0; i < 50; ++i) {
    const auto response = client->Send(Post(std::to_string(i)));
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, std::to_string(i));
    ASSERT_NE(response->headers.Find("x-method"), nullptr);
  }
  EXPECT_EQ(server->counters().connections, 1U);
  EXPECT_EQ(server->counters().requests, 50U);
}

TEST(Server, GivenAQuietConnectionWhenItSpeaksAgainThenItIsServed) {
  ServerOptions options;
  options.max_threads = 1;
  const auto server = StartServer(Echo, options);
  // More quiet connections than threads: each must give its thread back.
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(ClientOf(*server));
  for (int round = 0; round < 3; ++round) {
    for (const auto& client : clients) {
      const auto response = client->Send(Post("x"));
      ASSERT_TRUE(response) << response.error().message;
    }
  }
  EXPECT_EQ(server->counters().connections, 8U);
}

TEST(Server, GivenLargeBodiesWhenEchoedThenEveryByteComesBack) {
  const auto server = StartServer(Echo);
  const auto client = ClientOf(*server);
  std::string body(9U << 20U, 'a');
  for (std::size_t i = 0; i < body.size(); i += 997) body[i] = static_cast<char>('b' + i % 20);
  const auto response = client->Send(Post(body));
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_TRUE(response->body == body);
}

TEST(Server, GivenRequestsInPieces_WhenPieceSpansTwo_ThenEachBodyIsWhole) {
  const auto server = StartServer(Echo);
  RawClient client(*server);
  std::minstd_rand random(5);
  std::string text;
  std::vector<std::pair<std::string, std::size_t>> bodies;  // and where they end
  for (int i = 0; i < 60; ++i) {
    const std::string body(random() % (random() % 2 == 0 ? 4 : 60'000), static_cast<char>('A' + i));
    text += "POST / HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    bodies.emplace_back(body, text.size());
  }
  std::size_t said = 0;
  for (const auto& [body, end] : bodies) {
    for (const std::size_t until = std::min(text.size(), end + random() % 30); said < until;) {
      const std::size_t piece = std::min<std::size_t>(until - said, 1 + random() % (random() % 2 == 0 ? 300 : 50'000));
      ASSERT_TRUE(client.Say(std::string_view(text).substr(said, piece)));
      said += piece;
    }
    std::string heard;
    while (!heard.ends_with("\r\n\r\n" + body)) {
      const std::string some = client.HearSome();
      ASSERT_FALSE(some.empty()) << end;
      heard += some;
    }
  }
}

TEST(Server, GivenAnswerLargerThanClientAllows_WhenReceived_ThenTooLarge) {
  const auto server = StartServer([](const Request&) { return Response{200, {}, std::string(5000, 'x'), {}}; });
  ClientOptions options;
  options.limits.body_bytes = 4999;
  const auto response = ClientOf(*server, options)->Send({});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().cause, Cause::kTooLarge);
}

TEST(Server, GivenABodyOverTheLimitWhenSentThenStatus413) {
  ServerOptions options;
  options.limits.body_bytes = 100;
  const auto server = StartServer(Echo, options);
  const auto response = ClientOf(*server)->Send(Post(std::string(1U << 16U, 'x')));
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 413);
}

// 1000 bytes for /large, 10 for others.
ServerOptions SmallBodies() {
  ServerOptions options;
  options.body_limit = [](std::string_view target) {
    return target == "/large" ? BodyLimit{1000, "send less"} : BodyLimit{10, "nobody has more to say here"};
  };
  return options;
}

std::string PostHead(const std::string& target, const std::string& rest) {
  return "POST " + target + " HTTP/1.1\r\nHost: a\r\n" + rest + "\r\n\r\n";
}

TEST(Server, GivenTargetLimit_WhenBodyIsLonger_ThenStatus413BeforeReading) {
  const auto server = StartServer(Echo, SmallBodies());
  for (const char* rest : {"Content-Length: 11", "Content-Length: 11\r\nExpect: 100-continue"}) {
    RawClient client(*server);
    ASSERT_TRUE(client.Say(PostHead("/header", rest)));
    const std::string heard = client.Hear();
    EXPECT_TRUE(heard.starts_with("HTTP/1.1 413 ")) << heard;
    EXPECT_NE(heard.find("POST /header takes bodies of at most 10 bytes: nobody has more to say here\n"),
              std::string::npos)
        << heard;
  }
  RawClient large(*server);
  ASSERT_TRUE(large.Say(PostHead("/large", "Content-Length: 11\r\nConnection: close") + "hello world"));
  EXPECT_TRUE(large.Hear().ends_with("hello world"));
  RawClient small(*server);
  ASSERT_TRUE(small.Say(PostHead("/small", "Content-Length: 10\r\nConnection: close") + "hello worl"));
  EXPECT_TRUE(small.Hear().ends_with("hello worl"));
}

TEST(Server, GivenTargetLimit_WhenChunkedBodyGrowsBeyondIt_ThenStatus413) {
  const auto server = StartServer(Echo, SmallBodies());
  RawClient client(*server);
  ASSERT_TRUE(client.Say(PostHead("/small", "Transfer-Encoding: chunked") + "6\r\nhello \r\n5\r\nworld\r\n"));
  const std::string heard = client.Hear();
  EXPECT_TRUE(heard.starts_with("HTTP/1.1 413 ")) << heard;
  EXPECT_NE(heard.find("at most 10 bytes"), std::string::npos) << heard;
}

TEST(Server, GivenTooMuchInLargeBodies_ThenLastSentAwayAndSmallOnesServed) {
  ServerOptions options;
  options.small_body_bytes = 1000;
  options.large_bodies_bytes = 100'000;
  std::promise<void> held;
  std::promise<void> go_on;
  const auto server = StartServer(
      [&](const Request& request) {
        if (request.target == "/hold") {
          held.set_value();
          go_on.get_future().wait();
        }
        return Response{200, {}, std::to_string(request.body.size()), {}};
      },
      options);
  const auto client = ClientOf(*server);
  Call hold = Post(std::string(80'000, 'x'));
  hold.target = "/hold";
  std::thread holding([&] { EXPECT_EQ(client->Send(hold)->status, 200); });
  held.get_future().wait();
  const auto refused = client->Send(Post(std::string(80'000, 'x')));
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_EQ(refused->status, 503);
  ASSERT_NE(refused->headers.Find("Retry-After"), nullptr);
  EXPECT_EQ(client->Send(Post(std::string(1000, 'x')))->status, 200);
  EXPECT_EQ(client->Send(Post(std::string(20'000, 'x')))->status, 200);
  go_on.set_value();
  holding.join();
  // What was given back is there again; also what the refused one had.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client->Send(Post(std::string(100'000, 'x')))->status, 200) << i;
}

TEST(Server, GivenNoHttpWhenHeardThenStatus400AndTheConnectionEnds) {
  const auto server = StartServer(Echo);
  RawClient client(*server);
  ASSERT_TRUE(client.Say("\x16\x03\x01 this is no HTTP\r\n\r\n"));
  EXPECT_TRUE(client.Hear().starts_with("HTTP/1.1 400 "));
  EXPECT_EQ(server->counters().refused, 1U);
}

TEST(Server, GivenAHeadThatNeverEndsWhenTheDeadlinePassesThenStatus408) {
  ServerOptions options;
  options.header_timeout = 50ms;
  const auto server = StartServer(Echo, options);
  RawClient client(*server);
  ASSERT_TRUE(client.Say("GET / HTTP/1.1\r\nHost:"));
  EXPECT_TRUE(client.Hear().starts_with("HTTP/1.1 408 "));
}

TEST(Server, GivenABodyThatNeverComesWhenTheDeadlinePassesThenStatus408) {
  for (const Duration timeout : {Duration(5ms), Duration(200ms)}) {  // a thread waits for it, and none does any more
    ServerOptions options;
    options.body_timeout = timeout;
    const auto server = StartServer(Echo, options);
    RawClient client(*server);
    ASSERT_TRUE(client.Say("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"));
    EXPECT_TRUE(client.Hear().starts_with("HTTP/1.1 408 "));
    EXPECT_EQ(server->counters().refused, 1U);
  }
}

TEST(Server, GivenSilentClientsWhenAThreadIsNeededThenTheyHoldNone) {
  ServerOptions options;
  options.max_threads = 1;
  const auto server = StartServer(Echo, options);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(std::make_unique<RawClient>(*server));
  EXPECT_TRUE(ClientOf(*server)->Send(Post("x")));
}

TEST(Server, GivenSlowBodies_ThenTheyHoldNoThreadAndAreServedWhenWhole) {
  ServerOptions options;
  options.max_threads = 1;
  const auto server = StartServer(Echo, options);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(std::make_unique<RawClient>(*server));
    ASSERT_TRUE(slow.back()->Say("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n" + std::to_string(i % 10)));
  }
  const auto client = ClientOf(*server);
  for (const char* piece : {"a", "b", "c"}) {
    const Deadline start = Clock::now();
    ASSERT_TRUE(client->Send(Post("x")));
    EXPECT_LT(Clock::now() - start, 10s);
    for (const auto& one : slow) ASSERT_TRUE(one->Say(piece));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(slow[static_cast<std::size_t>(i)]->HearSome().ends_with("\r\n\r\n" + std::to_string(i % 10) + "abc"));
  }
}

TEST(Server, GivenMoreConnectionsThanAllowedWhenOneIsQuietThenItMakesRoom) {
  ServerOptions options;
  options.max_connections = 2;
  const auto server = StartServer(Echo, options);
  for (int i = 0; i < 6; ++i) {
    const RawClient quiet(*server);
    const auto client = ClientOf(*server);
    ASSERT_TRUE(client->Send({}));
  }
}

TEST(Server, GivenPipelinedRequests_WhenTogether_ThenAllAnsweredInOrder) {
  const auto server = StartServer([](const Request& request) { return Response{200, {}, request.target, {}}; });
  RawClient client(*server);
  ASSERT_TRUE(
      client.Say("GET /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\n\r\nGET /three HTTP/1.1\r\n"
                 "Connection: close\r\n\r\n"));
  const std::string heard = client.Hear();
  const auto one = heard.find("/one");
  const auto two = heard.find("/two");
  const auto three = heard.find("/three");
  EXPECT_TRUE(one < two && two < three && three != std::string::npos) << heard;
}

TEST(Server, GivenJoinedAnswers_WhenCutOrAwaitingBody_ThenEarlierOnesCome) {
  ServerOptions options;
  options.join_answers = true;
  const auto server = StartServer(
      [](const Request& request) {
        Response response{200, {}, request.target, {}};
        response.abort = request.target == "/cut";
        return response;
      },
      options);
  RawClient cut(*server);
  ASSERT_TRUE(cut.Say("GET /one HTTP/1.1\r\n\r\nGET /two HTTP/1.1\r\n\r\nGET /cut HTTP/1.1\r\n\r\n"));
  const std::string heard = cut.Hear();
  EXPECT_TRUE(heard.find("/one") < heard.find("/two") && heard.ends_with("/two")) << heard;

  RawClient waiting(*server);
  ASSERT_TRUE(
      waiting.Say("GET /one HTTP/1.1\r\n\r\nPOST /two HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
                  "Connection: close\r\n\r\n"));
  EXPECT_TRUE(waiting.HearSome().ends_with("/oneHTTP/1.1 100 Continue\r\n\r\n"));
  ASSERT_TRUE(waiting.Say("ok"));
  EXPECT_TRUE(waiting.Hear().ends_with("/two"));
}

TEST(Server, GivenExpectContinueWhenReceivedThenTheBodyIsAskedFor) {
  const auto server = StartServer(Echo);
  RawClient client(*server);
  ASSERT_TRUE(client.Say("POST / HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"));
  EXPECT_EQ(client.HearSome(), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Say("ok"));
  EXPECT_TRUE(client.Hear().starts_with("HTTP/1.1 200 OK"));
}

TEST(Server, GivenHttp10WhenServedThenTheConnectionEndsWithTheAnswer) {
  const auto server = StartServer(Echo);
  RawClient client(*server);
  ASSERT_TRUE(client.Say("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(client.Hear().starts_with("HTTP/1.1 200 OK"));
}

TEST(Server, GivenThrowingHandler_WhenCalled_ThenStatus500AndServerLives) {
  bool throws = true;
  const auto server = StartServer([&](const Request& request) {
    if (std::exchange(throws, false)) throw std::runtime_error("boom");
    return Echo(request);
  });
  const auto client = ClientOf(*server);
  EXPECT_EQ(client->Send({})->status, 500);
  EXPECT_EQ(client->Send({})->status, 200);
}

TEST(Server, GivenAStreamedAnswerWhenReadThenPiecesArriveBeforeTheEnd) {
  std::promise<void> first_seen;
  auto seen = first_seen.get_future().share();
  const auto server = StartServer([&](const Request&) {
    Response response;
    response.stream = [seen](BodyWriter& out) {
      out.Write("first\n");
      seen.wait();
      out.Write("second\n");
    };
    return response;
  });
  const auto client = ClientOf(*server);
  std::string body;
  const auto end = client->Stream({}, [&](const ResponseStart& start, std::string_view piece) {
    EXPECT_EQ(start.status, 200);
    if (body.empty()) first_seen.set_value();
    body += piece;
    return true;
  });
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(body, "first\nsecond\n");
  EXPECT_TRUE(client->Send({}));
}

TEST(Server, GivenTooManyConnections_WhenOneQuietOneSlow_ThenSlowOneStays) {
  ServerOptions options;
  options.max_connections = 2;
  const auto server = StartServer(Echo, options);
  RawClient slow(*server);
  ASSERT_TRUE(slow.Say("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab"));
  const auto idle = ClientOf(*server);
  ASSERT_TRUE(idle->Send({}));
  std::this_thread::sleep_for(100ms);  // both are parked
  ASSERT_TRUE(ClientOf(*server)->Send({}));
  ASSERT_TRUE(slow.Say("cd"));
  EXPECT_TRUE(slow.HearSome().ends_with("\r\n\r\nabcd"));
}

TEST(Server, GivenClientThatHungUp_WhenHandlerLooks_ThenRequestAbandoned) {
  std::promise<bool> noticed;
  const auto server = StartServer([&](const Request& request) {
    const Deadline patience = After(10s);
    while (!request.abandoned() && Clock::now() < patience) std::this_thread::sleep_for(1ms);
    noticed.set_value(request.abandoned());
    return Response{};
  });
  {
    RawClient client(*server);
    ASSERT_TRUE(client.Say("GET / HTTP/1.1\r\n\r\n"));
  }
  EXPECT_TRUE(noticed.get_future().get());
}

// A client that keeps its connection hears with the next answer that it ends; nothing is cut.
TEST(ServerStop, DrainEndsConnectionsWithTheirAnswers) {
  const auto server = StartServer(Echo);
  const auto kept = ClientOf(*server);
  ASSERT_TRUE(kept->Send(Post("before")));
  const auto began = std::chrono::steady_clock::now();
  auto drained = std::async(std::launch::async, [&] { server->Drain(20s); });
  std::this_thread::sleep_for(50ms);
  const auto answer = kept->Send(Post("while"));
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_NE(answer->headers.Find("connection"), nullptr);
  EXPECT_EQ(*answer->headers.Find("connection"), "close");
  const auto late = ClientOf(*server)->Send(Post("late"));
  ASSERT_TRUE(late) << "new connections are served until the stop";
  drained.get();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 15s) << "it waits for connections, not for its time";
}

TEST(ServerStop, GivenARequestInFlightWhenStoppedThenItIsAnsweredFirst) {
  std::latch begun(1);
  std::promise<void> go_on;
  auto may = go_on.get_future().share();
  const auto server = StartServer([&](const Request&) {
    begun.count_down();
    may.wait();
    return Response{200, {}, "finished", {}};
  });
  const auto client = ClientOf(*server);
  auto answer = std::async(std::launch::async, [&] { return client->Send({}); });
  begun.wait();
  auto stopped = std::async(std::launch::async, [&] { server->Stop(30s); });
  EXPECT_EQ(stopped.wait_for(50ms), std::future_status::timeout);
  go_on.set_value();
  const auto response = answer.get();
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "finished");
  stopped.get();
  EXPECT_FALSE(Connect("127.0.0.1", server->port(), After(5s)));
}

TEST(ServerStop, GivenHalfARequestWhenStoppedThenTheRestIsWaitedFor) {
  const auto server = StartServer(Echo);
  RawClient client(*server);
  ASSERT_TRUE(client.Say("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab"));
  std::this_thread::sleep_for(100ms);
  auto stopped = std::async(std::launch::async, [&] { server->Stop(30s); });
  EXPECT_EQ(stopped.wait_for(100ms), std::future_status::timeout);
  ASSERT_TRUE(client.Say("cd"));
  EXPECT_TRUE(client.Hear().ends_with("\r\n\r\nabcd"));
  stopped.get();
}

TEST(ServerStop, GivenQuietAndStreamingOnes_WhenStopped_ThenItTakesNoGrace) {
  std::latch streaming(1);
  const auto server = StartServer([&](const Request& request) {
    Response response;
    if (request.target == "/watch") {
      response.stream = [&](BodyWriter& out) {
        streaming.count_down();
        while (out.Alive()) std::this_thread::sleep_for(1ms);
      };
    }
    return response;
  });
  const RawClient silent(*server);
  const auto quiet = ClientOf(*server);
  ASSERT_TRUE(quiet->Send({}));
  auto watch = std::async(std::launch::async, [&] {
    Call call;
    call.target = "/watch";
    return ClientOf(*server)->Stream(call, [](const ResponseStart&, std::string_view) { return true; });
  });
  streaming.wait();
  const Deadline start = Clock::now();
  server->Stop(60s);
  EXPECT_LT(Clock::now() - start, 20s);
  EXPECT_TRUE(watch.get());
}

TEST(ServerStop, GivenAHandlerThatWaitsOnWhenTheGraceEndsThenItIsToldToGiveUp) {
  std::latch begun(1);
  const auto server = StartServer([&](const Request& request) {
    begun.count_down();
    while (!request.abandoned()) std::this_thread::sleep_for(1ms);
    return Response{};
  });
  const auto client = ClientOf(*server);
  auto answer = std::async(std::launch::async, [&] { return client->Send({}); });
  begun.wait();
  server->Stop(10ms);
  answer.get().has_value();  // cut or answered, but over
}

}  // namespace
}  // namespace hami::net
