// SPDX-License-Identifier: Apache-2.0

#include "mps/replies.h"

#include <charconv>
#include <limits>

#include "base/strings.h"

namespace hami::mps {
namespace {

// No GPU has more clients (60 on compute capability 10), and few daemons more than one server.
constexpr std::size_t kMostPids = 4096;
constexpr double kWhole = 100;

}  // namespace

std::optional<std::vector<int>> ParsePids(std::string_view text) {
  std::vector<int> pids;
  for (const std::string& line : base::Split(text, '\n')) {
    const std::string_view word = base::Trim(line);
    if (word.empty()) continue;
    const auto number = base::ParseNumber(word);
    if (!number || *number == 0 || *number > std::numeric_limits<int>::max() || pids.size() == kMostPids) {
      return std::nullopt;
    }
    pids.push_back(static_cast<int>(*number));
  }
  return pids;
}

std::optional<double> ParsePercentage(std::string_view text) {
  const std::string_view word = base::Trim(text);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  // Written so that no number, which compares with nothing, is refused as well.
  if (!(value >= 0 && value <= kWhole)) return std::nullopt;
  return value;
}

std::optional<ServerStatus> ParseServerStatus(std::string_view text) {
  const std::string word = base::ToLower(base::Trim(text));
  if (word == "active") return ServerStatus::kActive;
  if (word == "initializing") return ServerStatus::kStarting;
  if (word == "fault") return ServerStatus::kFault;
  return std::nullopt;
}

const char* ServerStatusName(ServerStatus status) {
  switch (status) {
    case ServerStatus::kActive:
      return "active";
    case ServerStatus::kStarting:
      return "initializing";
    default:
      return "fault";
  }
}

}  // namespace hami::mps
