// SPDX-License-Identifier: Apache-2.0

#include "base/json_cursor.h"

#include <algorithm>
#include <array>

namespace hami::base {
namespace {

constexpr std::size_t kHexDigits = 4;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// -1: no hexadecimal digit.
int HexValue(char c) {
  if (IsDigit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The four digits that TEXT begins with; -1: there are none.
int HexAt(std::string_view text) {
  if (text.size() < kHexDigits) return -1;
  int number = 0;
  for (const char c : text.substr(0, kHexDigits)) {
    const int digit = HexValue(c);
    if (digit < 0) return -1;
    number = number * 16 + digit;
  }
  return number;
}

bool IsHighSurrogate(int unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool IsLowSurrogate(int unit) { return unit >= 0xDC00 && unit < 0xE000; }

// The bytes of the UTF-8 character that TEXT begins with, which is none of ASCII; 0: it is none at all.
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // Written longer than need be, surrogates, and what lies beyond Unicode.
  const unsigned second = byte(1);
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return wrong ? 0 : length;
}

char* PutUtf8(char* to, unsigned code) {
  const auto tail = [&](unsigned shift) { *to++ = static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) {
    *to++ = static_cast<char>(code);
  } else if (code < 0x800) {
    *to++ = static_cast<char>(0xC0U | (code >> 6U));
    tail(0);
  } else if (code < 0x10000) {
    *to++ = static_cast<char>(0xE0U | (code >> 12U));
    tail(6);
    tail(0);
  } else {
    *to++ = static_cast<char>(0xF0U | (code >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
  return to;
}

// Of the letter of an escape.
char Meant(char kind) {
  switch (kind) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return kind;
  }
}

constexpr std::size_t kBlock = 64;
constexpr std::size_t kPiece = 16 * kBlock;

// The quotation marks in as many whole blocks of TEXT as are plain otherwise. Returns how many.
std::size_t FindMarks([[maybe_unused]] std::string_view text,
                      [[maybe_unused]] std::array<std::uint32_t, kPiece>& marks) {
  std::size_t count = 0;
#ifdef __SSE2__
  for (std::size_t at = 0; at + kBlock <= text.size(); at += kBlock) {
    std::uint64_t quotes = 0;
    __m128i others = _mm_setzero_si128();
    for (std::size_t i = 0; i < kBlock; i += sizeof(__m128i)) {
      const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at + i));
      const auto found = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8('"'))));
      quotes |= std::uint64_t{found} << i;
      others = _mm_or_si128(
          others, _mm_or_si128(_mm_cmplt_epi8(some, _mm_set1_epi8(' ')), _mm_cmpeq_epi8(some, _mm_set1_epi8('\\'))));
    }
    if (_mm_movemask_epi8(others) != 0) return count;
    for (; quotes != 0; quotes &= quotes - 1) {
      marks[count++] = static_cast<std::uint32_t>(at) + static_cast<std::uint32_t>(std::countr_zero(quotes));
    }
  }
#endif
  return count;
}

}  // namespace

// Most texts are short: what is left of one is looked at together with what stands before it.
bool IsPlain(std::string_view text) {
#ifdef __SSE2__
  constexpr std::size_t kWidth = sizeof(__m128i);
  const auto others = [](__m128i some) {
    return _mm_or_si128(
        _mm_cmplt_epi8(some, _mm_set1_epi8(' ')),
        _mm_or_si128(_mm_cmpeq_epi8(some, _mm_set1_epi8('"')), _mm_cmpeq_epi8(some, _mm_set1_epi8('\\'))));
  };
  if (text.size() >= kWidth) {
    const auto at = [&](std::size_t from) {
      return others(_mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + from)));
    };
    __m128i found = at(text.size() - kWidth);
    for (std::size_t from = 0; from + kWidth < text.size(); from += kWidth) found = _mm_or_si128(found, at(from));
    return _mm_movemask_epi8(found) == 0;
  }
  if (text.size() >= kWidth / 2) {
    const auto half = [&](std::size_t from) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(text.data() + from));
    };
    return _mm_movemask_epi8(others(_mm_unpacklo_epi64(half(0), half(text.size() - kWidth / 2)))) == 0;
  }
#endif
  return PlainLength(text) == text.size();
}

bool JsonCursor::SkipEscape() {
  if (end_ - at_ < 2) return false;
  const char kind = at_[1];
  at_ += 2;
  if (kind == '"' || kind == '\\') return true;
  if (kind != 'u') return std::string_view("/bfnrt").find(kind) != std::string_view::npos;
  const int unit = HexAt(Rest());
  if (unit < 0 || IsLowSurrogate(unit)) return false;
  at_ += kHexDigits;
  if (!IsHighSurrogate(unit)) return true;
  if (!Rest().starts_with("\\u") || !IsLowSurrogate(HexAt(Rest().substr(2)))) return false;
  at_ += 2 + kHexDigits;
  return true;
}

// Texts within texts are mostly what needs no escapes, and quotation marks that do: sixteen characters at a time.
void JsonCursor::SkipQuoted() {
#ifdef __SSE2__
  constexpr int kWidth = sizeof(__m128i);
  while (end_ - at_ > kWidth) {
    const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at_));
    const __m128i others =
        _mm_or_si128(_mm_cmplt_epi8(some, _mm_set1_epi8(' ')),
                     _mm_or_si128(_mm_cmpeq_epi8(some, _mm_set1_epi8('"')), _mm_cmpeq_epi8(some, _mm_set1_epi8('\\'))));
    int next = kWidth;
    for (auto left = static_cast<unsigned>(_mm_movemask_epi8(others)); left != 0;) {
      const int i = std::countr_zero(left);
      if (at_[i] != '\\' || (at_[i + 1] != '"' && at_[i + 1] != '\\')) {
        at_ += i;
        return;
      }
      left &= ~(3U << static_cast<unsigned>(i));
      next = std::max(kWidth, i + 2);  // the last escape may end in the next sixteen
    }
    at_ += next;
  }
#endif
}

bool JsonCursor::SkipToQuote() {
  while (true) {
    SkipQuoted();
    at_ += PlainLength(Rest());
    if (at_ == end_ || *at_ == '"') return at_ != end_;
    if (*at_ == '\\') {
      if (!SkipEscape()) return false;
    } else {
      const std::size_t length = static_cast<unsigned char>(*at_) < 0x80 ? 0 : Utf8Length(Rest());
      if (length == 0) return false;  // or a control character
      at_ += length;
    }
  }
}

void JsonCursor::TakePlainStrings(std::vector<std::string_view>& strings, std::size_t most) {
  // Where each string ends must not be known before the next is looked for: all quotation marks of a piece come first.
  std::array<std::uint32_t, kPiece> marks;
  while (Rest().size() > kBlock && *at_ == '"' && strings.size() < most) {
    const std::size_t count = FindMarks(Rest().substr(0, kPiece), marks);
    std::uint32_t done = 0;
    for (std::size_t i = 0; i + 2 < count; i += 2) {
      const std::uint32_t begin = marks[i] + 1;
      const std::uint32_t end = marks[i + 1];
      if (at_[end + 1] != ',' || marks[i + 2] != end + 2) break;
      strings.emplace_back(at_ + begin, end - begin);
      done = end + 2;
    }
    if (done == 0) return;
    at_ += done;
  }
}

bool JsonCursor::SkipValue() {
  std::string_view inside;
  bool plain = false;
  switch (Next()) {
    case '"':
      return TakeString(inside, plain);
    case '{':
      return TakeObject([this](std::string_view, bool) { return SkipValue(); });
    case '[':
      return TakeList([this] { return SkipValue(); });
    default:
      return TakeWord(inside);
  }
}

bool JsonCursor::SkipDigits() {
  const char* const begin = at_;
  while (at_ != end_ && IsDigit(*at_)) ++at_;
  return at_ != begin;
}

bool JsonCursor::TakeWord(std::string_view& word) {
  SkipBlanks();
  const char* const begin = at_;
  const auto done = [&] {
    word = {begin, static_cast<std::size_t>(at_ - begin)};
    return true;
  };
  for (const std::string_view name : {"true", "false", "null"}) {
    if (!Rest().starts_with(name)) continue;
    at_ += name.size();
    return done();
  }
  const auto take = [&](char a, char b) {
    if (at_ == end_ || (*at_ != a && *at_ != b)) return false;
    ++at_;
    return true;
  };
  take('-', '-');
  if (!take('0', '0') && !SkipDigits()) return false;
  if (take('.', '.') && !SkipDigits()) return false;
  if (take('e', 'E')) {
    take('+', '-');
    if (!SkipDigits()) return false;
  }
  return done();
}

std::string_view KindOfJson(std::string_view text) {
  JsonCursor cursor(text);
  std::string_view value;
  if (!cursor.TakeValue(value) || !cursor.AtEnd()) return {};
  switch (value.front()) {
    case '{':
      return "an object";
    case '[':
      return "a list";
    case '"':
      return "a string";
    case 'n':
    case 't':
    case 'f':
      return value;
    default:
      return "a number";
  }
}

std::string DecodeJsonString(std::string_view inside) {
  std::string out(inside.size(), '\0');  // never longer than it is written
  char* to = out.data();
  const char* const end = inside.data() + inside.size();
  for (const char* from = inside.data(); from != end;) {
#ifdef __SSE2__
    // There is room for sixteen wherever sixteen are left; what is too many is written over.
    if (end - from >= static_cast<std::ptrdiff_t>(sizeof(__m128i))) {
      const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), some);
      const auto escapes = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8('\\'))));
      const int plain = escapes == 0 ? static_cast<int>(sizeof(__m128i)) : std::countr_zero(escapes);
      from += plain;
      to += plain;
      if (escapes == 0) continue;
    }
#endif
    if (*from != '\\') {
      *to++ = *from++;
      continue;
    }
    const char kind = from[1];
    from += 2;
    if (kind != 'u') {
      *to++ = Meant(kind);
      continue;
    }
    const auto unit = [&] {
      from += kHexDigits;
      return HexAt({from - kHexDigits, kHexDigits});
    };
    int code = unit();
    if (IsHighSurrogate(code)) {
      from += 2;  // the `\u` of its other half
      code = 0x10000 + ((code - 0xD800) << 10) + (unit() - 0xDC00);
    }
    to = PutUtf8(to, static_cast<unsigned>(code));
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
  return out;
}

}  // namespace hami::base
