// SPDX-License-Identifier: Apache-2.0

#include "device/vendors/mig_placement.h"

#include <algorithm>
#include <numeric>

#include "base/strings.h"

namespace hami::device {
namespace {

bool FromHighEnd(const MigProfile& profile) {
  return profile.name.starts_with("1g.") || profile.name.starts_with("3g.");
}

std::optional<MigPlacement> FreePlacement(const MigProfile& profile, std::span<const MigPlacement> taken) {
  std::optional<MigPlacement> best;
  for (const MigPlacement& place : profile.placements) {
    if (place.size <= 0) continue;
    if (std::any_of(taken.begin(), taken.end(), [&](const MigPlacement& other) { return Overlap(place, other); })) {
      continue;
    }
    if (!best || (FromHighEnd(profile) ? place.start > best->start : place.start < best->start)) best = place;
  }
  return best;
}

}  // namespace

std::optional<MigChoice> ChooseMig(const std::vector<MigProfile>& profiles, MiB memory,
                                   std::span<const MigPlacement> taken) {
  std::vector<int> order(profiles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const MigProfile& x = profiles[static_cast<std::size_t>(a)];
    const MigProfile& y = profiles[static_cast<std::size_t>(b)];
    return x.memory != y.memory ? x.memory < y.memory : x.slices < y.slices;
  });
  for (const int index : order) {
    const MigProfile& profile = profiles[static_cast<std::size_t>(index)];
    if (profile.memory < memory) continue;
    if (const auto placement = FreePlacement(profile, taken)) return MigChoice{index, *placement};
  }
  return std::nullopt;
}

std::optional<std::string_view> GpuOfOldInstance(std::string_view uuid) {
  const std::size_t open = uuid.find('[');
  if (open == std::string_view::npos || open == 0 || !uuid.ends_with(']')) return std::nullopt;
  const std::string_view slot = uuid.substr(open + 1, uuid.size() - open - 2);
  const std::size_t dash = slot.find('-');
  if (dash == std::string_view::npos || !base::ParseNumber(slot.substr(0, dash)) ||
      !base::ParseNumber(slot.substr(dash + 1))) {
    return std::nullopt;
  }
  return uuid.substr(0, open);
}

}  // namespace hami::device
