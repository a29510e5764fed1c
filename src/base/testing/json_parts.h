// SPDX-License-Identifier: Apache-2.0
//
// For tests: the long way to the parts of a document, by a parser and a copy of the whole.

#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/json_parts.h"

namespace hami::base::testing {

inline json::value Less(const json::value& value, Parts parts) {
  if (const json::array* list = value.if_array()) {
    json::array out;
    for (const json::value& item : *list) out.push_back(Less(item, parts));
    return out;
  }
  const json::object* object = value.if_object();
  if (object == nullptr || parts.empty()) return value;
  json::object out;
  for (const json::key_value_pair& pair : *object) {
    const std::string_view key(pair.key().data(), pair.key().size());
    const auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.key == key; });
    if (part != parts.end()) out[pair.key()] = Less(pair.value(), part->inside);
  }
  return out;
}

inline std::optional<json::value> ByParser(std::string_view text, Parts parts) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = JsonCursor::kMostDepth;
  const json::value whole = json::parse({text.data(), text.size()}, error, {}, options);
  return error ? std::nullopt : std::optional<json::value>(Less(whole, parts));
}

inline std::optional<json::value> ByCursor(std::string_view text, Parts parts) {
  JsonCursor cursor(text);
  auto value = TakeParts(cursor, parts, {});
  return value && cursor.AtEnd() ? value : std::nullopt;
}

}  // namespace hami::base::testing
