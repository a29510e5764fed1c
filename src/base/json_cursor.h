// SPDX-License-Identifier: Apache-2.0
//
// JsonCursor walks over JSON text without keeping any of it: for documents of which little is wanted, or which need not
// be read at all. What it passes over is checked as a parser would check it (but for the size of numbers), so that a
// text is accepted or refused whatever is read of it.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hami::base {

// How many characters at the begin of TEXT mean themselves within a JSON string: no control characters, none beyond
// ASCII, no backslash, no quotation mark.
inline std::size_t PlainLength(std::string_view text) {
  std::size_t at = 0;
#ifdef __SSE2__
  for (; at + sizeof(__m128i) <= text.size(); at += sizeof(__m128i)) {
    const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
    // As signed numbers those beyond ASCII are below the blank, too.
    const __m128i others =
        _mm_or_si128(_mm_cmplt_epi8(some, _mm_set1_epi8(' ')),
                     _mm_or_si128(_mm_cmpeq_epi8(some, _mm_set1_epi8('"')), _mm_cmpeq_epi8(some, _mm_set1_epi8('\\'))));
    const auto mask = static_cast<unsigned>(_mm_movemask_epi8(others));
    if (mask != 0) return at + static_cast<std::size_t>(std::countr_zero(mask));
  }
#endif
  const auto plain = [](char c) { return static_cast<signed char>(c) >= ' ' && c != '"' && c != '\\'; };
  while (at < text.size() && plain(text[at])) ++at;
  return at;
}

// Whether all of TEXT means itself.
bool IsPlain(std::string_view text);

class JsonCursor {
 public:
  // As kube::ParseDocument: deep enough for Kubernetes' own objects.
  static constexpr int kMostDepth = 64;

  explicit JsonCursor(std::string_view text) : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}

  bool AtEnd() {
    SkipBlanks();
    return at_ == end_;
  }
  std::size_t at() const { return static_cast<std::size_t>(at_ - begin_); }
  // What comes next; 0 at the end.
  char Next() {
    SkipBlanks();
    return at_ == end_ ? '\0' : *at_;
  }

  bool Take(char wanted) {
    if (at_ == end_ || *at_ != wanted) {  // servers write no blanks
      SkipBlanks();
      if (at_ == end_ || *at_ != wanted) return false;
    }
    ++at_;
    return true;
  }

  // The inside of a string, as written. PLAIN: it means what it says, no escapes and nothing beyond ASCII.
  bool TakeString(std::string_view& inside, bool& plain) {
    if (!Take('"')) return false;
    const char* const begin = at_;
    at_ += PlainLength(Rest());
    plain = at_ != end_ && *at_ == '"';
    if (!plain && !SkipToQuote()) return false;
    inside = {begin, static_cast<std::size_t>(at_++ - begin)};
    return true;
  }
  // Of the items of a list, strings that are plain and have their comma right behind them, as servers write them. It
  // may stop at any item, and never takes the last: the others are to be read one by one.
  // With MOST strings or a few more it stops, too.
  void TakePlainStrings(std::vector<std::string_view>& strings,
                        std::size_t most = std::numeric_limits<std::size_t>::max());
  // A key of an object with its colon.
  bool TakeKey(std::string_view& key) {
    bool plain = false;
    return TakeString(key, plain) && Take(':');
  }
  // A whole value, whatever it is.
  bool TakeValue(std::string_view& value) {
    SkipBlanks();
    const char* const begin = at_;
    if (!SkipValue()) return false;
    value = {begin, static_cast<std::size_t>(at_ - begin)};
    return true;
  }
  // A number, true, false or null.
  bool TakeWord(std::string_view& word);

  // An object: each(key, plain) takes the value that follows; false ends it.
  template <typename Each>
  bool TakeObject(Each each) {
    return TakeAll('{', '}', [&] {
      std::string_view key;
      bool plain = false;
      return TakeString(key, plain) && Take(':') && each(key, plain);
    });
  }
  // A list: each() takes the item that follows; false ends it.
  template <typename Each>
  bool TakeList(Each each) {
    return TakeAll('[', ']', each);
  }

 private:
  template <typename Each>
  bool TakeAll(char open, char close, Each each) {
    if (!Take(open) || ++depth_ > kMostDepth) return false;
    if (!Take(close)) {
      do {
        if (!each()) return false;
      } while (Take(','));
      if (!Take(close)) return false;
    }
    --depth_;
    return true;
  }

  std::string_view Rest() const { return {at_, static_cast<std::size_t>(end_ - at_)}; }
  void SkipBlanks() {
    while (at_ != end_ && *at_ <= ' ' && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool SkipValue();
  // To the end of the string that it is in.
  bool SkipToQuote();
  void SkipQuoted();
  bool SkipEscape();
  bool SkipDigits();

  const char* begin_;
  const char* at_;
  const char* end_;
  int depth_ = 0;
};

// What TEXT is, to be told: "null", "a list", "an object" and so on; a part of it, or a literal. Empty: not JSON.
std::string_view KindOfJson(std::string_view text);

// What the inside of a string means that JsonCursor has accepted.
std::string DecodeJsonString(std::string_view inside);

}  // namespace hami::base
