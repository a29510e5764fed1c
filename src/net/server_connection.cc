// SPDX-License-Identifier: Apache-2.0

#include "net/server_connection.h"

#include <array>
#include <charconv>
#include <exception>
#include <utility>

#include "base/log.h"

namespace hami::net {
namespace {

constexpr std::size_t kReadBytes = 16384;
constexpr std::size_t kJoinBytes = 65536;  // bodies up to this go out in one piece with their head
constexpr auto kDrainTime = std::chrono::milliseconds(500);

int StatusFor(const Error& error) {
  switch (error.cause) {
    case Cause::kTimeout:
      return 408;
    case Cause::kTooLarge:
      return error.message.find("header") == std::string::npos ? 413 : 431;
    case Cause::kProtocol:
      return 400;
    default:
      return 0;
  }
}

// Frames pieces as chunks, or sends them bare to a client that knows no chunks.
class StreamWriter : public BodyWriter {
 public:
  StreamWriter(ServerShared& shared, Stream& stream, bool chunked)
      : shared_(shared), stream_(stream), chunked_(chunked) {}

  bool Write(std::string_view piece) override {
    if (!good_ || shared_.stopping.cancelled()) return false;
    if (piece.empty()) return true;
    stream_.set_deadline(After(shared_.options.write_timeout));
    if (!chunked_) return good_ = stream_.Write(piece).has_value();
    std::array<char, 16> size{};
    const auto end = std::to_chars(size.data(), size.data() + size.size(), piece.size(), 16).ptr;
    std::string framed(size.data(), end);
    framed.reserve(framed.size() + piece.size() + 4);
    framed += "\r\n";
    framed += piece;
    framed += "\r\n";
    return good_ = stream_.Write(framed).has_value();
  }

  bool Alive() override { return good_ && !shared_.stopping.cancelled() && !stream_.PeerGone(); }

  void Cut() override { good_ = false; }

  bool Finish() { return good_ && (!chunked_ || stream_.Write("0\r\n\r\n").has_value()); }

 private:
  ServerShared& shared_;
  Stream& stream_;
  const bool chunked_;
  bool good_ = true;
};

}  // namespace

bool ServerConnection::HasMore(Duration span) const {
  return !unread_.empty() || stream_.WaitReadable(After(span), &shared_.stopping).has_value();
}

Result<bool> ServerConnection::ReadSome() {
  HAMI_NET_TRY(Flush());
  std::array<char, kReadBytes> buffer;
  const auto got = stream_.Read(buffer);
  if (!got) return tl::unexpected(got.error());
  unread_.append(buffer.data(), *got);
  return *got > 0;
}

Result<bool> ServerConnection::ReadRequest(RequestParser& parser) {
  bool asked_to_continue = false;
  std::array<char, kReadBytes> buffer;
  std::string_view fresh;
  while (true) {
    const bool had_head = parser.head_done();
    // A large body goes straight from the buffer to where it belongs.
    const bool straight = unread_.empty();
    if (!straight) unread_.append(fresh);
    auto taken = parser.Feed(straight ? fresh : std::string_view(unread_));
    if (!taken) return tl::unexpected(taken.error());
    if (straight) {
      unread_ = fresh.substr(*taken);
    } else {
      unread_.erase(0, *taken);
    }
    if (parser.done()) return true;
    if (parser.head_done() && !had_head) stream_.set_deadline(After(shared_.options.body_timeout));
    if (parser.head_done() && parser.wants_continue() && !asked_to_continue) {
      asked_to_continue = true;
      unsent_ += "HTTP/1.1 100 Continue\r\n\r\n";
    }
    HAMI_NET_TRY(Flush());
    const auto got = stream_.Read(buffer);
    if (!got) return tl::unexpected(got.error());
    if (*got == 0) return Fail(Cause::kClosed, "the client went away");
    fresh = {buffer.data(), *got};
  }
}

bool ServerConnection::ServeOne() {
  stream_.set_deadline(After(shared_.options.header_timeout));
  // Until its first byte is here a request has not begun, and a stop need not wait for it.
  stream_.set_canceller(&shared_.stopping);
  if (!greeted_ && shared_.tls) {
    if (!stream_.AcceptTls(shared_.tls->Get())) {
      shared_.refused.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  }
  greeted_ = true;
  if (unread_.empty()) {
    const auto first = ReadSome();
    if (!first) return Refuse(first.error(), false);
    if (!*first) return false;
  }
  stream_.set_canceller(&shared_.cutting);
  RequestParser parser(shared_.options.limits);
  const auto read = ReadRequest(parser);
  if (!read) return Refuse(read.error(), true);

  const bool http_1_0 = parser.is_http_1_0();
  bool keep_alive = parser.keep_alive();
  Request request = parser.Take();
  request.abandoned = [this] { return shared_.cutting.cancelled() || stream_.PeerGone(); };
  const Response response = Handle(request);
  shared_.requests.fetch_add(1, std::memory_order_relaxed);
  if (response.abort) {
    (void)Flush();
    return false;
  }
  stream_.set_deadline(After(shared_.options.write_timeout));
  if (response.stream && request.method != "HEAD") return AnswerStreaming(response, http_1_0) && keep_alive;
  keep_alive = keep_alive && !shared_.stopping.cancelled();
  return Answer(response, request.method == "HEAD", http_1_0, keep_alive);
}

Response ServerConnection::Handle(const Request& request) const {
  std::string what = "unknown exception";
  try {
    return shared_.handler(request);
  } catch (const std::exception& exception) {
    what = exception.what();
  } catch (...) {
    // Whatever it was must not take the server along.
  }
  base::LogError("handler of " + request.method + " " + request.target + " failed: " + what);
  return Response{500, {}, "internal error\n", {}};
}

bool ServerConnection::Answer(const Response& response, bool head_request, bool http_1_0, bool keep_alive) {
  std::string head = ResponseHead(response, false, keep_alive);
  if (http_1_0 && keep_alive) head.insert(head.size() - 2, "Connection: keep-alive\r\n");
  const std::string_view body = head_request ? std::string_view() : std::string_view(response.body);
  unsent_ += head;
  if (unsent_.size() + body.size() > kJoinBytes) return Flush() && stream_.Write(body) && keep_alive;
  unsent_ += body;
  const bool another = shared_.options.join_answers && keep_alive && !unread_.empty();
  return (another || Flush()) && keep_alive;
}

Status ServerConnection::Flush() { return stream_.Write(std::exchange(unsent_, {})); }

bool ServerConnection::AnswerStreaming(const Response& response, bool http_1_0) {
  unsent_ += ResponseHead(response, !http_1_0, !http_1_0);
  if (!Flush()) return false;
  StreamWriter writer(shared_, stream_, !http_1_0);
  try {
    response.stream(writer);
  } catch (const std::exception& exception) {
    // The head is out: cutting the connection is the only way left to tell the client.
    base::LogError(std::string("streaming handler failed: ") + exception.what());
    return false;
  }
  stream_.set_deadline(After(shared_.options.write_timeout));
  return writer.Finish() && !http_1_0 && !shared_.stopping.cancelled();
}

bool ServerConnection::Refuse(const Error& error, bool request_begun) {
  const int status = request_begun ? StatusFor(error) : 0;
  if (request_begun) shared_.refused.fetch_add(1, std::memory_order_relaxed);
  if (status == 0) return false;
  stream_.set_deadline(After(kDrainTime));
  const Response response{status, {{"Content-Type", "text/plain"}}, error.message + "\n", {}};
  unsent_ += ResponseHead(response, false, false) + response.body;
  if (Flush()) stream_.Drain(After(kDrainTime));
  return false;
}

}  // namespace hami::net
