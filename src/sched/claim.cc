// SPDX-License-Identifier: Apache-2.0

#include "sched/claim.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "device/lists.h"

namespace hami::sched {
namespace {

using device::Allocation;
using device::MigReservation;

constexpr int kWholeCard = 100;

// What a container may hold at most of a vendor.
std::optional<device::Request> Most(const device::Pod& pod, std::size_t container, const device::Vendor& vendor) {
  const device::Container* one = device::ContainerAt(pod, container);
  return one == nullptr ? std::nullopt : vendor.MostOf(*one);
}

bool Asks(const device::Pod& pod, const device::Vendor& vendor) {
  const std::size_t all = pod.init_containers.size() + pod.containers.size();
  for (std::size_t i = 0; i < all; ++i) {
    if (Most(pod, i, vendor)) return true;
  }
  return false;
}

bool IsInstance(const Allocation& allocation, std::size_t container, std::size_t device, const std::string& uuid) {
  return std::any_of(allocation.reservations.begin(), allocation.reservations.end(), [&](const MigReservation& one) {
    return one.container == static_cast<int>(container) && one.device == static_cast<int>(device) &&
           one.gpu_uuid == uuid;
  });
}

void Limit(int vendor, std::size_t container, const device::Request& most, device::ContainerGrant& row, Claim& claim) {
  if (row.size() > static_cast<std::size_t>(most.count)) row.resize(static_cast<std::size_t>(most.count));
  claim.limits.push_back({vendor, static_cast<int>(container), most.memory, std::min(most.memory_percent, kWholeCard),
                          std::min(most.cores, kWholeCard)});
}

bool HoldsNothing(const device::PodGrant& grant) {
  return std::all_of(grant.begin(), grant.end(), [](const device::ContainerGrant& row) { return row.empty(); });
}

// The reservations that no share of the grants is on are nobody's.
void DropStrayReservations(Allocation& allocation) {
  std::erase_if(allocation.reservations, [&](const MigReservation& one) {
    return std::none_of(allocation.grants.begin(), allocation.grants.end(), [&](const auto& grant) {
      if (one.container < 0 || static_cast<std::size_t>(one.container) >= grant.second.size()) return true;
      const device::ContainerGrant& row = grant.second[static_cast<std::size_t>(one.container)];
      const auto index = static_cast<std::size_t>(one.device);
      return one.device >= 0 && index < row.size() && row[index].uuid == one.gpu_uuid;
    });
  });
}

void LimitToRequest(const device::Pod& pod, const device::Vendors& vendors, Claim& claim) {
  for (auto& [index, grant] : claim.allocation.grants) {
    const device::Vendor& vendor = *vendors[static_cast<std::size_t>(index)];
    for (std::size_t c = 0; c < grant.size(); ++c) {
      const auto most = Most(pod, c, vendor);
      if (most) {
        Limit(index, c, *most, grant[c], claim);
      } else {
        grant[c].clear();
      }
    }
  }
  std::erase_if(claim.allocation.grants, [](const auto& grant) { return HoldsNothing(grant.second); });
  DropStrayReservations(claim.allocation);
}

const device::Device* CardOf(const Node& node, const std::string& uuid) {
  const auto& cards = node.devices();
  const auto found = std::find_if(cards.begin(), cards.end(), [&](const auto& card) { return card.uuid == uuid; });
  return found == cards.end() ? nullptr : &*found;
}

device::MiB MostMemory(const ShareLimit& limit, const device::Device* card, bool instance) {
  if (card == nullptr) return limit.memory;
  if (instance) return card->memory;
  return limit.memory > 0 ? std::min(limit.memory, card->memory) : card->memory * limit.percent / kWholeCard;
}

}  // namespace

Claim ReadClaim(const device::Pod& pod, const device::Vendors& vendors, Trust trust) {
  Claim claim;
  const bool bound = !pod.node_name.empty();
  if (trust == Trust::kDoubted) {
    claim.any = claim.unreadable =
        bound && std::any_of(vendors.begin(), vendors.end(), [&](const auto& vendor) { return Asks(pod, *vendor); });
    return claim;
  }
  for (std::size_t v = 0; v < vendors.size(); ++v) {
    const std::string* text = device::Find(pod.annotations, vendors[v]->allocated_annotation());
    if (text == nullptr) continue;
    if (trust == Trust::kBelieved && !Asks(pod, *vendors[v])) continue;
    auto grant = device::DecodeGrant(*text);
    if (!grant) {
      claim.unreadable = claim.unreadable || bound || trust == Trust::kProven;
      continue;
    }
    claim.any = true;
    claim.allocation.grants.emplace_back(static_cast<int>(v), std::move(*grant));
  }
  claim.any = claim.any || claim.unreadable;
  if (!claim.any) return claim;
  if (const std::string* text = device::Find(pod.annotations, device::kMigAllocations)) {
    // Malformed means none; a MIG card in use without one is fenced, so nothing is given away twice.
    if (auto reservations = device::DecodeReservations(*text)) claim.allocation.reservations = std::move(*reservations);
  }
  if (trust == Trust::kProven) return claim;
  LimitToRequest(pod, vendors, claim);
  claim.any = claim.unreadable || !claim.allocation.grants.empty();
  return claim;
}

Allocation WithinLimits(Allocation allocation, const std::vector<ShareLimit>& limits, const Node& node,
                        const device::Vendors& vendors) {
  for (const ShareLimit& limit : limits) {
    const auto of_vendor = [&](const auto& one) { return one.first == limit.vendor; };
    const auto grant = std::find_if(allocation.grants.begin(), allocation.grants.end(), of_vendor);
    if (grant == allocation.grants.end()) continue;
    const auto container = static_cast<std::size_t>(limit.container);
    device::ContainerGrant& row = grant->second[container];
    for (std::size_t i = 0; i < row.size(); ++i) {
      const device::Device* card = CardOf(node, row[i].uuid);
      const bool instance = card != nullptr && card->IsMig() && IsInstance(allocation, container, i, row[i].uuid);
      row[i].memory = std::clamp<device::MiB>(row[i].memory, 0, MostMemory(limit, card, instance));
      const device::Vendor& vendor = *vendors[static_cast<std::size_t>(limit.vendor)];
      const int cores = card == nullptr ? limit.cores : vendor.MostCores(*card, limit.cores);
      row[i].cores = std::clamp(row[i].cores, 0, instance ? kWholeCard : cores);
    }
  }
  std::erase_if(allocation.reservations, [&](const MigReservation& one) {
    const device::Device* card = CardOf(node, one.gpu_uuid);
    return card == nullptr || !card->IsMig();
  });
  return allocation;
}

bool SameGrant(const Allocation& a, const Allocation& b) {
  return a.grants == b.grants &&
         std::equal(a.reservations.begin(), a.reservations.end(), b.reservations.begin(), b.reservations.end(),
                    [](const MigReservation& one, const MigReservation& other) {
                      return one.container == other.container && one.device == other.device &&
                             one.gpu_uuid == other.gpu_uuid && one.profile == other.profile &&
                             one.placement == other.placement;
                    });
}

bool Covers(const NodeCharge& claimed, const NodeCharge& held) {
  if (held.unreadable) return !claimed.unreadable;
  const auto has_card = [&](const PodCharge& one) {
    return std::any_of(claimed.cards.begin(), claimed.cards.end(), [&](const PodCharge& other) {
      return other.vendor == one.vendor && other.uuid == one.uuid && other.memory >= one.memory &&
             other.cores >= one.cores && other.slots >= one.slots;
    });
  };
  const auto has_place = [&](const MigReservation& one) {
    return std::any_of(claimed.reservations.begin(), claimed.reservations.end(), [&](const MigReservation& other) {
      return other.gpu_uuid == one.gpu_uuid && other.placement == one.placement;
    });
  };
  return !claimed.unreadable && std::all_of(held.cards.begin(), held.cards.end(), has_card) &&
         std::all_of(held.reservations.begin(), held.reservations.end(), has_place);
}

}  // namespace hami::sched
