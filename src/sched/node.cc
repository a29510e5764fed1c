// SPDX-License-Identifier: Apache-2.0

#include "sched/node.h"

#include <algorithm>

#include "base/strings.h"
#include "device/vendors/mig_placement.h"

namespace hami::sched {
namespace {

// Rows and columns of one vendor's scores inside the whole node's.
void PlaceScores(const device::NodeCards& cards, std::size_t first, std::size_t total,
                 std::vector<std::int32_t>& scores) {
  const std::size_t n = cards.devices.size();
  if (cards.pair_scores.size() != n * n || n == 0) return;
  scores.resize(total * total);
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) scores[(first + a) * total + first + b] = cards.pair_scores[a * n + b];
  }
}

}  // namespace

void AddMarks(device::CardState& state, device::Marks marks, int count) {
  if (marks == 0) return;
  for (std::size_t i = 0; i < state.marked.size(); ++i) {
    if ((marks >> i & 1U) != 0) state.marked[i] += count;
  }
}

bool Node::SetCards(int vendor, const device::NodeCards& cards, const device::Vendors& vendors) {
  device::NodeCards& mine = by_vendor_[static_cast<std::size_t>(vendor)];
  if (mine == cards) return false;
  mine = cards;
  devices_.clear();
  lower_types_.clear();
  owners_.clear();
  pair_scores_.clear();
  for (const device::NodeCards& list : by_vendor_) {
    devices_.insert(devices_.end(), list.devices.begin(), list.devices.end());
  }
  std::size_t first = 0;
  for (const device::NodeCards& list : by_vendor_) {
    PlaceScores(list, first, devices_.size(), pair_scores_);
    first += list.devices.size();
  }
  for (const device::Device& device : devices_) {
    lower_types_.push_back(base::ToLower(device.type));
    std::uint64_t owners = 0;
    for (std::size_t v = 0; v < vendors.size(); ++v) {
      if (lower_types_.back().find(base::ToLower(vendors[v]->key())) != std::string::npos)
        owners |= std::uint64_t{1} << v;
    }
    owners_.push_back(owners);
  }
  used_.assign(devices_.size(), {});
  fences_.assign(devices_.size(), 0);
  instances_.clear();
  mig_fences_ = 0;
  unreadable_ = 0;
  Score();
  return true;
}

int Node::vendor_of(std::size_t card) const {
  std::size_t vendor = 0;
  for (std::size_t first = 0; card >= first + by_vendor_[vendor].devices.size(); ++vendor) {
    first += by_vendor_[vendor].devices.size();
  }
  return static_cast<int>(vendor);
}

int Node::FindCard(std::string_view uuid) const {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].uuid == uuid) return static_cast<int>(i);
  }
  // An instance of HAMi before 2.10: its GPU is in use, and where is not known here.
  if (const auto gpu = device::GpuOfOldInstance(uuid)) return FindCard(*gpu);
  return -1;
}

void Node::Change(const NodeCharge& charge, int sign) {
  if (charge.unreadable) unreadable_ += sign;
  for (const PodCharge& pod : charge.cards) {
    const int card = FindCard(pod.uuid);
    if (card < 0) continue;  // the card has left the node
    device::CardState& state = used_[static_cast<std::size_t>(card)];
    state.memory += sign * pod.memory;
    state.cores += sign * pod.cores;
    state.slots += sign * pod.slots;
    AddMarks(state, charge.marks, sign * pod.slots);
  }
  ChangeMig(charge, sign);
  Score();
}

void Node::ChangeInstance(const device::MigInstance& instance, int sign) {
  if (sign > 0) {
    instances_.push_back(instance);
  } else if (const auto found = std::find(instances_.begin(), instances_.end(), instance); found != instances_.end()) {
    instances_.erase(found);
  }
}

void Node::ChangeMig(const NodeCharge& charge, int sign) {
  std::vector<bool> consumed(charge.reservations.size());
  for (const std::string& uuid : charge.shares) {
    const int card = FindCard(uuid);
    if (card < 0) continue;
    std::size_t i = 0;
    while (i < consumed.size() && (consumed[i] || charge.reservations[i].gpu_uuid != uuid)) ++i;
    const bool reserved = i < consumed.size();
    if (reserved) consumed[i] = true;
    // A MIG card in use without a place, or a place on a card that is not MIG: what is really free is unknown.
    if (reserved != devices_[static_cast<std::size_t>(card)].IsMig()) {
      fences_[static_cast<std::size_t>(card)] += sign;
    } else if (reserved) {
      ChangeInstance({card, charge.reservations[i].placement}, sign);
    }
  }
  for (std::size_t i = 0; i < consumed.size(); ++i) {
    if (consumed[i]) continue;
    const int card = FindCard(charge.reservations[i].gpu_uuid);
    if (card < 0) {
      mig_fences_ += sign;
    } else if (devices_[static_cast<std::size_t>(card)].IsMig()) {
      ChangeInstance({card, charge.reservations[i].placement}, sign);
    } else {
      fences_[static_cast<std::size_t>(card)] += sign;
    }
  }
}

void Node::Score() {
  std::int64_t slots = 0;
  std::int64_t all_slots = 0;
  std::int64_t cores = 0;
  std::int64_t all_cores = 0;
  device::MiB memory = 0;
  device::MiB all_memory = 0;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    slots += used_[i].slots;
    cores += used_[i].cores;
    memory += used_[i].memory;
    all_slots += devices_[i].count;
    all_cores += devices_[i].cores;
    all_memory += devices_[i].memory;
  }
  base_score_ = 0;
  if (all_slots == 0 || all_cores == 0 || all_memory == 0) return;
  const auto part = [](std::int64_t used, std::int64_t all) {
    return static_cast<float>(used) / static_cast<float>(all);
  };
  base_score_ = 10.0F * (part(slots, all_slots) + part(cores, all_cores) + part(memory, all_memory));
}

}  // namespace hami::sched
