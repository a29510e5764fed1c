// SPDX-License-Identifier: Apache-2.0

#include "base/json_parts.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace hami::base {
namespace {

json::string_view View(std::string_view text) { return {text.data(), text.size()}; }

class Reader {
 public:
  Reader(JsonCursor& cursor, json::value_stack& values) : cursor_(cursor), values_(values) {}

  bool Value(Parts parts) {
    switch (cursor_.Next()) {
      case '{':
        return Object(parts);
      case '[':
        return List(parts);
      case '"':
        return String();
      default:
        return Word();
    }
  }

 private:
  bool Object(Parts parts) {
    std::size_t size = 0;
    const bool taken = cursor_.TakeObject([&](std::string_view key, bool plain) {
      std::string decoded;
      if (!plain) key = decoded = DecodeJsonString(key);
      const auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.key == key; });
      if (!parts.empty() && part == parts.end()) return cursor_.TakeValue(passed_);
      ++size;
      values_.push_key(View(key));
      return Value(parts.empty() ? parts : part->inside);
    });
    if (taken) values_.push_object(size);
    return taken;
  }

  bool List(Parts parts) {
    std::size_t size = 0;
    const bool taken = cursor_.TakeList([&] {
      ++size;
      return Value(parts);
    });
    if (taken) values_.push_array(size);
    return taken;
  }

  bool String() {
    std::string_view inside;
    bool plain = false;
    if (!cursor_.TakeString(inside, plain)) return false;
    if (plain) {
      values_.push_string(View(inside));
    } else {
      values_.push_string(DecodeJsonString(inside));
    }
    return true;
  }

  bool Word() {
    std::string_view word;
    if (!cursor_.TakeWord(word)) return false;
    std::int64_t number = 0;
    if (word == "null") {
      values_.push_null();
    } else if (word == "true" || word == "false") {
      values_.push_bool(word == "true");
    } else {
      const char* const end = word.data() + word.size();
      const auto read = std::from_chars(word.data(), end, number);
      if (read.ec != std::errc() || read.ptr != end) return Number(word);
      values_.push_int64(number);
    }
    return true;
  }

  // With a fraction, an exponent, or larger than usual.
  bool Number(std::string_view word) {
    json::error_code error;
    const json::value value = json::parse(View(word), error);
    if (error) return false;
    if (value.is_double()) {
      values_.push_double(value.get_double());
    } else if (value.is_uint64()) {
      values_.push_uint64(value.get_uint64());
    } else {
      values_.push_int64(value.get_int64());
    }
    return true;
  }

  JsonCursor& cursor_;
  json::value_stack& values_;
  std::string_view passed_;
};

}  // namespace

std::optional<json::value> TakeParts(JsonCursor& cursor, Parts parts, const json::storage_ptr& storage) {
  std::array<unsigned char, 2048> buffer;
  json::value_stack values({}, buffer.data(), buffer.size());
  values.reset(storage);
  if (!Reader(cursor, values).Value(parts)) return std::nullopt;
  return values.release();
}

}  // namespace hami::base
