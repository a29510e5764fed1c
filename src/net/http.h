// SPDX-License-Identifier: Apache-2.0
//
// HTTP messages as values, and their parsing. The parsers are fed bytes as they come (they know nothing of sockets) and
// hold Boost.Beast's, which stays out of this header. Header names compare without case; messages with a broken frame,
// or larger than the limits, are refused.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/error.h"

namespace hami::net {

struct Headers : std::vector<std::pair<std::string, std::string>> {
  using vector::vector;
  // The first of that name, or nullptr.
  const std::string* Find(std::string_view name) const;
};

struct Request {
  std::string method;
  std::string target;  // path and query as sent
  Headers headers;
  std::string body;
  // Has the client gone, or is the server past its patience? For handlers that wait. Never empty inside a handler.
  std::function<bool()> abandoned;
};

// Where a handler's streamed body goes, piece by piece.
class BodyWriter {
 public:
  virtual ~BodyWriter() = default;
  // False: nobody listens any more, or the server stops; the handler should return.
  virtual bool Write(std::string_view piece) = 0;
  virtual bool Alive() = 0;
  // Breaks the connection off within the body (servers that pretend to fail).
  virtual void Cut() = 0;
};

struct Response {
  int status = 200;
  Headers headers;
  std::string body;
  // Instead of body: called with the way to the client once the head is sent.
  std::function<void(BodyWriter&)> stream;
  // Close the connection without an answer (servers that pretend to fail).
  bool abort = false;
};

struct Limits {
  std::uint32_t header_bytes = 64U << 10U;
  std::uint64_t body_bytes = 64U << 20U;
};

// What a request's body may have, and what its sender can do where that is not enough.
struct BodyLimit {
  std::uint64_t bytes = 0;
  std::string_view remedy;  // of a literal
};
using BodyLimitOf = std::function<BodyLimit(std::string_view target)>;

std::string_view ReasonPhrase(int status);

// What goes over the wire before the body, behind what OUT holds; what is requested is TARGET within PATH. LINES, as
// HeaderLines wrote them, go before the other headers, whose values' line breaks are replaced by blanks.
void AppendRequestHead(std::string& out, std::string_view method, std::string_view path, std::string_view target,
                       std::string_view lines, const Headers& headers, std::size_t body_bytes);
std::string HeaderLines(const Headers& headers);
// CHUNKED: the length is not known. Otherwise Content-Length is the body's size.
std::string ResponseHead(const Response& response, bool chunked, bool keep_alive);

class RequestParser {
 public:
  // LIMIT_OF, if any, decides instead of LIMITS about the body, as soon as the head is there.
  explicit RequestParser(const Limits& limits, BodyLimitOf limit_of = nullptr);
  ~RequestParser();
  RequestParser(RequestParser&&) noexcept;

  // Takes some of BYTES and says how many; 0 when more is needed first. After done() nothing is taken.
  Result<std::size_t> Feed(std::string_view bytes);
  bool head_done() const;
  bool done() const;
  bool keep_alive() const;      // valid after head_done()
  bool wants_continue() const;  // "Expect: 100-continue"
  bool is_http_1_0() const;
  std::uint64_t body_bytes() const;  // that have come
  Request Take();

 private:
  Status LimitBody();
  tl::unexpected<Error> TooLarge() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ResponseParser {
 public:
  // HEAD: the answer to a HEAD request, which has no body whatever its head says.
  ResponseParser(const Limits& limits, bool head_request);
  ~ResponseParser();
  ResponseParser(ResponseParser&&) noexcept;

  Result<std::size_t> Feed(std::string_view bytes);
  // The connection ended. An error when the message was not complete by that.
  Status Finish();
  bool head_done() const;
  bool done() const;
  bool keep_alive() const;
  int status() const;  // valid after head_done()
  Headers headers() const;
  // The body that came since the last call.
  std::string TakeBody();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hami::net
