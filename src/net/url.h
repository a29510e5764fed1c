// SPDX-License-Identifier: Apache-2.0
//
// URLs as far as HTTP needs them: an origin, a target, percent encoding, query strings. Refuses user information and
// control characters.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hami::net {

struct Url {
  bool tls = false;
  std::string host;  // without brackets
  std::uint16_t port = 0;
  std::string path;  // "" or "/…", without a final slash; query included

  // As the Host header wants it.
  std::string Authority() const;
};

// "http(s)://host[:port][/path]"; without a scheme, http.
base::Result<Url> ParseUrl(std::string_view text);

// Everything but unreserved characters becomes %XX.
std::string PercentEncode(std::string_view text);
void AppendPercentEncoded(std::string& out, std::string_view text);
// Nothing where a % is not followed by two hexadecimal digits. PLUS_IS_SPACE: as in a query.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space = false);

using Query = std::vector<std::pair<std::string, std::string>>;
std::string EncodeQuery(const Query& query);
// The part of TARGET after '?'; pairs that do not decode are left out.
Query ParseQuery(std::string_view target);
std::string_view PathOf(std::string_view target);

}  // namespace hami::net
