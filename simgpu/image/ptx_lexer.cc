// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/ptx_lexer.h"

#include <bit>
#include <charconv>
#include <string>

namespace simgpu {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// '%' starts registers and special names; they need no kind of their own here.
bool StartsWord(char c) { return IsLetter(c) || c == '_' || c == '$' || c == '%'; }
bool InWord(char c) { return IsLetter(c) || IsDigit(c) || c == '_' || c == '$'; }
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

std::optional<std::uint64_t> Integer(std::string_view digits, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace

void PtxLexer::SkipBlanks() {
  while (at_ < text_.size()) {
    const std::string_view rest = text_.substr(at_);
    std::size_t length = 0;
    if (IsBlank(rest[0])) {
      length = 1;
    } else if (rest.starts_with("//")) {
      length = std::min(rest.find('\n'), rest.size());
    } else if (rest.starts_with("/*")) {
      const std::size_t end = rest.find("*/", 2);
      length = end == std::string_view::npos ? rest.size() : end + 2;
    } else {
      return;
    }
    for (const char c : rest.substr(0, length)) line_ += c == '\n' ? 1 : 0;
    at_ += length;
  }
}

std::size_t PtxLexer::NumberLength() const {
  std::size_t length = 1;
  while (at_ + length < text_.size()) {
    const char c = text_[at_ + length];
    const char before = text_[at_ + length - 1];
    const bool hexadecimal = text_.substr(at_).starts_with("0x") || text_.substr(at_).starts_with("0X");
    const bool exponent_sign = (c == '+' || c == '-') && (before == 'e' || before == 'E') && !hexadecimal;
    if (!InWord(c) && c != '.' && !exponent_sign) break;
    ++length;
  }
  return length;
}

void PtxLexer::Advance() {
  SkipBlanks();
  next_ = Token{};
  if (at_ >= text_.size()) return;
  const std::string_view rest = text_.substr(at_);
  const char first = rest[0];
  std::size_t length = 1;
  if (StartsWord(first)) {
    next_.kind = Token::Kind::kWord;
    while (length < rest.size() && InWord(rest[length])) ++length;
  } else if (first == '.' && rest.size() > 1 && (IsLetter(rest[1]) || rest[1] == '_')) {
    next_.kind = Token::Kind::kDirective;
    while (length < rest.size() && InWord(rest[length])) ++length;
  } else if (IsDigit(first)) {
    next_.kind = Token::Kind::kNumber;
    length = NumberLength();
  } else if (first == '"') {
    next_.kind = Token::Kind::kString;
    const std::size_t end = rest.find('"', 1);
    length = end == std::string_view::npos ? rest.size() : end + 1;
  } else {
    next_.kind = Token::Kind::kPunctuation;
  }
  next_.text = rest.substr(0, length);
  at_ += length;
}

std::optional<PtxNumber> ParsePtxNumber(std::string_view text) {
  if (text.empty() || !IsDigit(text[0])) return std::nullopt;
  const bool prefixed = text.size() > 2 && text[0] == '0';
  const char prefix = prefixed ? static_cast<char>(text[1] | 0x20) : '\0';
  if (prefix == 'f' || prefix == 'd') {
    const std::size_t digits = prefix == 'f' ? 8 : 16;
    const auto bits = Integer(text.substr(2), 16);
    if (!bits || text.size() != 2 + digits) return std::nullopt;
    return PtxNumber{*bits, prefix == 'f' ? 4 : 8};
  }
  if (text.back() == 'U') text.remove_suffix(1);
  if (prefix == 'x' || prefix == 'b') {
    const auto bits = Integer(text.substr(2), prefix == 'x' ? 16 : 2);
    return bits ? std::optional(PtxNumber{*bits, 0}) : std::nullopt;
  }
  if (text.find_first_of(".eE") != std::string_view::npos) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return PtxNumber{std::bit_cast<std::uint64_t>(value), 8};
  }
  const auto bits = Integer(text, text.size() > 1 && text[0] == '0' ? 8 : 10);
  return bits ? std::optional(PtxNumber{*bits, 0}) : std::nullopt;
}

}  // namespace simgpu
