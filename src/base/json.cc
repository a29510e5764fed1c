// SPDX-License-Identifier: Apache-2.0

#include "base/json.h"

#include "base/json_cursor.h"

namespace hami::base {
namespace {

void Indent(std::string& out, int depth) { out.append(static_cast<std::size_t>(depth) * 2, ' '); }

void Append(std::string& out, const json::value& value, int depth) {
  const auto each = [&](char open, char close, const auto& items, const auto& emit) {
    if (items.empty()) {
      out += open;
      out += close;
      return;
    }
    out += open;
    const char* separator = "\n";
    for (const auto& item : items) {
      out += separator;
      separator = ",\n";
      Indent(out, depth + 1);
      emit(item);
    }
    out += '\n';
    Indent(out, depth);
    out += close;
  };
  if (const json::object* object = value.if_object()) {
    each('{', '}', *object, [&](const json::key_value_pair& pair) {
      out += json::serialize(pair.key());
      out += ": ";
      Append(out, pair.value(), depth + 1);
    });
  } else if (const json::array* array = value.if_array()) {
    each('[', ']', *array, [&](const json::value& item) { Append(out, item, depth + 1); });
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

std::string Pretty(const json::value& value) {
  std::string out;
  Append(out, value, 0);
  out += '\n';
  return out;
}

std::string Compact(const json::value& value) { return json::serialize(value) + "\n"; }

void AppendJsonString(std::string& out, std::string_view text) {
  if (IsPlain(text)) {
    out += '"';
    out.append(text) += '"';
  } else {
    out += json::serialize(json::string_view(text.data(), text.size()));
  }
}

Result<json::value> ParseJson(std::string_view text) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = 16;
  try {
    json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
    if (error) return Fail("not valid JSON: " + error.message());
    return value;
  } catch (const std::exception& exception) {
    return Fail(std::string("not valid JSON: ") + exception.what());
  }
}

namespace {
const json::value* Find(const json::object& object, std::string_view key) {
  return object.if_contains(json::string_view(key.data(), key.size()));
}
}  // namespace

std::optional<std::string> GetString(const json::object& object, std::string_view key) {
  const json::value* value = Find(object, key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}

std::optional<std::uint64_t> GetUint(const json::object& object, std::string_view key) {
  const json::value* value = Find(object, key);
  if (value == nullptr) return std::nullopt;
  json::error_code error;
  const auto number = value->to_number<std::uint64_t>(error);
  if (error || value->is_double()) return std::nullopt;
  return number;
}

std::optional<bool> GetBool(const json::object& object, std::string_view key) {
  const json::value* value = Find(object, key);
  if (value == nullptr || !value->is_bool()) return std::nullopt;
  return value->get_bool();
}

const json::array* GetArray(const json::object& object, std::string_view key) {
  const json::value* value = Find(object, key);
  return value == nullptr ? nullptr : value->if_array();
}

}  // namespace hami::base
