// SPDX-License-Identifier: Apache-2.0

#include "net/client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <iterator>
#include <thread>

#include "net/server.h"
#include "net/socket.h"

namespace hami::net {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Client> ClientOf(std::uint16_t port) { return *Client::Make({false, "127.0.0.1", port, ""}, {}); }

// Accepts one connection after another and plays a script for each; what it hears it keeps.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers) : listener_(*Listen("127.0.0.1", 0)) {
    port_ = *LocalPort(listener_.get());
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const std::string& answer : answers) Play(answer);
    });
  }
  ~ScriptedServer() {
    over_.Cancel();
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  int accepted() const { return accepted_; }

 private:
  void Play(const std::string& answer) {
    if (!WaitReady(listener_.get(), POLLIN, After(10s), &over_)) return;
    Stream stream(base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    ++accepted_;
    stream.set_deadline(After(10s));
    stream.set_canceller(&over_);
    std::array<char, 4096> buffer;
    if (!stream.Read(buffer)) return;
    if (stream.Write(answer)) stream.Drain(After(50ms));
  }

  base::Fd listener_;
  std::uint16_t port_ = 0;
  Canceller over_;
  std::atomic<int> accepted_ = 0;
  std::thread thread_;
};

TEST(Client, GivenNobodyListeningWhenSentThenTheCauseIsConnect) {
  const auto listener = Listen("127.0.0.1", 0);
  const std::uint16_t port = *LocalPort(listener->get());
  const_cast<base::Fd&>(*listener).Reset();
  const auto response = ClientOf(port)->Send({});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().cause, Cause::kConnect);
}

TEST(Client, GivenANameWhenConnectingThenItIsResolved) {
  const auto server = *Server::Start({}, [](const Request&) { return Response{}; });
  EXPECT_TRUE((*Client::Make({false, "localhost", server->port(), ""}, {}))->Send({}));
}

TEST(Client, GivenASilentServerWhenTheDeadlinePassesThenTimeout) {
  const auto listener = Listen("127.0.0.1", 0);
  Call call;
  call.deadline = After(50ms);
  const auto response = ClientOf(*LocalPort(listener->get()))->Send(call);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().cause, Cause::kTimeout);
}

TEST(Client, GivenAStreamThatFallsSilentWhenSilenceLastsTooLongThenTimeout) {
  const auto server = *Server::Start({}, [](const Request&) {
    Response response;
    response.stream = [](BodyWriter& out) {
      out.Write("abc");
      while (out.Alive()) std::this_thread::sleep_for(1ms);
    };
    return response;
  });
  std::string body;
  const auto end = ClientOf(server->port())
                       ->Stream(
                           {},
                           [&](const ResponseStart&, std::string_view piece) {
                             body += piece;
                             return true;
                           },
                           50ms);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().cause, Cause::kTimeout);
  EXPECT_TRUE(body.empty() || body == "abc");
}

TEST(Client, GivenACallInProgressWhenCancelledThenItEndsAtOnce) {
  const auto listener = Listen("127.0.0.1", 0);
  Canceller stop;
  Call call;
  call.deadline = After(60s);
  call.canceller = &stop;
  const auto client = ClientOf(*LocalPort(listener->get()));
  auto answer = std::async(std::launch::async, [&] { return client->Send(call); });
  EXPECT_EQ(answer.wait_for(20ms), std::future_status::timeout);
  const Deadline start = Clock::now();
  stop.Cancel();
  const auto response = answer.get();
  EXPECT_LT(Clock::now() - start, 20s);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().cause, Cause::kCancelled);
  EXPECT_EQ(client->Send(call).error().cause, Cause::kCancelled);
}

TEST(Client, GivenAConnectionThatTheServerClosedWhenReusedThenANewOneIsMade) {
  // Announces a connection that lives on, and closes it.
  const std::string lie = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  const ScriptedServer server({lie, lie, lie});
  const auto client = ClientOf(server.port());
  for (int i = 0; i < 3; ++i) {
    const auto response = client->Send({});
    ASSERT_TRUE(response) << i << ": " << response.error().message;
    EXPECT_EQ(response->body, "ok");
  }
  EXPECT_EQ(server.accepted(), 3);
}

TEST(Client, GivenAnAnswerThatEndsEarlyWhenReadThenItIsAnErrorAndNotRepeated) {
  const ScriptedServer server({"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"});
  const auto response = ClientOf(server.port())->Send({});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().cause, Cause::kClosed);
  EXPECT_EQ(server.accepted(), 1);
}

TEST(Client, GivenASinkThatHadEnoughWhenStreamingThenTheCallEnds) {
  const ScriptedServer server({"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc"});
  std::string body;
  const auto end = ClientOf(server.port())->Stream({}, [&](const ResponseStart&, std::string_view piece) {
    body += piece;
    return false;
  });
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(body, "abc");
}

TEST(Client, GivenAStreamWithARestWhenAllIsReadThenWhatComesNextWaits) {
  constexpr int kPieces = 2000;
  std::atomic<int> heard = 0;
  Canceller stop;
  // The next piece is written as soon as the one before has arrived: without a rest they would all go to and fro.
  const auto server = *Server::Start({}, [&](const Request&) {
    Response response;
    response.stream = [&](BodyWriter& out) {
      for (int i = 1; i <= kPieces && heard == i - 1 && out.Write("x"); ++i) {
        // On a busy machine the rest begins with the head of the answer, and the first piece comes with its end.
        const Deadline end = After(i == 1 ? Duration(3s) : Duration(100ms));
        while (heard < i && Clock::now() < end) std::this_thread::yield();
      }
      stop.Cancel();
    };
    return response;
  });
  Call call;
  call.rest = 1h;
  call.deadline = kNever;
  call.canceller = &stop;
  const auto end = ClientOf(server->port())->Stream(call, [&](const ResponseStart&, std::string_view piece) {
    heard += static_cast<int>(piece.size());
    return true;
  });
  // What came during the rest, which the cancellation ended, is not lost.
  EXPECT_TRUE(end || end.error().cause == Cause::kCancelled);
  EXPECT_LT(heard, kPieces);
  EXPECT_GE(heard, 1);
}

TEST(Client, GivenManyThreadsWhenCallingAtOnceThenEveryAnswerIsItsOwn) {
  const auto server = *Server::Start({}, [](const Request& request) { return Response{200, {}, request.target, {}}; });
  const auto client = ClientOf(server->port());
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          Call call;
          call.target = "/" + std::to_string(t) + "/" + std::to_string(i);
          const auto response = client->Send(call);
          if (!response || response->body != call.target) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(server->counters().connections, 16U);
}

TEST(Canceller, GivenASleeperWhenCancelledThenItWakes) {
  Canceller stop;
  auto slept = std::async(std::launch::async, [&] { return stop.SleepUntil(After(60s)); });
  stop.Cancel();
  EXPECT_TRUE(slept.get());
  EXPECT_TRUE(stop.SleepUntil(kNever));
  const Canceller other;
  EXPECT_FALSE(other.SleepUntil(After(1ms)));
}

Call PostOf(const std::string& body) {
  Call call;
  call.method = "POST";
  call.body = body;
  return call;
}

TEST(Client, GivenManyCallsWhenSentTogetherThenEachHasItsAnswerAndOneConnectionServedThemAll) {
  const auto server = *Server::Start({}, [](const Request& request) {
    return Response{request.body == "refuse" ? 409 : 201, {}, "re: " + request.body, {}};
  });
  const auto client = ClientOf(server->port());
  const std::vector<Call> calls{PostOf("a"), PostOf("refuse"), PostOf(std::string(50'000, 'x')), PostOf("")};
  for (int round = 0; round < 2; ++round) {
    const auto answers = client->SendAll(calls);
    ASSERT_EQ(answers.size(), calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      ASSERT_TRUE(answers[i]) << answers[i].error().message;
      EXPECT_EQ(answers[i]->status, i == 1 ? 409 : 201);
      EXPECT_EQ(answers[i]->body, "re: " + calls[i].body);
    }
  }
  EXPECT_EQ(server->counters().connections, 1U);
  EXPECT_TRUE(client->SendAll({}).empty());
}

TEST(Client, GivenAConnectionThatEndsAmongTheAnswersWhenSentTogetherThenTheRestAreErrors) {
  const std::string answer = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
  const ScriptedServer server({answer + answer});
  const auto answers = ClientOf(server.port())->SendAll(std::vector<Call>{PostOf("1"), PostOf("2"), PostOf("3")});
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_TRUE(answers[0] && answers[1]);
  ASSERT_FALSE(answers[2]);
  EXPECT_EQ(answers[2].error().cause, Cause::kClosed);
}

TEST(Client, GivenAServerThatEndsTheConnectionWithItsAnswerWhenSentTogetherThenWhatFollowsIsNoAnswer) {
  const ScriptedServer server(
      {"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
       "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"});
  const auto answers = ClientOf(server.port())->SendAll(std::vector<Call>{PostOf("1"), PostOf("2")});
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_TRUE(answers[0]);
  EXPECT_FALSE(answers[1]);
}

TEST(Client, GivenNobodyListeningWhenSentTogetherThenEveryCallFails) {
  std::uint16_t port = 0;
  {
    const auto listener = Listen("127.0.0.1", 0);
    port = *LocalPort(listener->get());
  }
  const auto answers = ClientOf(port)->SendAll(std::vector<Call>{PostOf("1"), PostOf("2")});
  ASSERT_EQ(answers.size(), 2U);
  for (const auto& answer : answers) EXPECT_EQ(answer.error().cause, Cause::kConnect);
}

TEST(Client, GivenConnectionsThatAreIdleForTooLongWhenAnotherIsUsedThenTheyAreClosed) {
  std::atomic<int> here = 0;
  std::atomic<bool> together = true;
  const auto server = *Server::Start({}, [&](const Request&) {
    ++here;
    while (together && here < 8) std::this_thread::sleep_for(1ms);
    return Response{};
  });
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  ClientOptions options;
  options.idle_time = 300ms;
  const auto client = *Client::Make({false, "127.0.0.1", server->port(), ""}, options);
  const auto before = open();
  {
    std::vector<std::jthread> calls;
    for (int i = 0; i < 8; ++i) calls.emplace_back([&] { EXPECT_TRUE(client->Send({})); });
  }
  together = false;
  EXPECT_EQ(open() - before, 16) << "both ends are ours";
  // One is in use all the time.
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(client->Send({}));
  }
  EXPECT_EQ(open() - before, 2);
}

}  // namespace
}  // namespace hami::net
