// SPDX-License-Identifier: Apache-2.0

#include "net/url.h"

#include <algorithm>

#include "base/strings.h"

namespace hami::net {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool Unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

// "host", "host:port", "[v6]:port", "[v6]"
base::Status ReadAuthority(std::string_view text, Url& url) {
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return base::Fail("no closing bracket after the address");
    url.host = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
    has_port = text.starts_with(':');
    if (!text.empty() && !has_port) return base::Fail("unexpected text after the address");
    port = has_port ? text.substr(1) : text;
  } else {
    const auto colon = text.find(':');
    has_port = colon != std::string_view::npos;
    url.host = text.substr(0, colon);
    if (has_port) port = text.substr(colon + 1);
  }
  if (url.host.empty()) return base::Fail("no host");
  if (!has_port) return {};
  const auto number = base::ParseNumber(port);
  if (!number || *number == 0 || *number > 65535) return base::Fail("no such port: " + base::Printable(port));
  url.port = static_cast<std::uint16_t>(*number);
  return {};
}

}  // namespace

std::string Url::Authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? 443 : 80) ? name : name + ":" + std::to_string(port);
}

base::Result<Url> ParseUrl(std::string_view text) {
  const std::string shown = base::Printable(text);
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c == '\x7f'; })) {
    return base::Fail("not a URL: '" + shown + "'");
  }
  Url url;
  if (const auto scheme = text.find("://"); scheme != std::string_view::npos) {
    const std::string name = base::ToLower(text.substr(0, scheme));
    if (name != "http" && name != "https") return base::Fail("neither http nor https: '" + shown + "'");
    url.tls = name == "https";
    text.remove_prefix(scheme + 3);
  }
  url.port = url.tls ? 443 : 80;
  const auto slash = text.find_first_of("/?#");
  const std::string_view authority = text.substr(0, slash);
  if (authority.find('@') != std::string_view::npos) return base::Fail("user names in URLs are not supported");
  if (const auto read = ReadAuthority(authority, url); !read) {
    return base::Fail("not a URL: '" + shown + "': " + read.error().message);
  }
  if (slash != std::string_view::npos) {
    url.path = text.substr(slash, text.find('#') - slash);
    while (url.path.ends_with('/')) url.path.pop_back();
  }
  return url;
}

void AppendPercentEncoded(std::string& out, std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (const char c : text) {
    if (Unreserved(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
}

std::string PercentEncode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  AppendPercentEncoded(out, text);
  return out;
}

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

std::string EncodeQuery(const Query& query) {
  std::string out;
  for (const auto& [key, value] : query) {
    out += (out.empty() ? "?" : "&") + PercentEncode(key) + "=" + PercentEncode(value);
  }
  return out;
}

Query ParseQuery(std::string_view target) {
  Query query;
  const auto mark = target.find('?');
  if (mark == std::string_view::npos) return query;
  for (const std::string& part : base::Split(target.substr(mark + 1), '&')) {
    const auto equals = part.find('=');
    auto key = PercentDecode(std::string_view(part).substr(0, equals), true);
    auto value = equals == std::string::npos ? std::optional<std::string>("")
                                             : PercentDecode(std::string_view(part).substr(equals + 1), true);
    if (key && value && !key->empty()) query.emplace_back(*std::move(key), *std::move(value));
  }
  return query;
}

std::string_view PathOf(std::string_view target) { return target.substr(0, target.find('?')); }

}  // namespace hami::net
