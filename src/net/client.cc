// SPDX-License-Identifier: Apache-2.0

#include "net/client.h"

#include <algorithm>
#include <array>
#include <limits>

#include "net/socket.h"

namespace hami::net {
namespace {

constexpr std::size_t kReadBytes = 32768;
constexpr std::size_t kJoinBytes = 65536;
constexpr std::size_t kUsualHeadBytes = 512;

std::string LinesOf(const Url& origin, const Headers& headers) {
  return HeaderLines({{"Host", origin.Authority()}}) + HeaderLines(headers);
}

// The whole body, up to a limit.
class Collector {
 public:
  explicit Collector(std::uint64_t most) : most_(most) {}

  BodySink sink() {
    return [this](const ResponseStart&, std::string_view piece) {
      too_large_ = response_.body.size() + piece.size() > most_;
      if (!too_large_) response_.body += piece;
      return !too_large_;
    };
  }
  Result<Response> Take(Result<ResponseStart> start) {
    if (!start) return tl::unexpected(start.error());
    if (too_large_) return Fail(Cause::kTooLarge, "the answer is larger than allowed");
    response_.status = start->status;
    response_.headers = std::move(start->headers);
    return std::move(response_);
  }

 private:
  const std::uint64_t most_;
  Response response_;
  bool too_large_ = false;
};

}  // namespace

struct Client::Attempt {
  const Call* call = nullptr;
  std::unique_ptr<net::Stream> connection;
  bool pooled = false;       // the connection has served before
  bool one_of_many = false;  // answers of others come over it, too
  Limits limits{};
  Duration silence = Duration::max();
  std::string unread{};   // received behind the answer before
  bool answered = false;  // the first byte of the answer came
  bool reusable = false;
};

Client::Client(Url origin, const ClientOptions& options)
    : origin_(std::move(origin)), options_(options), lines_(LinesOf(origin_, options.headers)) {}

Result<std::unique_ptr<Client>> Client::Make(const Url& origin, const ClientOptions& options) {
  std::unique_ptr<Client> client(new Client(origin, options));
  if (origin.tls) {
    auto tls = ConnectWith(options.tls);
    if (!tls) return tl::unexpected(tls.error());
    client->tls_ = *std::move(tls);
  }
  return client;
}

Result<std::unique_ptr<net::Stream>> Client::NewConnection(const Call& call) {
  const Url& first = options_.proxy ? options_.proxy->url : origin_;
  auto fd = Connect(first.host, first.port, call.deadline, call.canceller);
  if (!fd && options_.proxy) return Fail(fd.error().cause, "proxy " + first.Authority() + ": " + fd.error().message);
  if (!fd) return tl::unexpected(fd.error());
  auto connection = std::make_unique<net::Stream>(*std::move(fd));
  connection->set_deadline(call.deadline);
  connection->set_canceller(call.canceller);
  if (options_.proxy) HAMI_NET_TRY(PassProxy(*connection));
  if (tls_) {
    const std::string& name = options_.tls.server_name.empty() ? origin_.host : options_.tls.server_name;
    HAMI_NET_TRY(connection->ConnectTls(tls_->Get(), name, !options_.tls.insecure));
  }
  return connection;
}

// Nothing comes behind the proxy's answer: on such a connection the client speaks first.
Status Client::PassProxy(net::Stream& connection) const {
  const std::string who = "proxy " + options_.proxy->url.Authority() + ": ";
  const bool v6 = origin_.host.find(':') != std::string::npos;
  const std::string target = (v6 ? "[" + origin_.host + "]" : origin_.host) + ":" + std::to_string(origin_.port);
  Headers headers{{"Host", target}};
  if (const std::string& word = options_.proxy->authorization; !word.empty()) {
    headers.emplace_back("Proxy-Authorization", word);
  }
  HAMI_NET_TRY(connection.Write("CONNECT " + target + " HTTP/1.1\r\n" + HeaderLines(headers) + "\r\n"));
  ResponseParser parser(options_.limits, true);
  std::array<char, kUsualHeadBytes> buffer;
  while (!parser.head_done()) {
    const auto got = connection.Read(buffer);
    if (!got) return Fail(got.error().cause, who + got.error().message);
    if (*got == 0) return Fail(Cause::kClosed, who + "it closed the connection");
    const auto taken = parser.Feed({buffer.data(), *got});
    if (!taken) return Fail(taken.error().cause, who + taken.error().message);
    if (*taken < *got && !parser.head_done()) return Fail(Cause::kProtocol, who + "its answer cannot be read");
  }
  if (parser.status() / 100 == 2) return {};
  return Fail(Cause::kConnect, who + "it does not connect to " + target + ": status " +
                                   std::to_string(parser.status()) +
                                   (parser.status() == 407 ? ", it wants a user and a password in its URL" : ""));
}

std::unique_ptr<net::Stream> Client::TakeIdle() {
  const Deadline now = Clock::now();
  while (true) {
    std::unique_ptr<net::Stream> connection;
    {
      const std::scoped_lock lock(mutex_);
      if (idle_.empty()) return nullptr;
      if (idle_.back().until > now) connection = std::move(idle_.back().connection);
      idle_.pop_back();
    }
    // Something to read on a quiet connection is its end.
    if (connection && !connection->ReadableNow()) return connection;
  }
}

void Client::GiveBack(std::unique_ptr<net::Stream> connection) {
  connection->set_canceller(nullptr);
  std::vector<Idle> over;  // closed without the lock
  const Deadline now = Clock::now();
  const std::scoped_lock lock(mutex_);
  // What is used comes last: after a rush the first would lie there for ever, long closed by the server.
  const auto first = std::find_if(idle_.begin(), idle_.end(), [&](const Idle& idle) { return idle.until > now; });
  over.assign(std::make_move_iterator(idle_.begin()), std::make_move_iterator(first));
  idle_.erase(idle_.begin(), first);
  if (idle_.size() < options_.max_idle) idle_.push_back({std::move(connection), After(options_.idle_time)});
}

void Client::AppendMessage(std::string& out, const Call& call, bool with_body) const {
  AppendRequestHead(out, call.method, origin_.path, call.target, lines_, call.headers, call.body.size());
  if (with_body) out += call.body;
}

Result<Client::Attempt> Client::Connected(const Call& call) {
  Attempt attempt{.call = &call, .connection = TakeIdle(), .limits = options_.limits};
  attempt.pooled = attempt.connection != nullptr;
  if (!attempt.pooled) {
    auto connection = NewConnection(call);
    if (!connection) return tl::unexpected(connection.error());
    attempt.connection = *std::move(connection);
  }
  attempt.connection->set_deadline(call.deadline);
  attempt.connection->set_canceller(call.canceller);
  return attempt;
}

Status Client::Ask(Attempt& attempt) const {
  const Call& call = *attempt.call;
  const bool join = call.body.size() <= kJoinBytes;
  std::string message;
  message.reserve(kUsualHeadBytes + (join ? call.body.size() : 0));
  AppendMessage(message, call, join);
  HAMI_NET_TRY(attempt.connection->Write(message));
  if (!join) HAMI_NET_TRY(attempt.connection->Write(call.body));
  // The answer can not be here yet: looking for it first would be in vain.
  return attempt.connection->WaitReadable(std::min(call.deadline, After(attempt.silence)), call.canceller);
}

Result<ResponseStart> Client::ReadAnswer(Attempt& attempt, const BodySink& sink) {
  const Call& call = *attempt.call;
  net::Stream& connection = *attempt.connection;
  ResponseParser parser(attempt.limits, call.method == "HEAD");
  ResponseStart start;
  std::array<char, kReadBytes> buffer;
  attempt.answered = !attempt.unread.empty();
  for (bool read = !attempt.answered;; read = true) {
    bool ended = false;
    if (read) {
      // Its end, by time or by cancellation, is no news to the read that follows.
      const bool more = attempt.answered || attempt.one_of_many;
      if (call.rest > Duration::zero() && more && !connection.ReadableNow()) {
        (void)WaitReady(-1, 0, std::min(call.deadline, After(call.rest)), call.canceller);
      }
      connection.set_deadline(std::min(call.deadline, After(attempt.silence)));
      const auto got = connection.Read(buffer);
      if (!got) return tl::unexpected(got.error());
      ended = *got == 0;
      if (ended) HAMI_NET_TRY(parser.Finish());
      attempt.answered = attempt.answered || !ended;
      attempt.unread.append(buffer.data(), *got);
    }
    auto taken = parser.Feed(attempt.unread);
    if (!taken) return tl::unexpected(taken.error());
    attempt.unread.erase(0, *taken);
    if (!parser.head_done()) continue;
    if (start.status == 0) start = {parser.status(), parser.headers()};
    const std::string piece = parser.TakeBody();
    if (!piece.empty() && !sink(start, piece)) return start;
    if (!parser.done()) continue;
    attempt.reusable = !ended && parser.keep_alive();
    return start;
  }
}

void Client::Finish(Attempt& attempt) {
  // Bytes after the answer belong to nothing we asked.
  if (attempt.reusable && attempt.unread.empty()) GiveBack(std::move(attempt.connection));
}

Result<ResponseStart> Client::Stream(const Call& call, const BodySink& sink, Duration silence) {
  if (call.canceller != nullptr && call.canceller->cancelled()) return Fail(Cause::kCancelled, "cancelled");
  const bool repeatable = call.method == "GET" || call.method == "HEAD";
  while (true) {
    auto attempt = Connected(call);
    if (!attempt) return tl::unexpected(attempt.error());
    attempt->limits.body_bytes = std::numeric_limits<std::uint64_t>::max();
    attempt->silence = silence;
    const Status asked = Ask(*attempt);
    auto answer = asked ? ReadAnswer(*attempt, sink) : tl::unexpected(asked.error());
    Finish(*attempt);
    const bool stale = !answer && answer.error().cause == Cause::kClosed && attempt->pooled && !attempt->answered;
    if (!stale || !repeatable) return answer;
  }
}

Result<Response> Client::Send(const Call& call) {
  Collector collector(options_.limits.body_bytes);
  auto start = Stream(call, collector.sink());
  return collector.Take(std::move(start));
}

std::vector<Result<Response>> Client::SendAll(std::span<const Call> calls) {
  std::vector<Result<Response>> answers;
  if (calls.empty()) return answers;
  auto attempt = Connected(calls.front());
  Status fine = attempt ? Status() : tl::unexpected(attempt.error());
  std::string messages;
  for (const Call& call : calls) AppendMessage(messages, call, true);
  if (fine) fine = attempt->connection->Write(messages);
  if (fine) attempt->one_of_many = true;
  for (const Call& call : calls) {
    if (!fine) {
      answers.push_back(tl::unexpected(fine.error()));
      continue;
    }
    attempt->call = &call;
    Collector collector(options_.limits.body_bytes);
    auto start = ReadAnswer(*attempt, collector.sink());
    answers.push_back(collector.Take(std::move(start)));
    if (!answers.back()) fine = tl::unexpected(answers.back().error());
    if (fine && !attempt->reusable) fine = Fail(Cause::kClosed, "the server closed the connection");
  }
  if (fine) Finish(*attempt);
  return answers;
}

}  // namespace hami::net
