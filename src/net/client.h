// SPDX-License-Identifier: Apache-2.0
//
// An HTTP/1.1 client of one origin. Owns a pool of idle connections; any number of threads may call at once, each call
// on a connection of its own. Every call ends at its deadline or when its Canceller is thrown. A request is sent again
// only when it is safe: a GET or HEAD over a pooled connection that turned out dead before its first byte of answer.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"
#include "net/stream.h"
#include "net/tls.h"
#include "net/url.h"

namespace hami::net {

// Another server that makes the connection (HTTP CONNECT), spoken to in plain HTTP.
struct Proxy {
  Url url;
  std::string authorization;  // of the Proxy-Authorization header; may be empty
};

struct ClientOptions {
  ClientTls tls;
  std::optional<Proxy> proxy;
  Headers headers;  // of every request, before its own
  std::size_t max_idle = 16;
  Duration idle_time = std::chrono::seconds(60);
  Limits limits;  // of an answer that is collected; streams have no limit
};

struct Call {
  std::string method = "GET";
  std::string target = "/";
  Headers headers;
  std::string body;
  Deadline deadline = After(std::chrono::seconds(30));
  const Canceller* canceller = nullptr;
  // Of a stream that never ends, and of calls of SendAll: when all is read that came, rest this long before waiting for
  // more. A sender of many small pieces then wakes us for several at once; of a stream, what comes after a silence is
  // read at once.
  Duration rest{};
};

struct ResponseStart {
  int status = 0;
  Headers headers;
};

// False: enough, end the call.
using BodySink = std::function<bool(const ResponseStart&, std::string_view piece)>;

class Client {
 public:
  static Result<std::unique_ptr<Client>> Make(const Url& origin, const ClientOptions& options);

  Result<Response> Send(const Call& call);
  // Sends CALLS one behind the other over one connection and then reads their answers: for many small requests of which
  // each may get lost. The deadline and the canceller of the first hold for all, and so few calls are to be given that
  // their answers fit into socket buffers. One result for each; when the connection breaks, nobody knows what became of
  // those that have no answer.
  std::vector<Result<Response>> SendAll(std::span<const Call> calls);
  // Hands the body over as it comes. Succeeds when the body is complete or the sink had enough; SILENCE is the longest
  // the server may say nothing (the call's deadline holds as well).
  Result<ResponseStart> Stream(const Call& call, const BodySink& sink, Duration silence = Duration::max());

  const Url& origin() const { return origin_; }

 private:
  struct Idle {
    std::unique_ptr<net::Stream> connection;
    Deadline until;
  };

  Client(Url origin, const ClientOptions& options);
  Result<std::unique_ptr<net::Stream>> NewConnection(const Call& call);
  Status PassProxy(net::Stream& connection) const;
  std::unique_ptr<net::Stream> TakeIdle();
  void GiveBack(std::unique_ptr<net::Stream> connection);
  struct Attempt;
  Result<Attempt> Connected(const Call& call);
  void AppendMessage(std::string& out, const Call& call, bool with_body) const;
  Status Ask(Attempt& attempt) const;
  static Result<ResponseStart> ReadAnswer(Attempt& attempt, const BodySink& sink);
  void Finish(Attempt& attempt);

  const Url origin_;
  const ClientOptions options_;
  const std::string lines_;  // of the headers of every request
  std::unique_ptr<ReloadingContext> tls_;
  std::mutex mutex_;
  std::vector<Idle> idle_;
};

}  // namespace hami::net
