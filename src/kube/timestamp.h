// SPDX-License-Identifier: Apache-2.0
//
// Points in time as the API writes them: RFC 3339 in UTC; and as anybody writes them, with an offset and fractions.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hami::kube {

using WallTime = std::chrono::system_clock::time_point;

// Nothing: no time, or one that does not exist. Fractions of a second are left out.
std::optional<WallTime> ParseTime(std::string_view text);
// The same in Unix seconds.
std::optional<std::int64_t> ParseUnixTime(std::string_view text);

std::string FormatTime(std::chrono::sys_seconds time);  // "2006-01-02T15:04:05Z", metav1.Time
std::string FormatTime(WallTime time);
std::string FormatMicroTime(WallTime time);  // "2006-01-02T15:04:05.000000Z", metav1.MicroTime

}  // namespace hami::kube
