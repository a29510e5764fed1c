// SPDX-License-Identifier: Apache-2.0
//
// JsonCursor walks over JSON text without keeping any of it: for documents of which little is wanted, or which need not
// be read at all. It checks strings and nesting; what a value says inside is for whoever parses it.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hami::kube {

// How many characters at the begin of TEXT mean themselves within a JSON string: no control characters, none beyond
// ASCII, no backslash, no quotation mark.
inline std::size_t PlainLength(std::string_view text) {
  std::size_t at = 0;
  if constexpr (std::endian::native == std::endian::little) {
    // Eight together. A byte that is not plain gets its high bit set, and so, perhaps, do some that come after it.
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    for (std::uint64_t word = 0; at + sizeof word <= text.size(); at += sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      const std::uint64_t others =
          word | (word - ' ' * kOnes) | ((word ^ '"' * kOnes) - kOnes) | ((word ^ '\\' * kOnes) - kOnes);
      const std::uint64_t highs = others & 0x80 * kOnes;
      if (highs != 0) return at + static_cast<std::size_t>(std::countr_zero(highs)) / 8;
    }
  }
  const auto plain = [](char c) { return static_cast<signed char>(c) >= ' ' && c != '"' && c != '\\'; };
  while (at < text.size() && plain(text[at])) ++at;
  return at;
}

class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  bool AtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }
  std::size_t at() const { return at_; }

  bool Take(char wanted) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  // The inside of a string, as written. PLAIN: it means what it says, no escapes and nothing beyond ASCII.
  bool TakeString(std::string_view& inside, bool& plain) {
    if (!Take('"')) return false;
    const std::size_t begin = at_;
    at_ += PlainLength(text_.substr(at_));
    plain = at_ < text_.size() && text_[at_] == '"';
    if (!plain) return TakeRest(begin, inside);
    inside = text_.substr(begin, at_++ - begin);
    return true;
  }
  // A key of an object with its colon.
  bool TakeKey(std::string_view& key);
  // A whole value, whatever it is.
  bool TakeValue(std::string_view& value);

 private:
  void SkipBlanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  // The end of a string that began at BEGIN and is plain up to here.
  bool TakeRest(std::size_t begin, std::string_view& inside);
  // A number, true, false, null.
  bool TakeWord();

  std::string_view text_;
  std::size_t at_ = 0;
};

// Who an object is, as its text says it; views into the text.
struct Identity {
  std::string_view ns;
  std::string_view name;
  std::string_view uid;
  std::string_view version;
};

// True: CURSOR stood before an object with plain metadata, which IDENTITY shows. The cursor is then somewhere within.
bool FindIdentity(JsonCursor& cursor, Identity& identity);

}  // namespace hami::kube
