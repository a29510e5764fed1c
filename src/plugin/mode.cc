// SPDX-License-Identifier: Apache-2.0

#include "plugin/mode.h"

#include <algorithm>
#include <array>

#include "base/strings.h"

namespace hami::plugin {
namespace {

constexpr std::array kModes = {OperatingMode::kHamiCore, OperatingMode::kMig, OperatingMode::kMps};
// An event has room for a few.
constexpr std::size_t kMostNamed = 3;

std::string Listed(const std::vector<std::string>& holders) {
  const std::size_t named = std::min(holders.size(), kMostNamed);
  const auto end = holders.begin() + static_cast<std::ptrdiff_t>(named);
  std::string text = base::Join({holders.begin(), end}, ", ");
  if (holders.size() > named) text += base::Concat({" and ", std::to_string(holders.size() - named), " more"});
  return text;
}

}  // namespace

const char* ModeName(OperatingMode mode) {
  switch (mode) {
    case OperatingMode::kMig:
      return "mig";
    case OperatingMode::kMps:
      return "mps";
    default:
      return "hami-core";
  }
}

std::optional<OperatingMode> ParseMode(std::string_view name) {
  for (const OperatingMode mode : kModes) {
    if (name == ModeName(mode)) return mode;
  }
  return std::nullopt;
}

bool MayFollow(OperatingMode from, OperatingMode to) {
  return from == to || from == OperatingMode::kHamiCore || to == OperatingMode::kHamiCore;
}

ModeVerdict NextMode(OperatingMode in_force, OperatingMode wanted, const std::vector<std::string>& holders) {
  if (in_force == wanted) return {in_force, {}};
  const std::string change = base::Concat({"from ", ModeName(in_force), " to ", ModeName(wanted)});
  if (!MayFollow(in_force, wanted)) {
    return {in_force, base::Concat({"the mode cannot change ", change,
                                    " in one step: set operatingmode to hami-core first, and to ", ModeName(wanted),
                                    " when the node has registered it"})};
  }
  if (!holders.empty()) {
    return {in_force,
            base::Concat({"the mode does not change ", change, " while its GPUs are in use: ", Listed(holders)})};
  }
  return {wanted, {}};
}

std::string EncodeModeFile(OperatingMode mode) { return base::Concat({ModeName(mode), "\n"}); }

std::optional<OperatingMode> DecodeModeFile(std::string_view text) {
  if (!text.ends_with('\n')) return std::nullopt;
  text.remove_suffix(1);
  return ParseMode(text);
}

}  // namespace hami::plugin
