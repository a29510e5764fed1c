// SPDX-License-Identifier: Apache-2.0

#include "device/go_yaml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace hami::device {
namespace {

constexpr std::string_view kPlain = "?";
constexpr std::string_view kIntTag = "tag:yaml.org,2002:int";
constexpr std::string_view kFloatTag = "tag:yaml.org,2002:float";
constexpr std::string_view kBoolTag = "tag:yaml.org,2002:bool";

constexpr std::array<std::string_view, 22> kFlags = {"y",     "Y",     "yes",   "Yes", "YES", "true", "True", "TRUE",
                                                     "on",    "On",    "ON",    "n",   "N",   "no",   "No",   "NO",
                                                     "false", "False", "FALSE", "off", "Off", "OFF"};

bool TakeSign(std::string_view& text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  return negative;
}

int TakeBase(std::string_view& text) {
  if (text.size() < 2 || text.front() != '0') return 10;
  for (const auto& [letters, base] : {std::pair("xX", 16), std::pair("oO", 8), std::pair("bB", 2)}) {
    if (text[1] != letters[0] && text[1] != letters[1]) continue;
    text.remove_prefix(2);
    return base;
  }
  text.remove_prefix(1);
  return 8;
}

template <typename T, typename... Format>
std::optional<T> ReadAll(std::string_view text, Format... format) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, format...);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

// What does not fit is a float for Go, and beyond every whole number.
std::optional<std::int64_t> Whole(std::string_view text) {
  const bool negative = TakeSign(text);
  const int base = TakeBase(text);
  const auto size = ReadAll<std::uint64_t>(text, base);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (!size || *size > kMost + (negative ? 1 : 0)) return std::nullopt;
  return static_cast<std::int64_t>(negative ? std::uint64_t{0} - *size : *size);
}

std::optional<double> Real(std::string_view text) {
  const bool negative = TakeSign(text);
  const bool begins = !text.empty() && (text.front() == '.' || (text.front() >= '0' && text.front() <= '9'));
  const auto size = begins ? ReadAll<double>(text, std::chars_format::general) : std::nullopt;
  return size && negative ? -*size : size;
}

template <typename T>
bool IsNumber(std::string_view tag, std::string scalar) {
  if (tag != kPlain && tag != kIntTag && tag != kFloatTag) return false;
  if (scalar.starts_with('_')) return false;
  std::erase(scalar, '_');
  using Limits = std::numeric_limits<T>;
  if (const auto whole = Whole(scalar)) return *whole >= Limits::min() && *whole <= Limits::max();
  const auto real = Real(scalar);
  // What is behind the point is left out. 2 to the 63rd, unlike the largest of 64 bits, is a double.
  return real && tag != kIntTag && std::trunc(*real) >= static_cast<double>(Limits::min()) &&
         std::trunc(*real) < -static_cast<double>(Limits::min());
}

}  // namespace

bool GoTakes(const std::string& tag, const std::string& scalar, GoType type) {
  switch (type) {
    case GoType::kBool:
      return (tag == kPlain || tag == kBoolTag) && std::find(kFlags.begin(), kFlags.end(), scalar) != kFlags.end();
    case GoType::kInt32:
      return IsNumber<std::int32_t>(tag, scalar);
    case GoType::kInt64:
      return IsNumber<std::int64_t>(tag, scalar);
    case GoType::kAny:
    case GoType::kText:
      break;
  }
  return true;
}

}  // namespace hami::device
