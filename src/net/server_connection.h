// SPDX-License-Identifier: Apache-2.0
//
// One connection of a server, from its accept to its end: reads requests, calls the handler, writes answers. Knows
// nothing of threads or of other connections. Internal to server.cc.

#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "net/http.h"
#include "net/server.h"
#include "net/stream.h"

namespace hami::net {

// What the connections of one server share.
struct ServerShared {
  ServerOptions options;
  Handler handler;
  std::unique_ptr<ReloadingContext> tls;  // null: plain
  Canceller stopping;                     // no new requests
  Canceller cutting;                      // no new bytes either
  std::atomic<bool> draining = false;     // a connection ends with its answer
  std::atomic<std::uint64_t> connections = 0;
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> refused = 0;
  std::atomic<std::uint64_t> large_bodies = 0;    // bytes
  std::atomic<Deadline> tell_again = Deadline{};  // of requests that were too large: once in a while
};

// What one body has of the room for large ones. Given back at its end.
class BodyShare {
 public:
  explicit BodyShare(ServerShared& shared) : shared_(shared) {}
  ~BodyShare() { GiveBack(); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;
  // For a body of which BYTES have come; an error where there is no room.
  Status GrowTo(std::uint64_t bytes);
  void GiveBack();

 private:
  ServerShared& shared_;
  std::uint64_t bytes_ = 0;
};

// Writes for as long as the client makes it wait no longer than it may.
class PatientWriter {
 public:
  PatientWriter(Stream& stream, Duration patience) : stream_(stream), patience_(patience), left_(patience) {}
  Status Write(std::string_view bytes, Deadline latest = kNever);
  void Renew() { left_ = patience_; }

 private:
  Stream& stream_;
  const Duration patience_;
  Duration left_;
};

class ServerConnection {
 public:
  ServerConnection(ServerShared& shared, base::Fd fd)
      : shared_(shared), stream_(std::move(fd)), writer_(stream_, shared.options.write_timeout), share_(shared) {}

  // Serves one request, or what there is of it: a client that is slow to send holds no thread meanwhile.
  enum class Turn { kOver, kServed, kQuiet };
  Turn ServeOne();
  // When the request of which a part is here is to be here; nothing where none has begun.
  std::optional<Deadline> due() const { return begun_ ? std::optional(due_) : std::nullopt; }
  // Whether the next request has begun to arrive, looking for at most SPAN.
  bool HasMore(Duration span) const;
  int fd() const { return stream_.fd(); }

 private:
  // What has come, in BUFFER; nothing at the peer's orderly end.
  Result<std::string_view> ReadSome(std::span<char> buffer);
  // Until it has no more to read without waiting.
  Status ReadRequest();
  Status ReadRest(std::span<char> buffer, std::string_view fresh);
  // Whether the client was only slow, and has time left.
  bool IsQuiet(const Error& error) const;
  Turn ServeRequest();
  Status Flush(Deadline latest = kNever);
  void TellOnceInAWhile(const Error& error);
  Turn Refuse(const Error& error, bool request_begun);
  bool Answer(const Response& response, bool head_request, bool http_1_0, bool keep_alive);
  bool AnswerStreaming(const Response& response, bool http_1_0);
  Response Handle(const Request& request) const;

  ServerShared& shared_;
  Stream stream_;
  PatientWriter writer_;
  bool greeted_ = false;                 // the TLS handshake, if any, is done
  bool begun_ = false;                   // a request, or the handshake
  Deadline due_ = kNever;                // of the phase that is under way
  Deadline patience_ = kNever;           // until then a thread waits for it
  std::optional<RequestParser> parser_;  // of a request whose first byte is here
  BodyShare share_;
  bool asked_to_continue_ = false;
  std::string unread_;  // received and not yet parsed
  std::string unsent_;  // answers, or the beginning of one
};

}  // namespace hami::net
