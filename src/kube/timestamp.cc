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

}  // namespace

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
