// SPDX-License-Identifier: Apache-2.0

#include "kube/timestamp.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace hami::kube {
namespace {

std::string Seconds(WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return {text.data(), size};
}

}  // namespace

std::string FormatTime(WallTime time) { return Seconds(time) + "Z"; }

std::string FormatMicroTime(WallTime time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time - whole).count();
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), ".%06dZ", static_cast<int>(micros));
  return Seconds(time) + text.data();
}

}  // namespace hami::kube
