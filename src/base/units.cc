// SPDX-License-Identifier: Apache-2.0

#include "base/units.h"

#include <array>
#include <charconv>
#include <limits>

#include "base/strings.h"

namespace hami::base {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr std::array<Unit, 14> kUnits{{{"b", 1},
                                       {"", 1},
                                       {"k", kKiB},
                                       {"kb", kKiB},
                                       {"kib", kKiB},
                                       {"ki", kKiB},
                                       {"m", kMiB},
                                       {"mb", kMiB},
                                       {"mib", kMiB},
                                       {"mi", kMiB},
                                       {"g", kGiB},
                                       {"gb", kGiB},
                                       {"gib", kGiB},
                                       {"gi", kGiB}}};
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

auto NotASize(std::string_view text) {
  return Fail(Concat({"'", text, "' is not an amount of memory"}),
              "write a number and a unit: 512m, 3g, 1.5g (units are powers of 1024; 3g = 3GiB)");
}

Result<std::uint64_t> UnitFactor(std::string_view name, std::string_view whole) {
  const std::string lower = ToLower(Trim(name));
  for (const Unit& unit : kUnits) {
    if (unit.name == lower) return unit.factor;
  }
  return NotASize(whole);
}

std::string_view TakeDigits(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

// The fraction of one unit that DIGITS after the point stand for, or nothing when it is not a whole number of bytes
// to twelve places (3.3g is fine: it rounds down; more places than that is a typing error).
Result<std::uint64_t> FractionOf(std::string_view digits, std::uint64_t factor, std::string_view whole) {
  if (digits.empty() || digits.size() > 9) return NotASize(whole);
  std::uint64_t numerator = 0;
  std::uint64_t denominator = 1;
  for (const char digit : digits) {
    numerator = numerator * 10 + static_cast<std::uint64_t>(digit - '0');
    denominator *= 10;
  }
  // factor < 2^31 and numerator < 10^9 < 2^30: the product fits.
  return numerator * factor / denominator;
}

}  // namespace

Result<Bytes> ParseBytes(std::string_view text) {
  std::string_view rest = Trim(text);
  if (rest.size() > 2 && rest[0] == '0' && (rest[1] == 'x' || rest[1] == 'X')) {
    std::uint64_t value = 0;
    const char* end = rest.data() + rest.size();
    const auto [stop, error] = std::from_chars(rest.data() + 2, end, value, 16);
    if (error != std::errc{} || stop != end || value == 0) return NotASize(text);
    return Bytes{value};
  }
  const std::string_view digits = TakeDigits(rest);
  const auto number = ParseNumber(digits);
  if (!number) return NotASize(text);
  std::string_view fraction;
  const bool has_point = !rest.empty() && rest.front() == '.';
  if (has_point) {
    rest.remove_prefix(1);
    fraction = TakeDigits(rest);
  }
  const auto factor = UnitFactor(rest, text);
  if (!factor) return tl::unexpected(factor.error());
  if (*number > kMax / *factor) return NotASize(text);
  std::uint64_t bytes = *number * *factor;
  if (has_point) {
    const auto part = FractionOf(fraction, *factor, text);
    if (!part) return tl::unexpected(part.error());
    if (bytes > kMax - *part) return NotASize(text);
    bytes += *part;
  }
  if (bytes == 0) return Fail("an amount of memory can not be zero", "write a number and a unit: 512m, 3g");
  return Bytes{bytes};
}

Result<unsigned> ParsePercent(std::string_view text) {
  std::string_view rest = Trim(text);
  if (rest.ends_with('%')) rest = Trim(rest.substr(0, rest.size() - 1));
  const auto number = ParseNumber(rest);
  if (!number || *number < 1 || *number > 100) {
    return Fail(Concat({"'", text, "' is not a percentage"}), "write a whole number from 1 to 100, e.g. 30 or 30%");
  }
  return static_cast<unsigned>(*number);
}

Result<Portion> ParsePortion(std::string_view text) {
  if (Trim(text).ends_with('%')) {
    return ParsePercent(text).map([](unsigned value) { return Portion(Percent{value}); });
  }
  return ParseBytes(text).map([](Bytes bytes) { return Portion(bytes); });
}

std::string FormatBytes(std::uint64_t bytes) {
  constexpr std::array<std::pair<std::uint64_t, const char*>, 3> kSteps{{{kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}}};
  for (const auto& [factor, name] : kSteps) {
    if (bytes < factor) continue;
    const std::uint64_t whole = bytes / factor;
    const std::uint64_t tenths = bytes % factor * 10 / factor;
    std::string text = std::to_string(whole);
    if (tenths != 0) text += "." + std::to_string(tenths);
    return text + " " + name;
  }
  return std::to_string(bytes) + " B";
}

std::string FormatAge(std::int64_t seconds) {
  if (seconds < 0) seconds = 0;
  const auto two = [](std::int64_t value) { return Concat({value < 10 ? "0" : "", std::to_string(value)}); };
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return std::to_string(seconds / 60) + "m" + two(seconds % 60) + "s";
  if (seconds < 86400) return std::to_string(seconds / 3600) + "h" + two(seconds / 60 % 60) + "m";
  return std::to_string(seconds / 86400) + "d" + two(seconds / 3600 % 24) + "h";
}

}  // namespace hami::base
