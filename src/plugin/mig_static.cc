// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_static.h"

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "base/units.h"

namespace hami::plugin {
namespace {

using base::Concat;

constexpr std::string_view kMig = "MIG ";

std::string NameOf(const nvml::Device& device) {
  return Concat({"GPU ", std::to_string(device.index), " (", device.uuid, ")"});
}

// Every profile name is a part of a resource name.
bool IsPlain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '+' || c == '-';
  });
}

Card PartCard(const nvml::Device& device, const nvml::MigDevice& mig, std::string profile) {
  Card card = BareCard(device, mig.uuid, mig.name);
  card.physical_memory = static_cast<device::MiB>(mig.memory->total / base::kMiB);
  card.memory = card.physical_memory;
  card.cores = 100;
  card.slots = 1;
  card.part = MigPart{device.uuid, std::move(profile), mig.index, mig.gpu_instance, mig.compute_instance};
  return card;
}

}  // namespace

std::optional<std::string> ProfileOfDevice(std::string_view name) {
  const std::size_t mig = name.rfind(kMig);
  if (mig == std::string_view::npos) return std::nullopt;
  const std::string_view profile = name.substr(mig + kMig.size());
  const std::size_t slices = profile.find("g.");
  const bool whole = slices != std::string_view::npos && base::ParseNumber(profile.substr(0, slices));
  if (!whole || !IsPlain(profile)) return std::nullopt;
  return std::string(profile);
}

std::string MigResource(std::string_view profile) {
  std::string name = Concat({"nvidia.com/mig-", profile});
  std::replace(name.begin(), name.end(), '+', '.');
  return name;
}

bool IsDivided(const nvml::Device& device) { return device.mig_mode && device.mig_mode->current; }

std::vector<Card> PartsOf(const nvml::Device& device, const Exclusion& excluded, const Troubles& troubles) {
  std::vector<Card> parts;
  if (!IsDivided(device)) return parts;
  for (const nvml::MigDevice& mig : device.mig_devices) {
    auto profile = ProfileOfDevice(mig.name);
    const bool kept = std::find(excluded.uuids.begin(), excluded.uuids.end(), mig.uuid) != excluded.uuids.end();
    if (!profile || mig.uuid.empty() || !mig.memory || kept) continue;
    Card card = PartCard(device, mig, *std::move(profile));
    auto trouble = troubles.find(mig.uuid);
    if (trouble == troubles.end()) trouble = troubles.find(device.uuid);
    if (trouble != troubles.end()) {
      card.healthy = false;
      card.trouble = trouble->second;
    }
    parts.push_back(std::move(card));
  }
  return parts;
}

std::string SingleTrouble(const std::vector<nvml::Device>& devices, const Exclusion& excluded) {
  const nvml::Device* divided = nullptr;
  const nvml::Device* whole = nullptr;
  for (const nvml::Device& device : devices) {
    if (IsExcluded(device, excluded)) continue;
    (IsDivided(device) ? divided : whole) = &device;
  }
  if (divided == nullptr) return {};
  if (whole != nullptr) {
    return Concat({NameOf(*divided), " is in MIG mode and ", NameOf(*whole), " is not"});
  }
  std::string profile;
  for (const nvml::Device& device : devices) {
    if (IsExcluded(device, excluded)) continue;
    const std::vector<Card> parts = PartsOf(device, excluded, {});
    if (parts.empty()) return Concat({NameOf(device), " is in MIG mode and has no MIG device that can be offered"});
    for (const Card& card : parts) {
      if (profile.empty()) profile = card.part->profile;
      if (card.part->profile == profile) continue;
      return Concat(
          {"the MIG devices are not of one profile: ", profile, ", and ", card.part->profile, " on ", NameOf(device)});
    }
  }
  return {};
}

std::vector<Card> MakeParts(const std::vector<nvml::Device>& devices, const NodeSettings& settings,
                            const Troubles& troubles) {
  std::vector<Card> all;
  if (settings.Strategy() != MigStrategy::kMixed) return all;
  for (const nvml::Device& device : devices) {
    if (IsExcluded(device, settings.excluded)) continue;
    for (Card& card : PartsOf(device, settings.excluded, troubles)) all.push_back(std::move(card));
  }
  SortCards(all);
  return all;
}

const nvml::MigDevice* FindPart(const nvml::Device& device, unsigned gpu_instance, unsigned compute_instance) {
  const auto found = std::find_if(device.mig_devices.begin(), device.mig_devices.end(), [&](const auto& mig) {
    const bool compute = compute_instance == nvml::kAnyInstance || compute_instance == mig.compute_instance;
    return mig.gpu_instance == gpu_instance && compute;
  });
  return found == device.mig_devices.end() ? nullptr : &*found;
}

std::vector<std::string> ResourcesOf(const std::vector<Card>& parts) {
  std::set<std::string> names;
  for (const Card& card : parts) names.insert(MigResource(card.part->profile));
  return {names.begin(), names.end()};
}

}  // namespace hami::plugin
