// SPDX-License-Identifier: Apache-2.0
//
// From a pod's grants to what they cost on its node.

#include <algorithm>

#include "sched/ledger.h"

namespace hami::sched {
namespace {

constexpr std::size_t kUsualShares = 8;  // of a pod

// Rows beyond the pod's containers are nobody's in particular; they count like app containers.
Role RoleOf(const std::vector<Role>& roles, int container) {
  const auto index = static_cast<std::size_t>(container);
  return index < roles.size() ? roles[index] : Role::kApp;
}

void ChargeVendor(int vendor, const device::PodGrant& grant, const std::vector<Role>& roles, bool init_done,
                  NodeCharge& out) {
  boost::container::small_vector<const std::string*, kUsualShares> uuids;
  boost::container::small_vector<Entry, kUsualShares> entries;
  for (std::size_t c = 0; c < grant.size(); ++c) {
    const Role role = RoleOf(roles, static_cast<int>(c));
    for (const device::Share& share : grant[c]) {
      const auto same = [&](const std::string* uuid) { return *uuid == share.uuid; };
      const auto found = std::find_if(uuids.begin(), uuids.end(), same);
      const int card = static_cast<int>(found - uuids.begin());
      if (found == uuids.end()) uuids.push_back(&share.uuid);
      entries.push_back({card, static_cast<int>(c), role, share.memory, share.cores});
      if (role != Role::kInit || !init_done) out.shares.push_back(share.uuid);
    }
  }
  for (const CardCharge& charge : Collapse({entries.data(), entries.size()}, init_done)) {
    out.cards.push_back(
        {vendor, *uuids[static_cast<std::size_t>(charge.card)], charge.memory, charge.cores, charge.slots});
  }
}

}  // namespace

NodeCharge ChargeOf(const device::Allocation& allocation, const std::vector<Role>& roles, bool init_done) {
  NodeCharge charge;
  for (const auto& [vendor, grant] : allocation.grants) ChargeVendor(vendor, grant, roles, init_done, charge);
  for (const device::MigReservation& reservation : allocation.reservations) {
    if (init_done && RoleOf(roles, reservation.container) == Role::kInit) continue;
    charge.reservations.push_back(reservation);
  }
  return charge;
}

}  // namespace hami::sched
