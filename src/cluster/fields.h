// SPDX-License-Identifier: Apache-2.0
//
// Looks into a document that came over a wire: what is not there, or is something else, reads as empty.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace hami::cluster {

namespace json = base::json;

const json::object& Object(const json::value& value);
const json::array& List(const json::object& object, std::string_view key);
std::string Text(const json::object& object, std::string_view key);
std::int64_t Number(const json::object& object, std::string_view key);
bool Flag(const json::object& object, std::string_view key);

// Of a card: healthy, unhealthy, cordoned, or books disagree.
std::string StateOf(const json::object& card);

}  // namespace hami::cluster
