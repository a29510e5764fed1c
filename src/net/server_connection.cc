// SPDX-License-Identifier: Apache-2.0

#include "net/server_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/strings.h"

namespace hami::net {
namespace {

constexpr std::size_t kReadBytes = 16384;
constexpr std::size_t kJoinBytes = 65536;                  // bodies up to this go out in one piece with their head
constexpr auto kPatience = std::chrono::milliseconds(20);  // what is sent in one go is here by then
constexpr auto kTellAgain = std::chrono::seconds(10);
constexpr auto kDrainTime = std::chrono::milliseconds(500);

int StatusFor(const Error& error, bool within_head) {
  switch (error.cause) {
    case Cause::kTimeout:
      return 408;
    case Cause::kTooLarge:
      return within_head ? 431 : 413;
    case Cause::kNoRoom:
      return 503;
    case Cause::kProtocol:
      return 400;
    default:
      return 0;
  }
}

// Frames pieces as chunks, or sends them bare to a client that knows no chunks.
class StreamWriter : public BodyWriter {
 public:
  StreamWriter(ServerShared& shared, Stream& stream, PatientWriter& writer, bool chunked)
      : shared_(shared), stream_(stream), writer_(writer), chunked_(chunked) {}

  bool Write(std::string_view piece) override {
    if (!good_ || shared_.stopping.cancelled()) return false;
    if (piece.empty()) return true;
    if (!chunked_) return good_ = writer_.Write(piece).has_value();
    std::array<char, 16> size{};
    const auto end = std::to_chars(size.data(), size.data() + size.size(), piece.size(), 16).ptr;
    std::string framed(size.data(), end);
    framed.reserve(framed.size() + piece.size() + 4);
    framed += "\r\n";
    framed += piece;
    framed += "\r\n";
    return good_ = writer_.Write(framed).has_value();
  }

  bool Alive() override { return good_ && !shared_.stopping.cancelled() && !stream_.PeerGone(); }

  void Cut() override { good_ = false; }

  bool Finish() { return good_ && (!chunked_ || writer_.Write("0\r\n\r\n").has_value()); }

 private:
  ServerShared& shared_;
  Stream& stream_;
  PatientWriter& writer_;
  const bool chunked_;
  bool good_ = true;
};

}  // namespace

Status PatientWriter::Write(std::string_view bytes, Deadline latest) {
  if (bytes.empty()) return {};
  const Deadline begin = Clock::now();
  stream_.set_deadline(std::min(latest, After(left_)));
  Status written = stream_.Write(bytes);
  left_ -= Clock::now() - begin;
  return written;
}

Status BodyShare::GrowTo(std::uint64_t bytes) {
  if (bytes <= shared_.options.small_body_bytes || bytes <= bytes_) return {};
  const std::uint64_t more = bytes - bytes_;
  if (shared_.large_bodies.fetch_add(more) + more > shared_.options.large_bodies_bytes) {
    shared_.large_bodies.fetch_sub(more);
    return Fail(Cause::kNoRoom, "large requests are being answered, and there is no room for another: try again");
  }
  bytes_ = bytes;
  return {};
}

void BodyShare::GiveBack() { shared_.large_bodies.fetch_sub(std::exchange(bytes_, 0)); }

bool ServerConnection::HasMore(Duration span) const {
  return !unread_.empty() || stream_.WaitReadable(After(span), &shared_.stopping).has_value();
}

Result<std::string_view> ServerConnection::ReadSome(std::span<char> buffer) {
  HAMI_NET_TRY(Flush(due_));
  while (true) {
    // A stop ends the doorkeeper, who would look after those that are slow.
    const bool stopping = shared_.stopping.cancelled();
    stream_.set_deadline(stopping ? due_ : std::min(due_, patience_));
    const auto got = stream_.Read(buffer);
    if (got) return std::string_view(buffer.data(), *got);
    if (stopping || !IsQuiet(got.error()) || !shared_.stopping.cancelled()) return tl::unexpected(got.error());
  }
}

bool ServerConnection::IsQuiet(const Error& error) const {
  return error.cause == Cause::kTimeout && Clock::now() < due_;
}

Status ServerConnection::ReadRest(std::span<char> buffer, std::string_view fresh) {
  while (true) {
    const bool had_head = parser_->head_done();
    // What comes goes straight from the buffer to where it belongs.
    const bool straight = unread_.empty();
    if (!straight) unread_.append(fresh);
    auto taken = parser_->Feed(straight ? fresh : std::string_view(unread_));
    if (!taken) return tl::unexpected(taken.error());
    if (straight) {
      unread_ = fresh.substr(*taken);
    } else {
      unread_.erase(0, *taken);
    }
    HAMI_NET_TRY(share_.GrowTo(parser_->body_bytes()));
    if (parser_->done()) return {};
    if (parser_->head_done() && !had_head) due_ = After(shared_.options.body_timeout);
    if (parser_->head_done() && parser_->wants_continue() && !asked_to_continue_) {
      asked_to_continue_ = true;
      unsent_ += "HTTP/1.1 100 Continue\r\n\r\n";
    }
    const auto more = ReadSome(buffer);
    if (!more) return tl::unexpected(more.error());
    if (more->empty()) return Fail(Cause::kClosed, "the client went away");
    fresh = *more;
  }
}

Status ServerConnection::ReadRequest() {
  if (!greeted_ && shared_.tls) {
    stream_.set_deadline(std::min(due_, patience_));
    HAMI_NET_TRY(stream_.AcceptTls(shared_.tls->Get()));
  }
  greeted_ = true;
  std::array<char, kReadBytes> buffer;
  std::string_view fresh;
  if (parser_ || unread_.empty()) {
    const auto first = ReadSome(buffer);
    if (!first) return tl::unexpected(first.error());
    if (first->empty()) return Fail(Cause::kClosed, "the client went away");
    fresh = *first;
  }
  stream_.set_canceller(&shared_.cutting);
  if (!parser_) parser_.emplace(shared_.options.limits, shared_.options.body_limit);
  return ReadRest(buffer, fresh);
}

ServerConnection::Turn ServerConnection::ServeOne() {
  if (!begun_) {
    begun_ = true;
    due_ = After(shared_.options.header_timeout);
    patience_ = After(kPatience);
    asked_to_continue_ = false;
    if (unread_.empty()) writer_.Renew();
  }
  // Until its first byte is here a request has not begun, and a stop need not wait for it.
  stream_.set_canceller(parser_ ? &shared_.cutting : &shared_.stopping);
  if (const auto read = ReadRequest(); !read) {
    if (IsQuiet(read.error())) return Turn::kQuiet;
    if (!greeted_) shared_.refused.fetch_add(1, std::memory_order_relaxed);
    return Refuse(read.error(), parser_.has_value());
  }
  begun_ = false;
  const Turn turn = ServeRequest();
  share_.GiveBack();
  return turn;
}

ServerConnection::Turn ServerConnection::ServeRequest() {
  const bool http_1_0 = parser_->is_http_1_0();
  bool keep_alive = parser_->keep_alive();
  Request request = parser_->Take();
  parser_.reset();
  request.abandoned = [this] { return shared_.cutting.cancelled() || stream_.PeerGone(); };
  const Response response = Handle(request);
  shared_.requests.fetch_add(1, std::memory_order_relaxed);
  if (response.abort) {
    (void)Flush();
    return Turn::kOver;
  }
  if (response.stream && request.method != "HEAD") {
    keep_alive = AnswerStreaming(response, http_1_0) && keep_alive;
  } else {
    request.body = {};  // whoever reads the answer finds its room
    share_.GiveBack();
    keep_alive = keep_alive && !shared_.draining.load() && !shared_.stopping.cancelled();
    keep_alive = Answer(response, request.method == "HEAD", http_1_0, keep_alive);
  }
  return keep_alive ? Turn::kServed : Turn::kOver;
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
  if (unsent_.size() + body.size() > kJoinBytes) return Flush() && writer_.Write(body) && keep_alive;
  unsent_ += body;
  const bool another = shared_.options.join_answers && keep_alive && !unread_.empty();
  return (another || Flush()) && keep_alive;
}

Status ServerConnection::Flush(Deadline latest) { return writer_.Write(std::exchange(unsent_, {}), latest); }

bool ServerConnection::AnswerStreaming(const Response& response, bool http_1_0) {
  unsent_ += ResponseHead(response, !http_1_0, !http_1_0);
  if (!Flush()) return false;
  StreamWriter writer(shared_, stream_, writer_, !http_1_0);
  try {
    response.stream(writer);
  } catch (const std::exception& exception) {
    // The head is out: cutting the connection is the only way left to tell the client.
    base::LogError(std::string("streaming handler failed: ") + exception.what());
    return false;
  }
  return writer.Finish() && !http_1_0 && !shared_.stopping.cancelled();
}

void ServerConnection::TellOnceInAWhile(const Error& error) {
  Deadline then = shared_.tell_again.load();
  if (Clock::now() < then || !shared_.tell_again.compare_exchange_strong(then, After(kTellAgain))) return;
  base::LogWarning("a request was refused: " + base::Printable(error.message));
}

ServerConnection::Turn ServerConnection::Refuse(const Error& error, bool request_begun) {
  const int status = request_begun ? StatusFor(error, parser_ && !parser_->head_done()) : 0;
  if (request_begun) shared_.refused.fetch_add(1, std::memory_order_relaxed);
  if (status == 0) return Turn::kOver;
  // Senders such as kube-scheduler report the status and not the text.
  if (status == 413 || status == 503) TellOnceInAWhile(error);
  // What has come of it is no longer wanted.
  parser_.reset();
  share_.GiveBack();
  Response response{status, {{"Content-Type", "text/plain"}}, error.message + "\n", {}};
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  unsent_ += ResponseHead(response, false, false) + response.body;
  if (Flush(After(kDrainTime))) stream_.Drain(After(kDrainTime));
  return Turn::kOver;
}

}  // namespace hami::net
