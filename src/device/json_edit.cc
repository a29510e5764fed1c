// SPDX-License-Identifier: Apache-2.0

#include "device/json_edit.h"

namespace hami::device {
namespace {

namespace json = base::json;

json::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

json::object& ObjectAt(json::object& parent, std::string_view key) {
  json::value& value = parent[View(key)];
  return value.is_object() ? value.get_object() : value.emplace_object();
}

json::array& ArrayAt(json::object& parent, std::string_view key) {
  json::value& value = parent[View(key)];
  return value.is_array() ? value.get_array() : value.emplace_array();
}

void SetQuantity(json::object& container, std::string_view kind, std::string_view resource, std::string_view quantity) {
  ObjectAt(ObjectAt(container, "resources"), kind)[View(resource)] = View(quantity);
}

void SetEnv(json::object& container, std::string_view name, std::string_view value) {
  json::object variable{{"name", View(name)}, {"value", View(value)}};
  json::array& list = ArrayAt(container, "env");
  for (json::value& item : list) {
    const json::object* object = item.if_object();
    if (object == nullptr || base::GetString(*object, "name") != name) continue;
    item = std::move(variable);
    return;
  }
  list.push_back(std::move(variable));
}

}  // namespace hami::device
