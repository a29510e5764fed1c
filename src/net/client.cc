// SPDX-License-Identifier: Apache-2.0

#include "net/client.h"

#include <array>
#include <limits>

#include "net/socket.h"

namespace hami::net {
namespace {

constexpr std::size_t kReadBytes = 32768;
constexpr std::size_t kJoinBytes = 65536;

}  // namespace

struct Client::Attempt {
  const Call& call;
  const BodySink& sink;
  Limits limits;
  Duration silence;
  std::unique_ptr<net::Stream> connection;
  bool answered = false;  // the first byte of the answer came
  bool reusable = false;
};

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
  auto fd = Connect(origin_.host, origin_.port, call.deadline, call.canceller);
  if (!fd) return tl::unexpected(fd.error());
  auto connection = std::make_unique<net::Stream>(*std::move(fd));
  connection->set_deadline(call.deadline);
  connection->set_canceller(call.canceller);
  if (tls_) {
    const std::string& name = options_.tls.server_name.empty() ? origin_.host : options_.tls.server_name;
    HAMI_NET_TRY(connection->ConnectTls(tls_->Get(), name, !options_.tls.insecure));
  }
  return connection;
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
  const std::scoped_lock lock(mutex_);
  if (idle_.size() < options_.max_idle) idle_.push_back({std::move(connection), After(options_.idle_time)});
}

Result<ResponseStart> Client::Exchange(Attempt& attempt) {
  const Call& call = attempt.call;
  net::Stream& connection = *attempt.connection;
  connection.set_deadline(call.deadline);
  connection.set_canceller(call.canceller);
  Request request{call.method, origin_.path + call.target, {{"Host", origin_.Authority()}}, call.body, {}};
  request.headers.insert(request.headers.end(), call.headers.begin(), call.headers.end());
  std::string head = RequestHead(request);
  const bool join = call.body.size() <= kJoinBytes;
  if (join) head += call.body;
  HAMI_NET_TRY(connection.Write(head));
  if (!join) HAMI_NET_TRY(connection.Write(call.body));

  ResponseParser parser(attempt.limits, call.method == "HEAD");
  ResponseStart start;
  std::string unread;
  std::array<char, kReadBytes> buffer;
  while (true) {
    connection.set_deadline(std::min(call.deadline, After(attempt.silence)));
    auto got = connection.Read(buffer);
    if (!got) return tl::unexpected(got.error());
    if (*got == 0) HAMI_NET_TRY(parser.Finish());
    attempt.answered = attempt.answered || *got > 0;
    unread.append(buffer.data(), *got);
    auto taken = parser.Feed(unread);
    if (!taken) return tl::unexpected(taken.error());
    unread.erase(0, *taken);
    if (!parser.head_done()) continue;
    if (start.status == 0) start = {parser.status(), parser.headers()};
    const std::string piece = parser.TakeBody();
    if (!piece.empty() && !attempt.sink(start, piece)) return start;
    if (!parser.done()) continue;
    // Bytes after the answer belong to nothing we asked.
    attempt.reusable = *got > 0 && unread.empty() && parser.keep_alive();
    return start;
  }
}

Result<ResponseStart> Client::Stream(const Call& call, const BodySink& sink, Duration silence) {
  if (call.canceller != nullptr && call.canceller->cancelled()) return Fail(Cause::kCancelled, "cancelled");
  Limits limits = options_.limits;
  limits.body_bytes = std::numeric_limits<std::uint64_t>::max();
  const bool repeatable = call.method == "GET" || call.method == "HEAD";
  while (true) {
    Attempt attempt{call, sink, limits, silence, TakeIdle()};
    const bool pooled = attempt.connection != nullptr;
    if (!pooled) {
      auto connection = NewConnection(call);
      if (!connection) return tl::unexpected(connection.error());
      attempt.connection = *std::move(connection);
    }
    auto answer = Exchange(attempt);
    if (attempt.reusable) GiveBack(std::move(attempt.connection));
    const bool stale = !answer && answer.error().cause == Cause::kClosed && pooled && !attempt.answered;
    if (!stale || !repeatable) return answer;
  }
}

Result<Response> Client::Send(const Call& call) {
  Response response;
  bool too_large = false;
  auto start = Stream(call, [&](const ResponseStart&, std::string_view piece) {
    too_large = response.body.size() + piece.size() > options_.limits.body_bytes;
    if (!too_large) response.body += piece;
    return !too_large;
  });
  if (!start) return tl::unexpected(start.error());
  if (too_large) return Fail(Cause::kTooLarge, "the answer is larger than allowed");
  response.status = start->status;
  response.headers = std::move(start->headers);
  return response;
}

}  // namespace hami::net
