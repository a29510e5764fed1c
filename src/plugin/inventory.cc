// SPDX-License-Identifier: Apache-2.0

#include "plugin/inventory.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <tuple>

#include "base/strings.h"
#include "base/units.h"
#include "mps/place.h"
#include "plugin/mig_profiles.h"
#include "plugin/mig_static.h"

namespace hami::plugin {
namespace {

// What the driver says, or where it says nothing (memory shared with the CPU) what the node's owner says.
device::MiB PhysicalMemory(const nvml::Device& device, const NodeSettings& settings) {
  if (device.memory) return static_cast<device::MiB>(device.memory->total / base::kMiB);
  return settings.preconfigured_memory;
}

template <typename Number>
Number Scale(Number value, double factor) {
  return static_cast<Number>(std::floor(static_cast<double>(value) * factor + 1e-6));
}

Card MakeCard(const nvml::Device& device, const NodeSettings& settings, const Troubles& troubles,
              const MigOffer* offer) {
  Card card = BareCard(device, device.uuid, device.name);
  card.physical_memory = PhysicalMemory(device, settings);
  const bool whole = settings.mode == OperatingMode::kMig;  // an instance is what it is
  card.memory = whole ? card.physical_memory : Scale(card.physical_memory, settings.memory_scaling);
  card.cores = whole ? 100 : Scale(100, settings.core_scaling);
  card.slots = static_cast<int>(settings.split_count);
  if (settings.mode == OperatingMode::kMps) {
    const int most = mps::MostClients(device.compute_capability ? device.compute_capability->major : 0);
    card.slots = std::min(card.slots, most);
  }
  if (offer != nullptr) {
    card.slots = offer->count;
    card.mig_profiles = offer->profiles;
  }
  if (const auto trouble = troubles.find(device.uuid); trouble != troubles.end()) {
    card.healthy = false;
    card.trouble = trouble->second;
  }
  return card;
}

// In mode mig, what DEVICE can be divided into.
MigOffer OfferOf(const nvml::Device& device, const NodeSettings& settings, const std::vector<nvml::MigPlace>& foreign) {
  MigOffer offer;
  if (!device.mig_mode) {
    offer.trouble = "it has no MIG; filterdevices keeps it for others";
  } else if (!device.mig_mode->current) {
    offer.trouble = device.mig_mode->pending ? "MIG waits for a reset of the GPU (nvidia-smi --gpu-reset)"
                                             : "MIG is off and is being switched on";
  } else if (!device.mig_layout) {
    offer.trouble = "the driver does not tell how it can be divided";
  } else {
    offer = plugin::OfferOf(*device.mig_layout, device.name, PhysicalMemory(device, settings), settings.mig_allowlist,
                            foreign);
  }
  return offer;
}

std::string SlicesOf(const Card& card, const nvml::MigPlace& place) {
  return base::Concat({"GPU ", std::to_string(card.index), " (", card.uuid, "): slices ", std::to_string(place.start),
                       " to ", std::to_string(place.start + place.size - 1)});
}

void NoteForeign(const Card& card, const std::vector<nvml::MigPlace>& places, std::vector<std::string>* left_out) {
  for (const nvml::MigPlace& place : places) {
    if (left_out == nullptr) return;
    left_out->push_back(SlicesOf(card, place) + " are not offered: a MIG instance that is not ours has them");
  }
}

// A profile without a place stays: containers have instances of it.
void LeaveOutSick(Card& card, const std::vector<SickInstance>& sick, std::vector<std::string>* left_out) {
  std::string trouble;
  for (const SickInstance& one : sick) {
    if (one.gpu_uuid != card.uuid) continue;
    const device::MigPlacement taken{static_cast<int>(one.place.start), static_cast<int>(one.place.size)};
    for (device::MigProfile& profile : card.mig_profiles) {
      std::erase_if(profile.placements, [&](const auto& place) { return device::Overlap(place, taken); });
    }
    trouble = base::Concat({"MIG device ", one.uuid, " is out of order: ", one.trouble});
    if (left_out != nullptr) left_out->push_back(SlicesOf(card, one.place) + " are not offered: " + trouble);
  }
  const bool full = std::all_of(card.mig_profiles.begin(), card.mig_profiles.end(),
                                [](const device::MigProfile& profile) { return profile.placements.empty(); });
  if (trouble.empty() || !full || !card.healthy) return;
  card.healthy = false;
  card.trouble = std::move(trouble);
}

// MIG devices of DEVICE that are not offered.
void NoteParts(const nvml::Device& device, std::vector<std::string>* left_out) {
  for (const nvml::MigDevice& mig : device.mig_devices) {
    if (left_out == nullptr) return;
    if (ProfileOfDevice(mig.name) && mig.memory) continue;
    left_out->push_back(base::Concat({"MIG device ", mig.uuid, " (", base::Printable(mig.name), ") of GPU ",
                                      std::to_string(device.index),
                                      " is left out: only one that takes all of its GPU instance is offered"}));
  }
}

auto OrderOf(const Card& card) {
  const auto instance = card.part ? std::pair(card.part->gpu_instance, card.part->compute_instance) : std::pair(0U, 0U);
  return std::tuple(std::string_view(card.bus_id), instance, std::string_view(card.uuid));
}

}  // namespace

std::string IndexOf(const Card& card) {
  std::string index = std::to_string(card.index);
  return card.part ? base::Concat({index, ":", std::to_string(card.part->index)}) : index;
}

Card BareCard(const nvml::Device& device, const std::string& uuid, const std::string& name) {
  Card card;
  card.uuid = uuid;
  card.index = device.index;
  card.name = name;
  card.type = name.starts_with("NVIDIA") ? name : "NVIDIA-" + name;
  card.bus_id = device.bus_id;
  card.numa_node = device.numa_node;
  card.minor = device.minor;
  card.compute_capability = device.compute_capability;
  return card;
}

void SortCards(std::vector<Card>& cards) {
  std::sort(cards.begin(), cards.end(), [](const Card& a, const Card& b) { return OrderOf(a) < OrderOf(b); });
}

bool IsExcluded(const nvml::Device& device, const Exclusion& excluded) {
  return std::find(excluded.uuids.begin(), excluded.uuids.end(), device.uuid) != excluded.uuids.end() ||
         std::find(excluded.indices.begin(), excluded.indices.end(), std::int64_t{device.index}) !=
             excluded.indices.end();
}

bool Card::operator==(const Card& other) const {
  const auto version = [](const std::optional<nvml::ComputeCapability>& capability) {
    return capability ? std::pair(capability->major, capability->minor) : std::pair(0, 0);
  };
  return mig_profiles == other.mig_profiles && part == other.part &&
         std::tie(uuid, index, name, type, bus_id, numa_node, minor, physical_memory, memory, cores, slots, healthy,
                  trouble) == std::tie(other.uuid, other.index, other.name, other.type, other.bus_id, other.numa_node,
                                       other.minor, other.physical_memory, other.memory, other.cores, other.slots,
                                       other.healthy, other.trouble) &&
         version(compute_capability) == version(other.compute_capability);
}

const Card* Cards::Find(std::string_view uuid) const {
  const auto found = std::find_if(cards.begin(), cards.end(), [&](const Card& card) { return card.uuid == uuid; });
  return found == cards.end() ? nullptr : &*found;
}

std::vector<Card> MakeCards(const std::vector<nvml::Device>& devices, const NodeSettings& settings,
                            const Troubles& troubles, std::vector<std::string>* left_out,
                            const ForeignInstances& foreign, const std::vector<SickInstance>& sick) {
  std::vector<Card> cards;
  const auto note = [&](const nvml::Device& device, std::string_view why) {
    if (left_out == nullptr) return;
    left_out->push_back(
        base::Concat({"GPU ", std::to_string(device.index), " (", device.uuid, ") is left out: ", why}));
  };
  const MigStrategy strategy = settings.Strategy();
  const bool refused = strategy == MigStrategy::kSingle && !SingleTrouble(devices, settings.excluded).empty();
  for (const nvml::Device& device : devices) {
    if (IsExcluded(device, settings.excluded)) {
      note(device, "filterdevices names it");
    } else if (refused) {
      note(device, "--mig-strategy=single needs all GPUs divided alike");
    } else if (IsDivided(device) && strategy != MigStrategy::kNone) {
      NoteParts(device, left_out);
      if (strategy == MigStrategy::kMixed) continue;  // they are MakeParts'
      for (Card& card : PartsOf(device, settings.excluded, troubles)) cards.push_back(std::move(card));
    } else if (IsDivided(device) && settings.mode == OperatingMode::kMps) {
      note(device, "it is in MIG mode, and MPS does not serve such a GPU as a whole");
    } else if (PhysicalMemory(device, settings) <= 0) {
      note(device, "the driver does not tell its memory; set preConfiguredDeviceMemory to its size in MiB");
    } else if (settings.mode == OperatingMode::kMig) {
      const auto taken = foreign.find(device.uuid);
      const MigOffer offer =
          OfferOf(device, settings, taken == foreign.end() ? std::vector<nvml::MigPlace>() : taken->second);
      if (!offer.trouble.empty()) {
        note(device, offer.trouble);
        continue;
      }
      cards.push_back(MakeCard(device, settings, troubles, &offer));
      if (taken != foreign.end()) NoteForeign(cards.back(), taken->second, left_out);
      LeaveOutSick(cards.back(), sick, left_out);
    } else {
      cards.push_back(MakeCard(device, settings, troubles, nullptr));
    }
  }
  SortCards(cards);
  return cards;
}

// A listener lives in the list until its subscription is gone; the mutex is held while it is called, so that it is
// never called after that.
struct CardBoard::Listeners {
  std::mutex mutex;
  std::list<Listener> list;
};

CardBoard::CardBoard() : current_(std::make_shared<Cards>()), listeners_(std::make_shared<Listeners>()) {}

CardBoard::Snapshot CardBoard::Current() const {
  const std::scoped_lock lock(mutex_);
  return current_;
}

bool CardBoard::Publish(Cards cards) {
  {
    const std::scoped_lock lock(mutex_);
    if (cards.ready == current_->ready && cards.settings == current_->settings && cards.cards == current_->cards &&
        cards.parts == current_->parts && cards.sick == current_->sick && cards.left_out == current_->left_out) {
      return false;
    }
    cards.generation = current_->generation + 1;
    current_ = std::make_shared<const Cards>(std::move(cards));
  }
  const std::scoped_lock lock(listeners_->mutex);
  for (const Listener& listener : listeners_->list) listener();
  return true;
}

CardBoard::Subscription CardBoard::Subscribe(Listener listener) {
  const std::scoped_lock lock(listeners_->mutex);
  const auto place = listeners_->list.insert(listeners_->list.end(), std::move(listener));
  Subscription subscription;
  // The pointer carries nothing; its deleter is what ends the subscription.
  subscription.hold_ = std::shared_ptr<void>(nullptr, [listeners = listeners_, place](void*) {
    const std::scoped_lock inner(listeners->mutex);
    listeners->list.erase(place);
  });
  return subscription;
}

}  // namespace hami::plugin
