// SPDX-License-Identifier: Apache-2.0
//
// JSON out (indented, keys in the order they were added, one final newline) and in (exceptions become Errors, depth is
// bounded). Boost.JSON is the document model; its header stays the only thing a user of this file needs to know.

#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hami::base {

namespace json = boost::json;

// For people: two blanks per level. Ends with a newline.
std::string Pretty(const json::value& value);
// For pipes: one line. Ends with a newline.
std::string Compact(const json::value& value);

// TEXT as a JSON string, whatever is in it.
void AppendJsonString(std::string& out, std::string_view text);

Result<json::value> ParseJson(std::string_view text);

// Typed looks into an object that a stranger may have written: absent or of another type is "nothing".
std::optional<std::string> GetString(const json::object& object, std::string_view key);
std::optional<std::uint64_t> GetUint(const json::object& object, std::string_view key);
std::optional<bool> GetBool(const json::object& object, std::string_view key);
const json::array* GetArray(const json::object& object, std::string_view key);

}  // namespace hami::base
