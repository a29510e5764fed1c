// SPDX-License-Identifier: Apache-2.0

#include "sched/accounting.h"

#include <algorithm>
#include <cstdint>

namespace hami::sched {
namespace {

struct Sum {
  device::MiB memory = 0;
  std::int64_t cores = 0;
  int slots = 0;

  void Add(const Entry& entry) {
    memory += entry.memory;
    cores += entry.cores;
    ++slots;
  }
  void Raise(const Sum& other) {
    memory = std::max(memory, other.memory);
    cores = std::max(cores, other.cores);
    slots = std::max(slots, other.slots);
  }
};

CardCharge ChargeOf(int card, std::span<const Entry> entries, bool init_done) {
  Sum sidecars;
  Sum apps;
  Sum peak;
  Sum init;
  int current = -1;
  for (const Entry& entry : entries) {
    if (entry.card != card) continue;
    if (entry.role == Role::kSidecar) sidecars.Add(entry);
    if (entry.role == Role::kApp) apps.Add(entry);
    if (entry.role != Role::kInit || init_done) continue;
    if (entry.container != current) init = {};
    current = entry.container;
    init.Add(entry);
    peak.Raise(init);
  }
  peak.Raise(apps);
  return {card, sidecars.memory + peak.memory, sidecars.cores + peak.cores, sidecars.slots + peak.slots};
}

}  // namespace

std::vector<Role> Roles(const device::Pod& pod) {
  std::vector<Role> roles;
  roles.reserve(pod.init_containers.size() + pod.containers.size());
  for (const auto& container : pod.init_containers) roles.push_back(container.sidecar ? Role::kSidecar : Role::kInit);
  roles.insert(roles.end(), pod.containers.size(), Role::kApp);
  return roles;
}

CardCharges Collapse(std::span<const Entry> entries, bool init_done) {
  CardCharges charges;
  for (const Entry& entry : entries) {
    const auto same = [&](const CardCharge& charge) { return charge.card == entry.card; };
    if (std::any_of(charges.begin(), charges.end(), same)) continue;
    const CardCharge charge = ChargeOf(entry.card, entries, init_done);
    if (charge.slots > 0) charges.push_back(charge);
  }
  return charges;
}

}  // namespace hami::sched
