// SPDX-License-Identifier: Apache-2.0

#include "device/sign_of_life.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/strings.h"
#include "device/lists.h"

namespace hami::device {
namespace {

// FNV-1a: it has to be the same in every build, and nobody gains by another text with the same mark.
std::string MarkOf(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  std::array<char, 17> mark{};
  std::snprintf(mark.data(), mark.size(), "%016llx", static_cast<unsigned long long>(hash));
  return mark.data();
}

}  // namespace

std::string FormatAlive(UnixSeconds now, std::string_view registered) {
  return base::Concat({std::to_string(now), ",", MarkOf(registered)});
}

std::optional<UnixSeconds> AliveSince(std::string_view text, std::string_view registered) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.substr(comma + 1) != MarkOf(registered)) return std::nullopt;
  const auto seconds = base::ParseNumber(text.substr(0, comma));
  if (!seconds || *seconds > std::uint64_t{1} << 40U) return std::nullopt;
  return static_cast<UnixSeconds>(*seconds);
}

bool AllocatesConcurrently(const StringMap& annotations, std::string_view registered, UnixSeconds now) {
  if (TextAt(annotations, kConcurrentAllocate) != "1") return false;
  const auto since = AliveSince(TextAt(annotations, kPluginAlive), registered);
  return since && std::abs(now - *since) <= kAliveFor;
}

}  // namespace hami::device
