// SPDX-License-Identifier: Apache-2.0

#include "net/client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>
#include <thread>

#include "net/server.h"
#include "net/socket.h"
#include "net/testing/certificates.h"

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

TEST(Client, GivenStreamThatFallsSilent_WhenSilentTooLong_ThenTimeout) {
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

TEST(Client, GivenConnectionClosedByServer_WhenReused_ThenNewOneIsMade) {
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

TEST(Client, GivenAnswerThatEndsEarly_WhenRead_ThenErrorAndNotRepeated) {
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

TEST(Client, GivenManyCalls_WhenSentTogether_ThenOneConnectionAnswersEach) {
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

TEST(Client, GivenConnectionEndAmongAnswers_WhenSentTogether_ThenRestFail) {
  const std::string answer = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
  const ScriptedServer server({answer + answer});
  const auto answers = ClientOf(server.port())->SendAll(std::vector<Call>{PostOf("1"), PostOf("2"), PostOf("3")});
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_TRUE(answers[0] && answers[1]);
  ASSERT_FALSE(answers[2]);
  EXPECT_EQ(answers[2].error().cause, Cause::kClosed);
}

TEST(Client, GivenClosingAnswer_WhenSentTogether_ThenRestIsNoAnswer) {
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

TEST(Client, GivenConnectionsIdleTooLong_WhenAnotherIsUsed_ThenTheyClose) {
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

// A proxy for one connection: says STATUS to CONNECT, and passes bytes on where that is 200.
class TestProxy {
 public:
  explicit TestProxy(int status) : listener_(*Listen("127.0.0.1", 0)), status_(status) {
    thread_ = std::thread([this] { Serve(); });
  }
  ~TestProxy() {
    stop_.Cancel();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(*LocalPort(listener_.get())); }
  // What it was asked; valid after an answer.
  const std::string& asked() const { return asked_; }

 private:
  void Serve() {
    if (!WaitReady(listener_.get(), POLLIN, After(std::chrono::seconds(20)), &stop_)) return;
    Stream near(base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    near.set_canceller(&stop_);
    std::array<char, 16384> buffer{};
    while (asked_.find("\r\n\r\n") == std::string::npos) {
      const auto got = near.Read(buffer);
      if (!got || *got == 0) return;
      asked_.append(buffer.data(), *got);
    }
    const std::string target = asked_.substr(8, asked_.find(' ', 8) - 8);
    const auto url = ParseUrl("http://" + target);
    (void)near.Write("HTTP/1.1 " + std::to_string(status_) + " x\r\n\r\n");
    if (status_ != 200 || !url) return;
    Stream far(*Connect(url->host, url->port, After(std::chrono::seconds(20))));
    far.set_canceller(&stop_);
    while (true) {
      std::array<pollfd, 2> ends{{{near.fd(), POLLIN, 0}, {far.fd(), POLLIN, 0}}};
      if (stop_.cancelled() || ::poll(ends.data(), ends.size(), 50) < 0) return;
      for (std::size_t i = 0; i < ends.size(); ++i) {
        if (ends[i].revents == 0) continue;
        const auto got = (i == 0 ? near : far).Read(buffer);
        if (!got || *got == 0) return;
        (void)(i == 0 ? far : near).Write({buffer.data(), *got});
      }
    }
  }

  const base::Fd listener_;
  const int status_;
  Canceller stop_;
  std::string asked_;
  std::thread thread_;
};

TEST(ClientProxyTest, ACallGoesThroughTheProxyOverTls) {
  TestAuthority authority;
  const TestCertificate pair = authority.Issue("localhost", "DNS:localhost,IP:127.0.0.1");
  std::string folder = testing::TempDir() + "/proxy-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_TRUE(base::WriteNewFile(folder + "/tls.crt", pair.certificate_pem, 0600));
  ASSERT_TRUE(base::WriteNewFile(folder + "/tls.key", pair.key_pem, 0600));
  ServerOptions serving;
  serving.tls = TlsFiles{folder + "/tls.crt", folder + "/tls.key"};
  const auto server = Server::Start(serving, [](const Request&) { return Response{200, {}, "through", {}}; });
  ASSERT_TRUE(server);
  const TestProxy proxy(200);
  ClientOptions options;
  options.tls.ca.data = authority.certificate_pem();
  options.proxy = Proxy{*ParseUrl(proxy.url()), "Basic bWU6cGFzcw=="};
  const std::string port = std::to_string((*server)->port());
  const auto client = Client::Make(*ParseUrl("https://127.0.0.1:" + port), options);
  for (int i = 0; i < 2; ++i) {
    const auto answer = (*client)->Send({});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->body, "through");
  }
  EXPECT_EQ(proxy.asked(), "CONNECT 127.0.0.1:" + port + " HTTP/1.1\r\nHost: 127.0.0.1:" + port +
                               "\r\nProxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n");
  std::filesystem::remove_all(folder);
}

TEST(ClientProxyTest, AProxyThatRefusesIsNamed) {
  const TestProxy proxy(407);
  ClientOptions options;
  options.proxy = Proxy{*ParseUrl(proxy.url()), ""};
  const auto client = Client::Make(*ParseUrl("http://127.0.0.1:9"), options);
  const auto answer = (*client)->Send({});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message, "proxy " + proxy.url().substr(7) +
                                        ": it does not connect to 127.0.0.1:9: status 407, it wants a user and a "
                                        "password in its URL");
}

}  // namespace
}  // namespace hami::net
