// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/amounts.h"

#include <strings.h>

#include <initializer_list>

namespace hami::vgpu {
namespace {

constexpr int kMostFractionDigits = 9;  // 10^9 · 2^30 fits into 64 bits; more places are a typing error

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
const char* SkipBlanks(const char* text) {
  while (IsBlank(*text)) ++text;
  return text;
}

// The power of 1024 that a unit stands for; -1 = not a unit. Sets `warn` for spellings that HAMi reads otherwise.
int UnitPower(const char* unit, bool* warn) {
  int power = 0;
  switch (*unit | 0x20) {
    case 'k':
      power = 1;
      break;
    case 'm':
      power = 2;
      break;
    case 'g':
      power = 3;
      break;
    case 't':
      power = 4;
      *warn = true;  // HAMi knows no t
      break;
    case 'b':
      *warn = true;
      return *SkipBlanks(unit + 1) == '\0' ? 0 : -1;
    default:
      return -1;
  }
  ++unit;
  if (*SkipBlanks(unit) == '\0') return power;
  *warn = true;
  if (*unit == 'i' || *unit == 'I') ++unit;
  if (*unit == 'b' || *unit == 'B') ++unit;
  return *SkipBlanks(unit) == '\0' ? power : -1;
}

struct Number {
  uint64_t value = 0;
  bool octal_in_hami = false;
  bool invalid = false;  // too large, or no digit at all
  const char* rest = nullptr;
};

Number TakeNumber(const char* text) {
  Number out;
  int base = 10;
  if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X') && DigitOf(text[2]) < 16) {
    base = 16;
    text += 2;
  } else if (text[0] == '0' && DigitOf(text[1]) < 10) {
    out.octal_in_hami = true;  // nobody means it
  }
  const char* const first = text;
  for (; DigitOf(*text) < base; ++text) {
    out.invalid = out.invalid || __builtin_mul_overflow(out.value, static_cast<uint64_t>(base), &out.value) ||
                  __builtin_add_overflow(out.value, static_cast<uint64_t>(DigitOf(*text)), &out.value);
  }
  out.invalid = out.invalid || text == first;
  out.rest = text;
  return out;
}

// What stands behind the point, as numerator and denominator. False: nothing, or more places than are meant.
bool TakeFraction(const char** text, uint64_t* numerator, uint64_t* denominator) {
  int digits = 0;
  for (; DigitOf(**text) < 10; ++*text, ++digits) {
    if (digits == kMostFractionDigits) return false;
    *numerator = *numerator * 10 + static_cast<uint64_t>(DigitOf(**text));
    *denominator *= 10;
  }
  return digits != 0;
}

}  // namespace

ParsedSize ParseSize(const char* text) {
  constexpr ParsedSize kInvalid{0, false, true};
  text = SkipBlanks(text);
  if (*text == '\0') return {};
  if (*text == '+') ++text;
  const Number whole = TakeNumber(text);
  if (whole.invalid) return kInvalid;
  ParsedSize out;
  out.warn = whole.octal_in_hami;
  text = whole.rest;
  uint64_t numerator = 0;
  uint64_t denominator = 1;
  if (*text == '.') {
    ++text;
    out.warn = true;  // HAMi stops at the point
    if (!TakeFraction(&text, &numerator, &denominator)) return kInvalid;
  }
  text = SkipBlanks(text);
  const int power = *text == '\0' ? 0 : UnitPower(text, &out.warn);
  if (power < 0 || whole.value > (UINT64_MAX >> (10 * power))) return kInvalid;
  // A fraction of a tebibyte is that of 1024 gibibytes: the product fits.
  const int low = power < 3 ? power : 3;
  const uint64_t part = (numerator << (10 * low)) / denominator << (10 * (power - low));
  if (__builtin_add_overflow(whole.value << (10 * power), part, &out.bytes)) return kInvalid;
  return out.bytes == 0 && numerator != 0 ? kInvalid : out;
}

ParsedPercent ParsePercent(const char* text) {
  text = SkipBlanks(text);
  if (*text == '\0') return {};
  if (*text == '+') ++text;
  const Number number = TakeNumber(text);
  if (number.invalid) return {0, true};
  text = SkipBlanks(number.rest);
  if (*text == '%') text = SkipBlanks(text + 1);
  if (*text != '\0') return {0, true};
  return {number.value, false};
}

bool ParseBool(const char* text, bool otherwise) {
  if (text == nullptr) return otherwise;
  for (const char* yes : {"true", "1", "t", "yes", "on"}) {
    if (strcasecmp(text, yes) == 0) return true;
  }
  for (const char* no : {"false", "0", "f", "no", "off"}) {
    if (strcasecmp(text, no) == 0) return false;
  }
  return otherwise;
}

int NumberUpTo(int most, const char* text) {
  text = SkipBlanks(text);
  if (*text == '+') ++text;
  if (DigitOf(*text) > 9) return -1;
  int number = 0;
  for (; DigitOf(*text) <= 9; ++text) {
    number = number * 10 + DigitOf(*text);
    if (number > most) return -1;
  }
  return *SkipBlanks(text) == '\0' ? number : -1;
}

}  // namespace hami::vgpu
