// SPDX-License-Identifier: Apache-2.0

#include "kube/json_cursor.h"

#include <cctype>

namespace hami::kube {
namespace {

bool TakeText(JsonCursor& cursor, std::string_view& text) {
  bool plain = false;
  return cursor.TakeString(text, plain) && plain;
}

}  // namespace

bool JsonCursor::TakeRest(std::size_t begin, std::string_view& inside) {
  while (true) {
    const std::size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) return false;
    const std::string_view part = text_.substr(at_, quote - at_);
    at_ = quote + 1;
    // An odd number of backslashes before it: the quotation mark is one of the text.
    const std::size_t last = part.find_last_not_of('\\');
    const std::size_t slashes = part.size() - (last == std::string_view::npos ? 0 : last + 1);
    if (slashes % 2 == 0) break;
  }
  inside = text_.substr(begin, at_ - 1 - begin);
  return true;
}

bool JsonCursor::TakeKey(std::string_view& key) {
  bool plain = false;
  return TakeString(key, plain) && Take(':');
}

bool JsonCursor::TakeValue(std::string_view& value) {
  SkipBlanks();
  const std::size_t begin = at_;
  std::size_t depth = 0;
  do {
    SkipBlanks();
    if (at_ == text_.size()) return false;
    const char c = text_[at_];
    if (c == '"') {
      std::string_view inside;
      bool plain = false;
      if (!TakeString(inside, plain)) return false;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at_;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return false;
      --depth;
      ++at_;
    } else if (depth > 0 && (c == ',' || c == ':')) {
      ++at_;
    } else if (!TakeWord()) {
      return false;
    }
  } while (depth > 0);
  value = text_.substr(begin, at_ - begin);
  return true;
}

bool JsonCursor::TakeWord() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-' ||
                                text_[at_] == '+' || text_[at_] == '.')) {
    ++at_;
  }
  return at_ > begin;
}

bool FindIdentity(JsonCursor& cursor, Identity& identity) {
  std::string_view key;
  std::string_view other;
  if (!cursor.Take('{')) return false;
  while (cursor.TakeKey(key) && key != "metadata") {
    if (!cursor.TakeValue(other) || !cursor.Take(',')) return false;
  }
  if (key != "metadata" || !cursor.Take('{')) return false;
  do {
    if (!cursor.TakeKey(key)) return false;
    std::string_view* const field = key == "namespace"         ? &identity.ns
                                    : key == "name"            ? &identity.name
                                    : key == "uid"             ? &identity.uid
                                    : key == "resourceVersion" ? &identity.version
                                                               : nullptr;
    if (field == nullptr ? !cursor.TakeValue(other) : !TakeText(cursor, *field)) return false;
  } while (cursor.Take(','));
  return cursor.Take('}') && !identity.name.empty() && !identity.uid.empty() && !identity.version.empty();
}

}  // namespace hami::kube
