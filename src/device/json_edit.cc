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

Container ReadContainer(const json::object& object) {
  Container container;
  container.name = base::GetString(object, "name").value_or("");
  const json::value* resources = object.if_contains("resources");
  if (resources == nullptr || !resources->is_object()) return container;
  const auto fill = [&](const char* key, StringMap& out) {
    const json::value* map = resources->get_object().if_contains(key);
    if (map == nullptr || !map->is_object()) return;
    for (const json::key_value_pair& pair : map->get_object()) {
      out.emplace(std::string(pair.key().data(), pair.key().size()), QuantityText(pair.value()));
    }
  };
  fill("limits", container.limits);
  fill("requests", container.requests);
  return container;
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
