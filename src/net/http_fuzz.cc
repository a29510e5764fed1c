// SPDX-License-Identifier: Apache-2.0
//
// The first byte chooses parser and piece size; the rest is what a peer sends. Whatever comes, what was parsed in
// pieces equals what is parsed at once.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.h"
#include "net/url.h"

namespace {

using hami::net::Limits;
using hami::net::RequestParser;
using hami::net::ResponseParser;

constexpr Limits kLimits{65536, 65536};

// The parser's bytes of body, or nothing after an error or without an end.
std::optional<std::string> Parse(std::string_view text, std::size_t piece, bool head) {
  ResponseParser parser(kLimits, head);
  std::string unread;
  std::string body;
  while (!text.empty() && !parser.done()) {
    unread += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
    const auto taken = parser.Feed(unread);
    if (!taken) return std::nullopt;
    if (*taken > unread.size()) std::abort();
    unread.erase(0, *taken);
    if (parser.head_done()) body += parser.TakeBody();
  }
  if (!parser.Finish()) return std::nullopt;
  return body;
}

std::optional<std::string> ParseRequest(std::string_view text, std::size_t piece) {
  RequestParser parser(kLimits);
  std::string unread;
  while (!text.empty() && !parser.done()) {
    unread += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
    const auto taken = parser.Feed(unread);
    if (!taken) return std::nullopt;
    unread.erase(0, *taken);
  }
  if (!parser.done()) return std::nullopt;
  return parser.Take().body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0] % 61;
  const bool request = (data[0] & 0x80U) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (request) {
    if (ParseRequest(text, piece) != ParseRequest(text, text.size() + 1)) std::abort();
  } else {
    const bool head = (data[0] & 0x40U) != 0;
    if (Parse(text, piece, head) != Parse(text, text.size() + 1, head)) std::abort();
  }
  if (const auto url = hami::net::ParseUrl(text); url && url->host.empty()) std::abort();
  hami::net::ParseQuery(text);
  return 0;
}
