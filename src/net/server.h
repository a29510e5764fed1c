// SPDX-License-Identifier: Apache-2.0
//
// An HTTP/1.1 server over TCP or TLS. Handlers run on at most max_threads threads, which are started when needed; a
// client that is slow to send, between requests or within one, holds no thread. One that is slow to read holds the
// thread of its answer for write_timeout at most. Every phase of a request has its deadline. Certificates are renewed
// from their files without a restart. Stop finishes the requests that have begun.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "net/http.h"
#include "net/time.h"
#include "net/tls.h"

namespace hami::net {

struct ServerOptions {
  std::string host = "127.0.0.1";  // empty: every interface
  std::uint16_t port = 0;          // 0: the system chooses, see port()
  std::optional<TlsFiles> tls;
  Duration tls_look_interval = std::chrono::seconds(1);
  unsigned max_threads = 64;
  std::size_t max_connections = 1024;
  Limits limits;
  BodyLimitOf body_limit;  // if any, instead of limits.body_bytes
  // Bodies that are longer than the first share the second, from their first byte to their answer; what does not fit is
  // answered 503. So whatever large bodies there are, a small one finds room.
  std::uint64_t small_body_bytes = 256U << 10U;
  std::uint64_t large_bodies_bytes = std::numeric_limits<std::uint64_t>::max();
  Duration header_timeout = std::chrono::seconds(15);  // TLS handshake; first to last byte of a head
  Duration body_timeout = std::chrono::seconds(60);
  // What a client may make its answer wait, all writes of it together; what a stream waits for by itself is not
  // counted. Answers to requests that came together share it.
  Duration write_timeout = std::chrono::seconds(60);
  Duration idle_timeout = std::chrono::seconds(90);
  // Answers to requests that came together go out together: for handlers that never wait.
  bool join_answers = false;
};

// Called on several threads at once. Must not throw; if it does, the client gets a 500.
using Handler = std::function<Response(const Request&)>;

class Server {
 public:
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options, Handler handler);
  ~Server();  // Stop(1 s)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;

  // From now on every answer ends its connection, new ones included, so that a client that keeps connections sends
  // nothing into one that Stop is about to cut. Returns when no connection is left, after SPAN at the latest.
  void Drain(Duration span);

  // Refuses new connections, ends streams, lets requests in flight finish for GRACE; then cuts the connections. Returns
  // when the last handler has returned, and handlers that wait must heed Request::abandoned. Idempotent.
  void Stop(Duration grace);

  struct Counters {
    std::uint64_t connections = 0;  // ever accepted
    std::uint64_t requests = 0;     // ever answered by the handler
    std::uint64_t refused = 0;      // answered 400, 408, 413, 431, 503 or cut
  };
  Counters counters() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hami::net
