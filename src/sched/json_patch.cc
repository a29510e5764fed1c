// SPDX-License-Identifier: Apache-2.0

#include "sched/json_patch.h"

#include <algorithm>
#include <string>

namespace hami::sched {
namespace {

namespace json = base::json;

std::string Escape(json::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

class Differ {
 public:
  json::array Take() { return std::move(patch_); }

  void Compare(const std::string& path, const json::value& from, const json::value& to) {
    if (from == to) return;
    if (from.is_object() && to.is_object()) return Objects(path, from.get_object(), to.get_object());
    if (from.is_array() && to.is_array()) return Arrays(path, from.get_array(), to.get_array());
    Emit("replace", path, &to);
  }

 private:
  void Objects(const std::string& path, const json::object& from, const json::object& to) {
    for (const json::key_value_pair& pair : from) {
      if (!to.contains(pair.key())) Emit("remove", path + "/" + Escape(pair.key()), nullptr);
    }
    for (const json::key_value_pair& pair : to) {
      const std::string inner = path + "/" + Escape(pair.key());
      const json::value* before = from.if_contains(pair.key());
      if (before == nullptr) {
        Emit("add", inner, &pair.value());
      } else {
        Compare(inner, *before, pair.value());
      }
    }
  }

  void Arrays(const std::string& path, const json::array& from, const json::array& to) {
    const std::size_t common = std::min(from.size(), to.size());
    for (std::size_t i = 0; i < common; ++i) Compare(path + "/" + std::to_string(i), from[i], to[i]);
    for (std::size_t i = from.size(); i > common; --i) Emit("remove", path + "/" + std::to_string(i - 1), nullptr);
    for (std::size_t i = common; i < to.size(); ++i) Emit("add", path + "/-", &to[i]);
  }

  void Emit(const char* op, const std::string& path, const json::value* value) {
    json::object operation{{"op", op}, {"path", path}};
    if (value != nullptr) operation.emplace("value", *value);
    patch_.push_back(std::move(operation));
  }

  json::array patch_;
};

}  // namespace

json::array DiffJson(const json::value& from, const json::value& to) {
  Differ differ;
  differ.Compare("", from, to);
  return differ.Take();
}

}  // namespace hami::sched
