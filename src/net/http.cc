// SPDX-License-Identifier: Apache-2.0
//
// The only file that sees Boost.Beast, for the sake of compile time.

#include "net/http.h"

#include <algorithm>
#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/none.hpp>
#include <optional>

#include "base/json_cursor.h"
#include "base/strings.h"

namespace hami::net {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using namespace std::string_view_literals;

constexpr std::size_t kUsualHeadBytes = 512;
constexpr std::size_t kUsualHeaders = 8;

Error ToError(const error_code& code) {
  const bool large = code == http::error::header_limit || code == http::error::body_limit;
  return Error{{"HTTP: " + code.message(), {}}, large ? Cause::kTooLarge : Cause::kProtocol};
}

// As Beast's string_body, which clears the room for every piece before it fills it.
struct TextBody : http::string_body {
  struct reader : http::string_body::reader {
    template <bool is_request, typename Fields>
    reader(http::header<is_request, Fields>& header, std::string& body)
        : http::string_body::reader(header, body), body_(body) {}

    template <typename Buffers>
    std::size_t put(const Buffers& buffers, error_code& code) {
      const std::size_t before = body_.size();
      for (const auto buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
      }
      code = {};
      return body_.size() - before;
    }

   private:
    std::string& body_;
  };
};

// Of a last chunk, `0 CRLF CRLF` or more. Beast asserts that it is whole when it looks at it for the second time. Of a
// chunk's body such bytes have a CRLF behind them, too.
bool BeginsLastChunk(std::string_view bytes) { return bytes.size() < 5 && bytes.starts_with("0\r\n"); }

// A parser that is not eager stops behind the head.
template <typename Parser>
Result<std::size_t> FeedTo(Parser& parser, std::string_view bytes) {
  std::size_t taken = 0;
  // An exception can only be one of allocation.
  while (taken < bytes.size() && !parser.is_done() && (parser.eager() || !parser.is_header_done())) {
    if (parser.is_header_done() && parser.chunked() && BeginsLastChunk(bytes.substr(taken))) break;
    error_code code;
    std::size_t now = 0;
    try {
      now = parser.put(boost::asio::const_buffer(bytes.data() + taken, bytes.size() - taken), code);
    } catch (const std::exception& exception) {
      return Fail(Cause::kTooLarge, std::string("HTTP: ") + exception.what());
    }
    taken += now;
    if (code == http::error::need_more) break;
    if (code) return tl::unexpected(ToError(code));
    if (now == 0) break;
  }
  return taken;
}

template <typename Fields>
Headers CopyHeaders(const Fields& fields) {
  Headers headers;
  headers.reserve(kUsualHeaders);
  for (const auto& field : fields) headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  return headers;
}

bool SameName(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

void AppendHeader(std::string& out, std::string_view name, std::string_view value) {
  const std::size_t start = out.size();
  out.append(name).append(": "sv).append(value);
  // Whatever came from outside must not end the line early.
  if (!base::IsPlain(std::string_view(out).substr(start))) {
    std::replace_if(
        out.begin() + static_cast<std::ptrdiff_t>(start), out.end(),
        [](char c) { return c == '\r' || c == '\n' || c == '\0'; }, ' ');
  }
  out += "\r\n"sv;
}

}  // namespace

const std::string* Headers::Find(std::string_view name) const {
  const auto found = std::find_if(begin(), end(), [&](const auto& header) { return SameName(header.first, name); });
  return found == end() ? nullptr : &found->second;
}

std::string_view ReasonPhrase(int status) {
  if (status <= 0) return "";
  const auto phrase = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return {phrase.data(), phrase.size()};
}

void AppendRequestHead(std::string& out, std::string_view method, std::string_view path, std::string_view target,
                       std::string_view lines, const Headers& headers, std::size_t body_bytes) {
  out.append(method).append(" "sv).append(path).append(target).append(" HTTP/1.1\r\n"sv).append(lines);
  for (const auto& [name, value] : headers) AppendHeader(out, name, value);
  if (body_bytes > 0 || (method != "GET" && method != "HEAD")) {
    AppendHeader(out, "Content-Length", std::to_string(body_bytes));
  }
  out += "\r\n"sv;
}

std::string HeaderLines(const Headers& headers) {
  std::string lines;
  for (const auto& [name, value] : headers) AppendHeader(lines, name, value);
  return lines;
}

std::string ResponseHead(const Response& response, bool chunked, bool keep_alive) {
  std::string head;
  head.reserve(kUsualHeadBytes);
  head.append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
  head += ReasonPhrase(response.status);
  head += "\r\n";
  for (const auto& [name, value] : response.headers) AppendHeader(head, name, value);
  if (chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (!response.stream && response.status >= 200 && response.status != 204 && response.status != 304) {
    AppendHeader(head, "Content-Length", std::to_string(response.body.size()));
  }
  if (!keep_alive) head += "Connection: close\r\n";
  head += "\r\n";
  return head;
}

struct RequestParser::Impl {
  http::request_parser<TextBody> parser;
  const BodyLimitOf limit_of;
  BodyLimit limit;
};

RequestParser::RequestParser(const Limits& limits, BodyLimitOf limit_of)
    : impl_(new Impl{{}, std::move(limit_of), {limits.body_bytes, {}}}) {
  impl_->parser.header_limit(limits.header_bytes);
  impl_->parser.body_limit(boost::none);
}
RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;

tl::unexpected<Error> RequestParser::TooLarge() const {
  const auto& head = impl_->parser.get();
  const std::string_view target = head.target();
  const std::string_view remedy = impl_->limit.remedy;
  return Fail(Cause::kTooLarge,
              base::Concat({head.method_string(), " ", target.substr(0, target.find('?')), " takes bodies of at most ",
                            std::to_string(impl_->limit.bytes), " bytes", remedy.empty() ? "" : ": ", remedy}));
}

Status RequestParser::LimitBody() {
  const std::string_view target = impl_->parser.get().target();
  if (impl_->limit_of) impl_->limit = impl_->limit_of(target);
  impl_->parser.body_limit(impl_->limit.bytes);
  const auto length = impl_->parser.content_length();
  if (length && *length > impl_->limit.bytes) return TooLarge();
  return {};
}

Result<std::size_t> RequestParser::Feed(std::string_view bytes) {
  std::size_t head = 0;
  if (!head_done()) {
    const auto taken = FeedTo(impl_->parser, bytes);
    if (!taken || !head_done()) return taken;
    HAMI_NET_TRY(LimitBody());
    impl_->parser.eager(true);
    head = *taken;
  }
  const auto body = FeedTo(impl_->parser, bytes.substr(head));
  if (body) return head + *body;
  if (body.error().cause == Cause::kTooLarge) return TooLarge();
  return body;
}
bool RequestParser::head_done() const { return impl_->parser.is_header_done(); }
bool RequestParser::done() const { return impl_->parser.is_done(); }
bool RequestParser::keep_alive() const { return impl_->parser.get().keep_alive(); }
bool RequestParser::wants_continue() const {
  const auto& message = impl_->parser.get();
  return message.version() >= 11 && boost::beast::iequals(message[http::field::expect], "100-continue");
}
bool RequestParser::is_http_1_0() const { return impl_->parser.get().version() < 11; }

std::uint64_t RequestParser::body_bytes() const { return impl_->parser.get().body().size(); }

Request RequestParser::Take() {
  auto message = impl_->parser.release();
  return Request{std::string(message.method_string()), std::string(message.target()), CopyHeaders(message),
                 std::move(message.body()), [] { return false; }};
}

struct ResponseParser::Impl {
  Impl(const Limits& limits, bool head_request_arg) : limit(limits), head_request(head_request_arg) { Renew(); }

  // An interim answer (1xx) is followed by another head, which needs another parser.
  void Renew() {
    parser = std::make_unique<http::response_parser<TextBody>>();
    parser->eager(true);
    parser->header_limit(limit.header_bytes);
    parser->body_limit(limit.body_bytes);
    parser->skip(head_request);
  }

  const Limits limit;
  const bool head_request;
  std::unique_ptr<http::response_parser<TextBody>> parser;
};

ResponseParser::ResponseParser(const Limits& limits, bool head_request)
    : impl_(std::make_unique<Impl>(limits, head_request)) {}
ResponseParser::~ResponseParser() = default;
ResponseParser::ResponseParser(ResponseParser&&) noexcept = default;

Result<std::size_t> ResponseParser::Feed(std::string_view bytes) {
  std::size_t taken = 0;
  while (true) {
    auto now = FeedTo(*impl_->parser, bytes.substr(taken));
    if (!now) return now;
    taken += *now;
    const bool interim = impl_->parser->is_header_done() && status() / 100 == 1;
    if (!interim) return taken;
    if (status() == 101) return Fail(Cause::kProtocol, "HTTP: the server changed the protocol");
    impl_->Renew();
  }
}

Status ResponseParser::Finish() {
  if (done()) return {};
  // Only a body without a stated length ends with the connection.
  if (!head_done() || !impl_->parser->need_eof()) {
    return Fail(Cause::kClosed, "HTTP: the connection ended within the answer");
  }
  error_code code;
  impl_->parser->put_eof(code);
  if (code) return tl::unexpected(ToError(code));
  return {};
}

bool ResponseParser::head_done() const {
  return impl_->parser->is_header_done() && impl_->parser->get().result_int() >= 200;
}
bool ResponseParser::done() const { return impl_->parser->is_done() && head_done(); }
bool ResponseParser::keep_alive() const { return impl_->parser->keep_alive(); }
int ResponseParser::status() const { return static_cast<int>(impl_->parser->get().result_int()); }
Headers ResponseParser::headers() const { return CopyHeaders(impl_->parser->get()); }
std::string ResponseParser::TakeBody() { return std::exchange(impl_->parser->get().body(), {}); }

}  // namespace hami::net
