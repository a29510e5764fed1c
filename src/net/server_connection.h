// SPDX-License-Identifier: Apache-2.0
//
// One connection of a server, from its accept to its end: reads requests, calls the handler, writes answers. Knows
// nothing of threads or of other connections. Internal to server.cc.

#pragma once

#include <atomic>
#include <memory>
#include <string>

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
  std::atomic<std::uint64_t> connections = 0;
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> refused = 0;
};

class ServerConnection {
 public:
  ServerConnection(ServerShared& shared, base::Fd fd) : shared_(shared), stream_(std::move(fd)) {}

  // Serves one request. False: the connection is over.
  bool ServeOne();
  // Whether the next request has begun to arrive, looking for at most SPAN.
  bool HasMore(Duration span) const;
  int fd() const { return stream_.fd(); }

 private:
  // Reads into unread_; false at the peer's orderly end.
  Result<bool> ReadSome();
  Result<bool> ReadRequest(RequestParser& parser);
  Status Flush();
  bool Refuse(const Error& error, bool request_begun);
  bool Answer(const Response& response, bool head_request, bool http_1_0, bool keep_alive);
  bool AnswerStreaming(const Response& response, bool http_1_0);
  Response Handle(const Request& request) const;

  ServerShared& shared_;
  Stream stream_;
  bool greeted_ = false;  // the TLS handshake, if any, is done
  std::string unread_;    // received and not yet parsed
  std::string unsent_;    // answers, or the beginning of one
};

}  // namespace hami::net
