// SPDX-License-Identifier: Apache-2.0
//
// Points in time as the API writes them: RFC 3339 in UTC.

#pragma once

#include <chrono>
#include <string>

namespace hami::kube {

using WallTime = std::chrono::system_clock::time_point;

std::string FormatTime(WallTime time);       // "2006-01-02T15:04:05Z", metav1.Time
std::string FormatMicroTime(WallTime time);  // "2006-01-02T15:04:05.000000Z", metav1.MicroTime

}  // namespace hami::kube
