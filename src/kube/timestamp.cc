// SPDX-License-Identifier: Apache-2.0

#include "kube/timestamp.h"

#include <array>
#include <cstdio>

namespace hami::kube {
namespace {

// Without strftime, which costs more than the rest of an event.
std::string Seconds(WallTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
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

// "0000-00-00T00:00:00Z", where '0' is any digit.
bool HasForm(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  if (text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return false;
  }
  return true;
}

}  // namespace

std::optional<std::int64_t> ParseTime(std::string_view text) {
  if (!HasForm(text)) return std::nullopt;
  const auto number = [&](std::size_t from, std::size_t to) {
    int value = 0;
    for (; from < to; ++from) value = value * 10 + (text[from] - '0');
    return value;
  };
  const std::chrono::year_month_day date(std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(5, 7))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 10))));
  const int hour = number(11, 13);
  const int minute = number(14, 16);
  const int second = number(17, 19);
  if (!date.ok() || hour > 23 || minute > 59 || second > 59) return std::nullopt;
  constexpr std::int64_t kDay = 86'400;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * kDay + std::int64_t{hour} * 3600 + std::int64_t{minute} * 60 + second;
}

std::string FormatTime(WallTime time) { return Seconds(time); }

std::string FormatMicroTime(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - whole).count();
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), ".%06dZ", static_cast<int>(micros));
  std::string out = Seconds(time);
  out.pop_back();
  return out += text.data();
}

}  // namespace hami::kube
