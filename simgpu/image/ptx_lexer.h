// SPDX-License-Identifier: Apache-2.0
//
// PTX text cut into tokens that point into it. Comments and space vanish. Total: a byte that starts no token is a
// token of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace simgpu {

struct Token {
  enum class Kind { kEnd, kWord, kDirective, kNumber, kString, kPunctuation };
  Kind kind = Kind::kEnd;
  std::string_view text;

  bool Is(std::string_view what) const { return kind != Kind::kString && text == what; }
};

class PtxLexer {
 public:
  explicit PtxLexer(std::string_view text) : text_(text) { Advance(); }

  const Token& Peek() const { return next_; }

  Token Take() {
    const Token token = next_;
    Advance();
    return token;
  }

  bool TakeIf(std::string_view what) {
    if (!next_.Is(what)) return false;
    Advance();
    return true;
  }

  int line() const { return line_; }

 private:
  void SkipBlanks();
  void Advance();
  std::size_t NumberLength() const;

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  Token next_;
};

// The bits of a PTX number literal: decimal, 0x, octal, 0b, 0f (float bits), 0d (double bits), with an optional U.
// `real` tells that the bits are those of a float of `real` bytes. Empty: not a number that fits 64 bits.
struct PtxNumber {
  std::uint64_t bits = 0;
  int real = 0;  // 0 integer, 4 or 8: width of the floating literal
};
std::optional<PtxNumber> ParsePtxNumber(std::string_view text);

}  // namespace simgpu
