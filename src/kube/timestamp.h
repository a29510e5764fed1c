// SPDX-License-Identifier: Apache-2.0
//
// Points in time as the API writes them: RFC 3339 in UTC.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hami::kube {

using WallTime = std::chrono::system_clock::time_point;

std::string FormatTime(WallTime time);  // "2006-01-02T15:04:05Z", metav1.Time
// Unix seconds of what FormatTime writes; nothing of anything else.
std::optional<std::int64_t> ParseTime(std::string_view text);
std::string FormatMicroTime(WallTime time);  // "2006-01-02T15:04:05.000000Z", metav1.MicroTime

}  // namespace hami::kube
