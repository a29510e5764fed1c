// SPDX-License-Identifier: Apache-2.0

#include "cluster/fields.h"

namespace hami::cluster {

const json::object& Object(const json::value& value) {
  static const json::object kNone;
  const json::object* object = value.if_object();
  return object == nullptr ? kNone : *object;
}

const json::array& List(const json::object& object, std::string_view key) {
  static const json::array kNone;
  const json::array* list = base::GetArray(object, key);
  return list == nullptr ? kNone : *list;
}

std::string Text(const json::object& object, std::string_view key) {
  return base::GetString(object, key).value_or(std::string());
}

std::int64_t Number(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) return 0;
  if (const std::int64_t* number = value->if_int64()) return *number;
  const std::uint64_t* number = value->if_uint64();
  return number == nullptr ? 0 : static_cast<std::int64_t>(*number);
}

bool Flag(const json::object& object, std::string_view key) { return base::GetBool(object, key).value_or(false); }

std::string StateOf(const json::object& card) {
  if (!Flag(card, "healthy")) return "unhealthy";
  if (Flag(card, "cordoned")) return "cordoned";
  return Flag(card, "usable") ? "healthy" : "books disagree";
}

}  // namespace hami::cluster
