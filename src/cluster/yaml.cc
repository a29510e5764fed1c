// SPDX-License-Identifier: Apache-2.0

#include "cluster/yaml.h"

namespace hami::cluster {
namespace {

namespace json = base::json;

bool IsBlock(const json::value& value) {
  return (value.is_object() && !value.get_object().empty()) || (value.is_array() && !value.get_array().empty());
}

void Append(std::string& out, const json::value& value, std::size_t indent);

// What stands behind `key:` or `-`.
void AppendBehind(std::string& out, const json::value& value, std::size_t indent) {
  if (IsBlock(value)) {
    out += '\n';
    Append(out, value, indent);
  } else {
    out += ' ' + json::serialize(value) + '\n';
  }
}

void Append(std::string& out, const json::value& value, std::size_t indent) {
  const std::string blanks(indent, ' ');
  if (const json::object* object = value.if_object()) {
    for (const auto& [key, member] : *object) {
      out += blanks + json::serialize(json::string(key)) + ':';
      AppendBehind(out, member, indent + 2);
    }
    return;
  }
  for (const json::value& item : value.get_array()) {
    out += blanks + '-';
    AppendBehind(out, item, indent + 2);
  }
}

}  // namespace

std::string Yaml(const json::value& value) {
  std::string out;
  if (IsBlock(value)) {
    Append(out, value, 0);
  } else {
    out = json::serialize(value) + '\n';
  }
  return out;
}

}  // namespace hami::cluster
