// SPDX-License-Identifier: Apache-2.0

#include "monitor/directory.h"

#include <algorithm>

namespace hami::monitor {
namespace {

constexpr std::size_t kMostUid = 128;
constexpr std::size_t kMostContainer = 63;
constexpr std::size_t kMostName = 255;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsAlnum(char c) { return IsDigit(c) || IsLower(c) || (c >= 'A' && c <= 'Z'); }

template <typename Allowed>
bool Consists(std::string_view text, std::size_t most, Allowed allowed) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace

std::optional<ContainerName> ParseContainerName(std::string_view name) {
  const std::size_t cut = name.find('_');
  if (cut == std::string_view::npos) return std::nullopt;
  const std::string_view uid = name.substr(0, cut);
  const std::string_view container = name.substr(cut + 1);
  const bool good = Consists(uid, kMostUid, [](char c) { return IsAlnum(c) || c == '-'; }) &&
                    Consists(container, kMostContainer, [](char c) { return IsLower(c) || IsDigit(c) || c == '-'; });
  if (!good) return std::nullopt;
  return ContainerName{std::string(uid), std::string(container)};
}

bool IsShareTarget(std::string_view target) {
  constexpr std::string_view kShares = "../shares/";
  if (!target.starts_with(kShares)) return false;
  const std::string_view id = target.substr(kShares.size());
  return !id.starts_with('.') &&
         Consists(id, kMostName, [](char c) { return IsAlnum(c) || c == '-' || c == '_' || c == '.'; });
}

bool IsCacheName(std::string_view name) {
  return !name.starts_with('.') && name.ends_with(".cache") && name.size() <= kMostName;
}

}  // namespace hami::monitor
