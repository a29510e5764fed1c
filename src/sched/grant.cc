// SPDX-License-Identifier: Apache-2.0

#include "sched/grant.h"

#include "device/allocation_codec.h"
#include "device/annotations.h"

namespace hami::sched {

device::Allocation MakeAllocation(const Node& node, const Plan& plan, const device::Vendors& vendors,
                                  const Placement& placement) {
  device::Allocation allocation;
  for (std::size_t v = 0; v < vendors.size(); ++v) {
    if (!plan.Asks(static_cast<int>(v))) continue;
    device::PodGrant grant(plan.containers.size());
    for (const Placed& placed : placement) {
      if (placed.vendor != static_cast<int>(v)) continue;
      device::ContainerGrant& row = grant[static_cast<std::size_t>(placed.container)];
      for (const device::Pick& pick : placed.picks) {
        const device::Device& device = node.devices()[static_cast<std::size_t>(pick.card)];
        if (pick.profile >= 0) {
          device::MigReservation reservation;
          reservation.container = placed.container;
          reservation.device = static_cast<int>(row.size());
          reservation.gpu_uuid = device.uuid;
          reservation.profile = device.mig_profiles[static_cast<std::size_t>(pick.profile)].name;
          reservation.placement = pick.placement;
          allocation.reservations.push_back(std::move(reservation));
        }
        row.push_back({device.uuid, std::string(vendors[v]->GrantType(device)), pick.memory, pick.cores});
      }
    }
    allocation.grants.emplace_back(static_cast<int>(v), std::move(grant));
  }
  return allocation;
}

std::vector<std::pair<std::string, std::optional<std::string>>> MakeAnnotations(const device::Pod& pod,
                                                                                const Node& node, const Plan& plan,
                                                                                const device::Allocation& allocation,
                                                                                const device::Vendors& vendors,
                                                                                device::UnixSeconds now) {
  std::vector<std::pair<std::string, std::optional<std::string>>> out;
  out.emplace_back(device::kAssignedNode, node.name());
  out.emplace_back(device::kAssignedTime, std::to_string(now));
  for (const auto& [index, grant] : allocation.grants) {
    const device::Vendor& vendor = *vendors[static_cast<std::size_t>(index)];
    std::string text = device::EncodeGrant(grant);
    if (!vendor.to_allocate_annotation().empty()) out.emplace_back(vendor.to_allocate_annotation(), text);
    out.emplace_back(vendor.allocated_annotation(), std::move(text));
    device::StringMap extra;
    vendor.Annotate({grant, pod, node.name(), node.devices(), plan.rules[static_cast<std::size_t>(index)], now}, extra);
    for (auto& [key, value] : extra) out.emplace_back(key, std::move(value));
  }
  if (!allocation.reservations.empty()) {
    out.emplace_back(device::kMigAllocations, device::EncodeReservations(allocation.reservations));
  } else if (device::Find(pod.annotations, device::kMigAllocations) != nullptr) {
    out.emplace_back(device::kMigAllocations, std::nullopt);
  }
  return out;
}

}  // namespace hami::sched
