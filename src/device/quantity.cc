// SPDX-License-Identifier: Apache-2.0

#include "device/quantity.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "base/strings.h"

namespace hami::device {
namespace {

using base::Fail;
using base::Result;

__extension__ using Wide = unsigned __int128;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
// Beyond this every answer is "too large" or "as good as zero" whatever the digits say.
constexpr int kMaxExponent = 100;
// Finer than the API's own nanos: what lies behind can only round up.
constexpr std::size_t kFractionDigits = 18;
// As many fit into 96 bits. A number with more is beyond 64 bits, or its exponent takes most of them away.
constexpr std::size_t kMostDigits = 28;

struct Suffix {
  std::string_view text;
  bool binary;
  int exponent;
};

constexpr std::array<Suffix, 16> kSuffixes = {{{"", false, 0},
                                               {"n", false, -9},
                                               {"u", false, -6},
                                               {"m", false, -3},
                                               {"k", false, 3},
                                               {"M", false, 6},
                                               {"G", false, 9},
                                               {"T", false, 12},
                                               {"P", false, 15},
                                               {"E", false, 18},
                                               {"Ki", true, 10},
                                               {"Mi", true, 20},
                                               {"Gi", true, 30},
                                               {"Ti", true, 40},
                                               {"Pi", true, 50},
                                               {"Ei", true, 60}}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view TakeDigits(std::string_view& text) {
  std::size_t n = 0;
  while (n < text.size() && IsDigit(text[n])) ++n;
  const std::string_view digits = text.substr(0, n);
  text.remove_prefix(n);
  return digits;
}

std::optional<Suffix> ReadSuffix(std::string_view text) {
  for (const Suffix& suffix : kSuffixes) {
    if (suffix.text == text) return suffix;
  }
  if (text.empty() || (text[0] != 'e' && text[0] != 'E')) return std::nullopt;
  text.remove_prefix(1);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const std::string_view digits = TakeDigits(text);
  if (digits.empty() || !text.empty()) return std::nullopt;
  int exponent = 0;
  for (const char c : digits) exponent = exponent > kMaxExponent ? exponent : exponent * 10 + (c - '0');
  return Suffix{"", false, negative ? -exponent : exponent};
}

Wide ReadDigits(std::string_view digits) {
  Wide value = 0;
  for (const char c : digits) value = value * 10 + static_cast<unsigned>(c - '0');
  return value;
}

std::int64_t Saturate(Wide value) { return value > static_cast<Wide>(kMax) ? kMax : static_cast<std::int64_t>(value); }

struct Rounded {
  std::int64_t value = 0;
  bool whole = true;
};

// value × 2^binary × 10^decimal, rounded up; REMAINDER says that the value itself was cut.
Rounded RoundUp(Wide value, bool remainder, int binary, int decimal) {
  for (; decimal < 0 && value != 0; ++decimal) {
    // Doubling before dividing keeps `0.5Gi` exact.
    for (; binary > 0 && value >> 100 == 0; --binary) value *= 2;
    remainder = remainder || value % 10 != 0;
    value /= 10;
  }
  for (; decimal > 0; --decimal) {
    if (value > static_cast<Wide>(kMax)) return {kMax, true};
    value *= 10;
  }
  for (; binary > 0; --binary) {
    if (value > static_cast<Wide>(kMax)) return {kMax, true};
    value *= 2;
  }
  return {Saturate(value + (remainder ? 1 : 0)), !remainder};
}

}  // namespace

Result<Quantity> ParseQuantity(std::string_view text) {
  const std::string_view original = text;
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  std::string_view whole = TakeDigits(text);
  std::string_view fraction;
  const bool has_whole = !whole.empty();
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    fraction = TakeDigits(text);
  }
  const std::optional<Suffix> suffix = ReadSuffix(text);
  if ((!has_whole && fraction.empty()) || !suffix) {
    return Fail(base::Concat({"not a quantity: \"", base::Printable(original), "\""}));
  }
  // Leading zeros carry no digits.
  while (whole.size() > 1 && whole[0] == '0') whole.remove_prefix(1);

  const std::string_view kept = fraction.substr(0, kFractionDigits);
  std::string digits = base::Concat({whole, kept});
  int decimal = (suffix->binary ? 0 : suffix->exponent) - static_cast<int>(kept.size());
  bool cut = fraction.find_first_not_of('0', kept.size()) != std::string_view::npos;
  if (digits.size() > kMostDigits) {
    cut = cut || digits.find_first_not_of('0', kMostDigits) != std::string::npos;
    decimal += static_cast<int>(digits.size() - kMostDigits);
    digits.resize(kMostDigits);
  }
  const Rounded rounded = RoundUp(ReadDigits(digits), cut, suffix->binary ? suffix->exponent : 0, decimal);
  return Quantity{negative ? -rounded.value : rounded.value, rounded.whole, suffix->binary};
}

}  // namespace hami::device
