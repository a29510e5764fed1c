// SPDX-License-Identifier: Apache-2.0

#include "mps/place.h"

#include <limits>

#include "base/strings.h"

namespace hami::mps {
namespace {

// NVIDIA's figures: 48 from Volta on, 60 from Blackwell on.
constexpr int kVoltaClients = 48;
constexpr int kBlackwellClients = 60;
constexpr int kBlackwell = 10;

}  // namespace

std::string ProcessFileText(const Process& process) {
  return base::Concat({std::to_string(process.pid), " ", std::to_string(process.start), "\n"});
}

std::optional<Process> ParseProcessFile(std::string_view text) {
  if (!text.ends_with('\n')) return std::nullopt;
  text.remove_suffix(1);
  const std::size_t gap = text.find(' ');
  if (gap == std::string_view::npos) return std::nullopt;
  const auto pid = base::ParseNumber(text.substr(0, gap));
  const auto start = base::ParseNumber(text.substr(gap + 1));
  if (!pid || !start || *pid == 0 || *start == 0 || *pid > std::numeric_limits<int>::max()) return std::nullopt;
  return Process{static_cast<int>(*pid), *start};
}

int MostClients(int capability_major) { return capability_major >= kBlackwell ? kBlackwellClients : kVoltaClients; }

}  // namespace hami::mps
