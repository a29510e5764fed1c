// SPDX-License-Identifier: Apache-2.0

#include "kube/testing/json_patch.h"

#include <optional>
#include <vector>

#include "base/strings.h"

namespace hami::kube {
namespace {

namespace json = base::json;
using Pointer = std::vector<std::string>;

// RFC 6901.
std::optional<Pointer> ReadPointer(const std::string& text) {
  Pointer pointer;
  if (text.empty()) return pointer;
  if (text.front() != '/') return std::nullopt;
  std::string token;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '/') {
      pointer.push_back(std::move(token));
      token.clear();
    } else if (text[i] == '~') {
      if (i + 1 >= text.size() || (text[i + 1] != '0' && text[i + 1] != '1')) return std::nullopt;
      token += text[++i] == '0' ? '~' : '/';
    } else {
      token += text[i];
    }
  }
  pointer.push_back(std::move(token));
  return pointer;
}

// An index of ARRAY, written without leading zeros; END also allows one past the last.
std::optional<std::size_t> IndexOf(const json::array& array, const std::string& token, bool end) {
  if (token == "-") return end ? std::optional(array.size()) : std::nullopt;
  const auto number = base::ParseNumber(token);
  if (!number || (token.size() > 1 && token.front() == '0')) return std::nullopt;
  if (*number >= array.size() + (end ? 1 : 0)) return std::nullopt;
  return static_cast<std::size_t>(*number);
}

json::value* Child(json::value& parent, const std::string& token) {
  if (json::object* object = parent.if_object()) return object->if_contains(token);
  json::array* array = parent.if_array();
  if (array == nullptr) return nullptr;
  const auto index = IndexOf(*array, token, false);
  return index ? &(*array)[*index] : nullptr;
}

json::value* Walk(json::value& root, const Pointer& pointer, std::size_t steps) {
  json::value* at = &root;
  for (std::size_t i = 0; i < steps && at != nullptr; ++i) at = Child(*at, pointer[i]);
  return at;
}

bool Add(json::value& root, const Pointer& pointer, json::value value) {
  if (pointer.empty()) {
    root = std::move(value);
    return true;
  }
  json::value* parent = Walk(root, pointer, pointer.size() - 1);
  if (parent == nullptr) return false;
  if (json::object* object = parent->if_object()) {
    (*object)[pointer.back()] = std::move(value);
    return true;
  }
  json::array* array = parent->if_array();
  if (array == nullptr) return false;
  const auto index = IndexOf(*array, pointer.back(), true);
  if (!index) return false;
  array->insert(array->begin() + *index, std::move(value));
  return true;
}

bool Remove(json::value& root, const Pointer& pointer) {
  if (pointer.empty()) return false;
  json::value* parent = Walk(root, pointer, pointer.size() - 1);
  if (parent == nullptr) return false;
  if (json::object* object = parent->if_object()) return object->erase(pointer.back()) == 1;
  json::array* array = parent->if_array();
  if (array == nullptr) return false;
  const auto index = IndexOf(*array, pointer.back(), false);
  if (!index) return false;
  array->erase(array->begin() + *index);
  return true;
}

// Nothing, or what is wrong.
std::string ApplyOne(json::value& root, const json::value& step) {
  const json::object* operation = step.if_object();
  if (operation == nullptr) return "an operation is not an object";
  const std::string op = base::GetString(*operation, "op").value_or("");
  const auto path_text = base::GetString(*operation, "path");
  const auto path = ReadPointer(path_text.value_or("bad"));
  if (!path) return "no valid path";
  const std::string at = op + " " + *path_text;
  const json::value* value = operation->if_contains("value");
  if (op == "add" || op == "replace" || op == "test") {
    if (value == nullptr) return at + ": no value";
    if (op == "add") return Add(root, *path, *value) ? "" : at + ": no such place";
    json::value* target = Walk(root, *path, path->size());
    if (target == nullptr) return at + ": no such place";
    if (op == "test") return *target == *value ? "" : at + ": the value differs";
    *target = *value;
    return "";
  }
  if (op == "remove") return Remove(root, *path) ? "" : at + ": no such place";
  if (op != "move" && op != "copy") return "unknown operation '" + op + "'";
  const auto from = ReadPointer(base::GetString(*operation, "from").value_or("bad"));
  json::value* source = from ? Walk(root, *from, from->size()) : nullptr;
  if (source == nullptr) return at + ": no such source";
  json::value moved = *source;
  if (op == "move" && !Remove(root, *from)) return at + ": no such source";
  return Add(root, *path, std::move(moved)) ? "" : at + ": no such place";
}

}  // namespace

void ApplyMergePatch(json::value& target, const json::value& patch) {
  const json::object* changes = patch.if_object();
  if (changes == nullptr) {
    target = patch;
    return;
  }
  if (!target.is_object()) target.emplace_object();
  json::object& object = target.get_object();
  for (const auto& [key, value] : *changes) {
    if (value.is_null()) {
      object.erase(key);
    } else {
      ApplyMergePatch(object[key], value);
    }
  }
}

base::Status ApplyJsonPatch(json::value& target, const json::value& patch) {
  const json::array* steps = patch.if_array();
  if (steps == nullptr) return base::Fail("JSON patch: not an array");
  json::value result = target;
  for (const json::value& step : *steps) {
    if (const std::string wrong = ApplyOne(result, step); !wrong.empty()) return base::Fail("JSON patch: " + wrong);
  }
  target = std::move(result);
  return {};
}

}  // namespace hami::kube
