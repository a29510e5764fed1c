// SPDX-License-Identifier: Apache-2.0

#include "sched/json_patch.h"

#include <algorithm>
#include <string>

#include "base/strings.h"

namespace hami::sched {
namespace {

using base::Fail;
using base::Result;
using base::Status;
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

std::string Unescape(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool escape = token[i] == '~' && i + 1 < token.size();
    out += !escape ? token[i] : token[i + 1] == '1' ? '/' : '~';
    i += escape ? 1 : 0;
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

Status ApplyToObject(json::object& object, const std::string& key, std::string_view op, const json::value* value) {
  if (op != "add" && !object.contains(key)) return Fail("json patch: no such member: " + key);
  if (op == "remove") {
    object.erase(key);
  } else {
    object[key] = *value;
  }
  return {};
}

Status ApplyToArray(json::array& array, const std::string& token, std::string_view op, const json::value* value) {
  const bool end = token == "-";
  const auto index = base::ParseNumber(token);
  const std::size_t limit = array.size() + (op == "add" ? 1 : 0);
  if ((!end && (!index || *index >= limit)) || (end && op != "add")) return Fail("json patch: no such item: " + token);
  const auto at = end ? array.end() : array.begin() + static_cast<std::ptrdiff_t>(*index);
  if (op == "remove") {
    array.erase(at);
  } else if (op == "add") {
    array.insert(at, *value);
  } else {
    *at = *value;
  }
  return {};
}

json::value* Step(json::value& at, const std::string& token) {
  if (json::object* object = at.if_object()) return object->if_contains(token);
  json::array* array = at.if_array();
  const auto index = base::ParseNumber(token);
  return array == nullptr || !index || *index >= array->size() ? nullptr : &(*array)[*index];
}

Status ApplyOne(const json::object& operation, json::value& document) {
  const std::string op = base::GetString(operation, "op").value_or("");
  const std::string path = base::GetString(operation, "path").value_or("?");
  const json::value* value = operation.if_contains("value");
  if ((op != "add" && op != "remove" && op != "replace") || (op != "remove" && value == nullptr)) {
    return Fail("json patch: not an operation that is used here: " + op);
  }
  if (path.empty()) {
    if (op == "remove") return Fail("json patch: the document can not be removed");
    document = *value;
    return {};
  }
  if (path[0] != '/') return Fail("json patch: not a path: " + path);
  std::vector<std::string> tokens = base::Split(path, '/');
  json::value* parent = &document;
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
    parent = Step(*parent, Unescape(tokens[i]));
    if (parent == nullptr) return Fail("json patch: no such path: " + path);
  }
  const std::string last = Unescape(tokens.back());
  if (json::object* object = parent->if_object()) return ApplyToObject(*object, last, op, value);
  if (json::array* array = parent->if_array()) return ApplyToArray(*array, last, op, value);
  return Fail("json patch: no such path: " + path);
}

}  // namespace

json::array DiffJson(const json::value& from, const json::value& to) {
  Differ differ;
  differ.Compare("", from, to);
  return differ.Take();
}

Result<json::value> ApplyJsonPatch(const json::array& patch, json::value document) {
  for (const json::value& operation : patch) {
    if (!operation.is_object()) return Fail("json patch: not an object");
    HAMI_TRY(ApplyOne(operation.get_object(), document));
  }
  return document;
}

}  // namespace hami::sched
