// SPDX-License-Identifier: Apache-2.0
//
// Reads of a JSON document only the parts that somebody will look at, and passes over the others: of a Kubernetes
// object that is most of it. For every text, what is read is what json::parse makes of the text, less the
// members that PARTS does not name; and what json::parse refuses is refused.

#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/json_cursor.h"

namespace hami::base {

// A member of an object; of a list, one in each object of it.
struct Part {
  std::string_view key;
  std::span<const Part> inside{};  // empty: all of it
};
using Parts = std::span<const Part>;

// Of the value that CURSOR stands before; empty PARTS: all of it. Nothing: it is not JSON. STORAGE as for json::parse.
std::optional<json::value> TakeParts(JsonCursor& cursor, Parts parts, const json::storage_ptr& storage);

}  // namespace hami::base
