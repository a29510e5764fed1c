// SPDX-License-Identifier: Apache-2.0
//
// What nvidia-cuda-mps-control answers, as data. Pure. An answer is read as if a stranger had written it: a line that
// is no number, a number out of range or more lines than one GPU can have clients make the whole answer invalid.

#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace hami::mps {

// One process id a line, as get_server_list and get_client_list answer; empty: there is none.
std::optional<std::vector<int>> ParsePids(std::string_view text);

// get_default_active_thread_percentage: "100.0". From 0 to 100.
std::optional<double> ParsePercentage(std::string_view text);

enum class ServerStatus { kActive, kStarting, kFault };

// get_server_status.
std::optional<ServerStatus> ParseServerStatus(std::string_view text);
const char* ServerStatusName(ServerStatus status);

}  // namespace hami::mps
