// SPDX-License-Identifier: Apache-2.0
//
// The few changes that admission makes to a container's JSON: a limit, an environment variable. Missing parents are
// made; parents of the wrong type are refused by the API server before anything is admitted and are replaced here.

#pragma once

#include <string_view>

#include "base/json.h"
#include "device/pod.h"

namespace hami::device {

base::json::object& ObjectAt(base::json::object& parent, std::string_view key);
// Name, limits and requests of a container as it was submitted.
Container ReadContainer(const base::json::object& container);

base::json::array& ArrayAt(base::json::object& parent, std::string_view key);

// KIND: "limits" or "requests".
void SetQuantity(base::json::object& container, std::string_view kind, std::string_view resource,
                 std::string_view quantity);
// Replaces the variable's value, or adds it at the end.
void SetEnv(base::json::object& container, std::string_view name, std::string_view value);

}  // namespace hami::device
