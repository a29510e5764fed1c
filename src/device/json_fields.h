// SPDX-License-Identifier: Apache-2.0
//
// Reads the fields of one JSON object that a stranger wrote into plain C++ values. An absent or null field leaves the
// target alone, as in the encoding that leaves zero values out; a field of another type or out of range is an error
// that names it.

#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "base/strings.h"

namespace hami::device {

class JsonFields {
 public:
  // WHAT names the object in errors: "device", "placement".
  JsonFields(const base::json::object& object, std::string_view what) : object_(object), what_(what) {}

  base::Status Text(std::string_view key, std::string& out) const {
    const base::json::value* value = Get(key);
    if (value == nullptr) return {};
    if (!value->is_string()) return Bad(key, "a string");
    out.assign(value->get_string().data(), value->get_string().size());
    return {};
  }

  base::Status Bool(std::string_view key, bool& out) const {
    const base::json::value* value = Get(key);
    if (value == nullptr) return {};
    if (!value->is_bool()) return Bad(key, "true or false");
    out = value->get_bool();
    return {};
  }

  // A whole number from MINIMUM to what 32 bits hold: the protocol's own width.
  template <typename Int>
  base::Status Number(std::string_view key, Int& out, std::int64_t minimum = 0) const {
    const base::json::value* value = Get(key);
    if (value == nullptr) return {};
    const std::int64_t number = value->is_int64() ? value->get_int64() : std::numeric_limits<std::int64_t>::max();
    if (number < minimum || number > std::numeric_limits<std::int32_t>::max()) {
      return Bad(key, minimum < 0 ? "a whole number" : "a whole number that is not negative");
    }
    out = static_cast<Int>(number);
    return {};
  }

  // Calls each(const object&) for every member of the list KEY.
  template <typename Each>
  base::Status List(std::string_view key, Each each) const {
    const base::json::value* value = Get(key);
    if (value == nullptr) return {};
    if (!value->is_array()) return Bad(key, "a list");
    for (const base::json::value& item : value->get_array()) {
      if (!item.is_object()) return Bad(key, "a list of objects");
      HAMI_TRY(each(item.get_object()));
    }
    return {};
  }

  const base::json::value* Get(std::string_view key) const {
    const base::json::value* value = object_.if_contains(base::json::string_view(key.data(), key.size()));
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  base::Status Bad(std::string_view key, std::string_view wanted) const {
    return base::Fail(base::Concat({what_, ": ", key, " must be ", wanted}));
  }

 private:
  const base::json::object& object_;
  std::string_view what_;
};

// The objects of a JSON list, each handed to each(const object&).
template <typename Each>
base::Status ForEachObject(std::string_view text, std::string_view what, Each each) {
  const base::Result<base::json::value> document = base::ParseJson(text);
  if (!document) return base::Fail(base::Concat({what, ": ", document.error().message}));
  if (document->is_null()) return {};
  if (!document->is_array()) return base::Fail(base::Concat({what, ": not a list"}));
  for (const base::json::value& item : document->get_array()) {
    if (!item.is_object()) return base::Fail(base::Concat({what, ": not a list of objects"}));
    HAMI_TRY(each(item.get_object()));
  }
  return {};
}

}  // namespace hami::device
