// SPDX-License-Identifier: Apache-2.0

#include "kube/timestamp.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace hami::kube {
namespace {

// Without strftime, which costs more than the rest of an event.
std::string Seconds(std::chrono::sys_seconds time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::string text = "0000-00-00T00:00:00Z";
  const auto put = [&](std::size_t end, unsigned number) {
    for (; number > 0; number /= 10) text[--end] = static_cast<char>('0' + number % 10);
  };
  put(4, static_cast<unsigned>(static_cast<int>(date.year())));
  put(7, static_cast<unsigned>(date.month()));
  put(10, static_cast<unsigned>(date.day()));
  put(13, static_cast<unsigned>(clock.hours().count()));
  put(16, static_cast<unsigned>(clock.minutes().count()));
  put(19, static_cast<unsigned>(clock.seconds().count()));
  return text;
}

// Takes exactly DIGITS decimal digits from the front of TEXT.
bool TakeDigits(std::string_view& text, std::size_t digits, int& out) {
  if (text.size() < digits) return false;
  const char* end = text.data() + digits;
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc() || stop != end || out < 0) return false;
  text.remove_prefix(digits);
  return true;
}

bool TakeChar(std::string_view& text, char wanted) {
  if (text.empty() || text[0] != wanted) return false;
  text.remove_prefix(1);
  return true;
}

// `Z` or `+hh:mm` and nothing behind.
std::optional<int> ParseOffset(std::string_view text) {
  if (text == "Z" || text == "z") return 0;
  if (text.empty() || (text[0] != '+' && text[0] != '-')) return std::nullopt;
  const int sign = text[0] == '-' ? -1 : 1;
  text.remove_prefix(1);
  int hours = 0;
  int minutes = 0;
  if (!TakeDigits(text, 2, hours) || !TakeChar(text, ':') || !TakeDigits(text, 2, minutes) || !text.empty()) {
    return std::nullopt;
  }
  if (hours > 23 || minutes > 59) return std::nullopt;
  return sign * (hours * 3600 + minutes * 60);
}

}  // namespace

std::optional<WallTime> ParseTime(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const bool read = TakeDigits(text, 4, year) && TakeChar(text, '-') && TakeDigits(text, 2, month) &&
                    TakeChar(text, '-') && TakeDigits(text, 2, day) && TakeChar(text, 'T') &&
                    TakeDigits(text, 2, hour) && TakeChar(text, ':') && TakeDigits(text, 2, minute) &&
                    TakeChar(text, ':') && TakeDigits(text, 2, second);
  if (!read) return std::nullopt;
  if (TakeChar(text, '.')) text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
  const std::optional<int> offset = ParseOffset(text);
  const std::chrono::year_month_day date(std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!offset || !date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  // What is further away than the clock can count is the furthest.
  constexpr std::int64_t kMost = 8'000'000'000;
  const std::int64_t seconds = days * 86400 + hour * 3600 + minute * 60 + second - *offset;
  return WallTime(std::chrono::seconds(std::clamp(seconds, -kMost, kMost)));
}

std::optional<std::int64_t> ParseUnixTime(std::string_view text) {
  const std::optional<WallTime> time = ParseTime(text);
  if (!time) return std::nullopt;
  return std::chrono::floor<std::chrono::seconds>(*time).time_since_epoch().count();
}

std::string FormatTime(std::chrono::sys_seconds time) { return Seconds(time); }

std::string FormatTime(WallTime time) { return Seconds(std::chrono::floor<std::chrono::seconds>(time)); }

std::string FormatMicroTime(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - whole).count();
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), ".%06dZ", static_cast<int>(micros));
  std::string out = Seconds(whole);
  out.pop_back();
  return out += text.data();
}

}  // namespace hami::kube
