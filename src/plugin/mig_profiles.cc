// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_profiles.h"

#include <algorithm>
#include <array>

#include "base/strings.h"

namespace hami::plugin {
namespace {

// How a board is built, and what its memory is made of.
constexpr std::array<std::string_view, 12> kBuilds = {"nvidia", "sxm",  "sxm2", "sxm3",  "sxm4", "sxm5",
                                                      "sxm6",   "pcie", "nvl",  "hbm2e", "hbm3", "hbm3e"};
constexpr std::string_view kEveryProfile = "auto";
constexpr device::MiB kMiBPerGiB = 1024;
// A board of 80 GB shows 79.6 GiB, one of 180 GB 179.1.
constexpr device::MiB kMemoryTolerance = 2;

std::vector<std::string> WordsOf(std::string_view text) {
  std::string lower = base::ToLower(text);
  std::replace_if(
      lower.begin(), lower.end(), [](char c) { return c == '-' || c == '_'; }, ' ');
  std::vector<std::string> words;
  for (const std::string& word : base::Split(lower, ' ')) {
    const bool build = std::find(kBuilds.begin(), kBuilds.end(), word) != kBuilds.end();
    if (!word.empty() && !build) words.push_back(word);
  }
  return words;
}

// "80gb" → 80.
std::optional<device::MiB> GigabytesOf(std::string_view word) {
  if (!word.ends_with("gb")) return std::nullopt;
  const auto number = base::ParseNumber(word.substr(0, word.size() - 2));
  return number && *number < 1U << 20U ? std::optional(static_cast<device::MiB>(*number)) : std::nullopt;
}

struct ProfileName {
  std::string_view slices;      // "1g"
  std::string_view attributes;  // "+me"
  device::MiB gigabytes = 0;
};
std::optional<ProfileName> ReadProfile(std::string_view name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::size_t end = name.find_first_of("+-.", dot + 1);
  const auto gigabytes = GigabytesOf(name.substr(dot + 1, end == std::string_view::npos ? end : end - dot - 1));
  if (!gigabytes) return std::nullopt;
  return ProfileName{name.substr(0, dot), end == std::string_view::npos ? "" : name.substr(end), *gigabytes};
}

// Nothing: every profile.
std::optional<std::vector<std::string>> ListFor(std::string_view model, device::MiB memory,
                                                const std::vector<device::MigAllowance>& allowlist, bool& listed) {
  listed = true;
  if (allowlist.empty()) return std::nullopt;
  for (const device::MigAllowance& row : allowlist) {
    const bool meant = std::any_of(row.models.begin(), row.models.end(),
                                   [&](const std::string& one) { return IsModel(one, model, memory); });
    if (!meant) continue;
    const bool every = std::find(row.profiles.begin(), row.profiles.end(), kEveryProfile) != row.profiles.end();
    return every ? std::nullopt : std::optional(row.profiles);
  }
  listed = false;
  return std::nullopt;
}

bool IsListed(const std::optional<std::vector<std::string>>& list, std::string_view name) {
  return !list || std::any_of(list->begin(), list->end(), [&](const auto& one) { return IsProfile(one, name); });
}

device::MigPlacement PlacementOf(const nvml::MigPlace& place) {
  return {static_cast<int>(place.start), static_cast<int>(place.size)};
}

// As many places side by side as may live at once, from the high end, where small instances go first.
std::vector<device::MigPlacement> PlacesOf(const nvml::MigProfile& profile, const std::vector<nvml::MigPlace>& taken) {
  std::vector<device::MigPlacement> free;
  for (const nvml::MigPlace& place : profile.places) {
    const device::MigPlacement at = PlacementOf(place);
    const bool foreign = std::any_of(taken.begin(), taken.end(),
                                     [&](const auto& other) { return device::Overlap(at, PlacementOf(other)); });
    if (at.size > 0 && !foreign) free.push_back(at);
  }
  std::sort(free.begin(), free.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  if (profile.most_instances >= free.size()) return free;
  // The rest would let the scheduler plan more instances than the driver makes.
  free.erase(free.begin(), free.end() - static_cast<std::ptrdiff_t>(profile.most_instances));
  return free;
}

}  // namespace

bool IsModel(std::string_view model, std::string_view name, device::MiB memory) {
  const std::vector<std::string> wanted = WordsOf(model);
  const std::vector<std::string> words = WordsOf(name);
  if (wanted.empty()) return false;
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& word) {
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
    const auto gigabytes = GigabytesOf(word);
    const bool other_size = std::any_of(words.begin(), words.end(), [](const auto& w) { return GigabytesOf(w); });
    if (!gigabytes || other_size) return false;
    const device::MiB shown = (memory + kMiBPerGiB / 2) / kMiBPerGiB;
    return shown >= *gigabytes - kMemoryTolerance && shown <= *gigabytes;
  });
}

bool IsProfile(std::string_view listed, std::string_view name) {
  if (listed == name) return true;
  const auto one = ReadProfile(listed);
  const auto other = ReadProfile(name);
  return one && other && one->slices == other->slices && one->attributes == other->attributes &&
         std::max(one->gigabytes, other->gigabytes) - std::min(one->gigabytes, other->gigabytes) <= 1;
}

const nvml::MigProfile* FindProfile(const nvml::MigLayout& layout, std::string_view name) {
  const auto found =
      std::find_if(layout.profiles.begin(), layout.profiles.end(), [&](const auto& p) { return p.name == name; });
  return found == layout.profiles.end() ? nullptr : &*found;
}

MigOffer OfferOf(const nvml::MigLayout& layout, std::string_view model, device::MiB memory,
                 const std::vector<device::MigAllowance>& allowlist, const std::vector<nvml::MigPlace>& foreign) {
  MigOffer offer;
  bool listed = false;
  const auto list = ListFor(model, memory, allowlist, listed);
  if (!listed) {
    offer.trouble = base::Concat({"migProfileAllowlist has no entry for the model ",
                                  base::Printable(std::string(model)), "; add one (profiles: [auto] allows all)"});
    return offer;
  }
  unsigned most = 1;
  for (const nvml::MigProfile& profile : layout.profiles) most = std::max(most, profile.multiprocessors);
  for (const nvml::MigProfile& profile : layout.profiles) {
    if (!IsListed(list, profile.name) || profile.memory_mib == 0) continue;
    device::MigProfile out;
    out.name = profile.name;
    out.memory = static_cast<device::MiB>(profile.memory_mib);
    out.cores = static_cast<int>((100 * profile.multiprocessors + most - 1) / most);
    out.slices = static_cast<int>(profile.slices);
    out.placements = PlacesOf(profile, foreign);
    if (out.placements.empty()) continue;
    offer.count = std::max(offer.count, static_cast<int>(profile.most_instances));
    offer.profiles.push_back(std::move(out));
  }
  if (offer.profiles.empty()) {
    offer.trouble = foreign.empty() ? "the driver has no MIG profile for it that migProfileAllowlist allows"
                                    : "MIG instances that are not ours take all of its places";
  }
  return offer;
}

}  // namespace hami::plugin
