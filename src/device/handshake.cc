// SPDX-License-Identifier: Apache-2.0

#include "device/handshake.h"

#include <array>
#include <cstdio>

#include "base/strings.h"

namespace hami::device {
namespace {

constexpr std::string_view kRequesting = "Requesting";

// Days since 1970-01-01 of a date in the proleptic Gregorian calendar, and back: years are counted from March, so that
// the leap day is a year's last.
std::int64_t DaysFromDate(std::int64_t year, int month, int day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

struct Date {
  std::int64_t year;
  int month;
  int day;
};

Date DateFromDays(std::int64_t days) {
  days += 719468;
  const std::int64_t era = (days >= 0 ? days : days - 146096) / 146097;
  const std::int64_t day_of_era = days - era * 146097;
  const std::int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const std::int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t shifted_month = (5 * day_of_year + 2) / 153;
  const int month = static_cast<int>(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
  const int day = static_cast<int>(day_of_year - (153 * shifted_month + 2) / 5 + 1);
  return {year_of_era + era * 400 + (month <= 2 ? 1 : 0), month, day};
}

std::int64_t FloorDivide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The six numbers of `YYYY-MM-DD HH:MM:SS`, exactly so.
std::optional<std::array<int, 6>> ReadTime(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";
  if (text.size() != kShape.size()) return std::nullopt;
  std::array<int, 6> numbers = {};
  std::size_t field = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (kShape[i] != 'd') {
      if (text[i] != kShape[i]) return std::nullopt;
      ++field;
    } else if (text[i] < '0' || text[i] > '9') {
      return std::nullopt;
    } else {
      numbers[field] = numbers[field] * 10 + (text[i] - '0');
    }
  }
  return numbers;
}

bool ShowsLife(const HandshakeInput& input, const HandshakeMemory& memory) {
  return input.allocatable > 0 || input.register_text != memory.register_text ||
         (input.value && input.value->find(kRequesting) == std::string::npos && *input.value != memory.last_value);
}

HandshakeVerdict Generic(const HandshakeInput& input) {
  if (!input.value || input.value->find(kRequesting) == std::string::npos) {
    return {true, true, HandshakeAction::kWriteRequesting, {}};
  }
  const auto asked = ParseRequesting(*input.value, input.clock.utc_offset_seconds);
  const bool expired = asked && input.clock.now - *asked >= kHandshakeExpiry;
  if (!expired || input.allocatable > 0) return {true, false, HandshakeAction::kNothing, {}};
  return {false, false, HandshakeAction::kDelete, {}};
}

HandshakeVerdict Remember(HandshakeVerdict verdict, const HandshakeInput& input) {
  // A drop goes with the annotation's removal; and nothing is asked of a plugin that is known to be gone.
  if (!verdict.healthy) verdict.action = HandshakeAction::kDelete;
  verdict.memory = {input.allocatable, std::string(input.register_text), !verdict.healthy, {}};
  if (!verdict.healthy) verdict.memory.last_value = input.value.value_or("");
  return verdict;
}

HandshakeVerdict StayDropped(const HandshakeMemory& memory) {
  return {false, false, HandshakeAction::kNothing, memory};
}

}  // namespace

std::string RequestingText(const LocalClock& clock) {
  const std::int64_t local = clock.now + clock.utc_offset_seconds;
  const std::int64_t days = FloorDivide(local, 86400);
  const int second = static_cast<int>(local - days * 86400);
  const Date date = DateFromDays(days);
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), "Requesting_%04lld-%02d-%02d %02d:%02d:%02d",
                static_cast<long long>(date.year), date.month, date.day, second / 3600, second / 60 % 60, second % 60);
  return text.data();
}

std::optional<UnixSeconds> ParseRequesting(std::string_view value, int utc_offset_seconds) {
  if (!value.starts_with(kRequesting)) return std::nullopt;
  const std::size_t underscore = value.find('_');
  if (underscore == std::string_view::npos) return std::nullopt;
  const auto time = ReadTime(value.substr(underscore + 1));
  if (!time) return std::nullopt;
  const auto& [year, month, day, hour, minute, second] = *time;
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59) return std::nullopt;
  return DaysFromDate(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - utc_offset_seconds;
}

HandshakeVerdict JudgeHandshake(const HandshakeInput& input, const HandshakeMemory& memory) {
  if (memory.dropped && !ShowsLife(input, memory)) return StayDropped(memory);
  return Remember(Generic(input), input);
}

HandshakeVerdict JudgeNvidia(const HandshakeInput& input, const HandshakeMemory& memory) {
  if (memory.dropped && !ShowsLife(input, memory)) return StayDropped(memory);
  HandshakeVerdict verdict = Generic(input);
  const std::int64_t now = input.allocatable;
  if (now == 0 && memory.allocatable > 0) {
    verdict.healthy = false;
  } else if (now != memory.allocatable && now > 0) {
    verdict.healthy = true;
    verdict.refresh = true;
    if (verdict.action == HandshakeAction::kDelete) verdict.action = HandshakeAction::kNothing;
  } else if (now > 0 && input.register_text != memory.register_text) {
    verdict.refresh = true;
  }
  return Remember(verdict, input);
}

}  // namespace hami::device
