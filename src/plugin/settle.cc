// SPDX-License-Identifier: Apache-2.0

#include "plugin/settle.h"

#include <algorithm>

#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "plugin/slots.h"

namespace hami::plugin {
namespace {

PodKey KeyOf(const PodView& pod) { return {pod.ns, pod.name, pod.uid}; }

const PodView* FindPod(const std::vector<PodPtr>& pods, std::string_view uid) {
  const auto found = std::find_if(pods.begin(), pods.end(), [&](const PodPtr& pod) { return pod->uid == uid; });
  return found == pods.end() ? nullptr : found->get();
}

// The pod that the kubelet says holds SLOTS: one that has not ended, for it may go on reporting those that have.
const PodView* HolderOf(const std::vector<std::string>& slots, const Holdings& holdings,
                        const std::vector<PodPtr>& pods) {
  if (slots.empty()) return nullptr;
  for (const Holding& holding : holdings) {
    if (!std::includes(holding.slots.begin(), holding.slots.end(), slots.begin(), slots.end())) continue;
    for (const PodPtr& pod : pods) {
      if (pod->ns == holding.ns && pod->name == holding.pod && !pod->Ended()) return pod.get();
    }
  }
  return nullptr;
}

bool HasShares(const device::PodGrant& grant) {
  return std::any_of(grant.begin(), grant.end(), [](const auto& row) { return !row.empty(); });
}

// One that is not known may have come since.
bool HasEnded(const Holding& holding, const std::vector<PodPtr>& pods) {
  bool known = false;
  for (const PodPtr& pod : pods) {
    if (pod->ns != holding.ns || pod->name != holding.pod) continue;
    if (!pod->Ended()) return false;
    known = true;
  }
  return known;
}

std::string NameOfContainer(const PodView* pod, const Record& record) {
  const auto index = static_cast<std::size_t>(record.container);
  return pod != nullptr && index < pod->containers.size() ? pod->containers[index].name : record.container_name;
}

Exchange Swap(const PodKey& assumed, const PodView& actual, const std::vector<PodPtr>& pods, Records& records,
              std::int64_t now) {
  const PodView* other = FindPod(pods, assumed.uid);
  if (other != nullptr) Materialise(*other, records, now);
  Materialise(actual, records, now);
  const PodKey actual_key = KeyOf(actual);
  for (Record& record : records) {
    if (record.owner.uid == assumed.uid) {
      record.owner = actual_key;
      record.given_at = now;
      record.container_name = NameOfContainer(&actual, record);
    } else if (record.owner.uid == actual.uid) {
      record.owner = assumed;
      record.given_at = now;
      record.container_name = NameOfContainer(other, record);
    }
  }
  return {assumed, actual_key, other == nullptr || Alike(*other, actual)};
}

bool HasClaim(const PodView& pod, const Records& records) {
  return HasRecords(records, pod.uid) || HasShares(pod.allocated) || HasShares(pod.to_allocate);
}

// A pod that was never placed holds what RECORD's owner was promised, to whom it is still owed. The place of it is the
// holder's now.
Exchange GiveAgain(Record& record, const PodView& holder) {
  record.owed = true;
  record.assumed = false;
  record.slots.clear();
  return {record.owner, KeyOf(holder), false, true};
}

void Identify(Settled& settled, const std::vector<PodPtr>& pods, const Holdings& holdings, std::int64_t now) {
  // An exchange puts at least one pod right. One that the kubelet contradicts itself about is not exchanged for ever.
  std::size_t most = settled.records.size();
  for (std::size_t i = 0; i < settled.records.size(); ++i) {
    const Record& record = settled.records[i];
    if (record.owed) continue;
    const PodView* holder = HolderOf(record.slots, holdings, pods);
    if (holder == nullptr) continue;
    if (holder->uid != record.owner.uid && !HasClaim(*holder, settled.records)) {
      settled.exchanges.push_back(GiveAgain(settled.records[i], *holder));
      continue;
    }
    if (holder->uid != record.owner.uid) {
      if (most-- == 0) return;
      settled.exchanges.push_back(Swap(PodKey(record.owner), *holder, pods, settled.records, now));
    }
    settled.records[i].assumed = false;
  }
}

// Whoever is known to be the one is known for all of its containers.
void SpreadIdentity(Records& records) {
  for (Record& record : records) {
    if (!record.assumed) continue;
    record.assumed = std::none_of(records.begin(), records.end(), [&](const Record& other) {
      return other.owner.uid == record.owner.uid && !other.owed && !other.assumed;
    });
  }
}

bool Undelivered(const PodView& pod, const Records& records, const Holdings& holdings) {
  if (!pod.Pending()) return false;
  const bool holds = std::any_of(holdings.begin(), holdings.end(), [&](const Holding& holding) {
    return holding.ns == pod.ns && holding.pod == pod.name && !holding.slots.empty();
  });
  if (holds) return false;
  // What an init container holds is not reported, so its silence means nothing.
  return std::none_of(records.begin(), records.end(), [&](const Record& record) {
    const auto index = static_cast<std::size_t>(record.container);
    return record.owner.uid == pod.uid && !record.owed && index < pod.containers.size() && pod.containers[index].init;
  });
}

void TakeBackUndelivered(Settled& settled, const std::vector<PodPtr>& pods, const Holdings& holdings) {
  for (const PodPtr& pod : pods) {
    if (!HasRecords(settled.records, pod->uid) || !Undelivered(*pod, settled.records, holdings)) continue;
    for (Record& record : settled.records) {
      if (record.owner.uid != pod->uid || record.owed) continue;
      // Where it was given stays: should the same slots be asked for again, the answer is the same.
      record.owed = true;
      record.assumed = false;
    }
  }
}

bool IsOver(const Record& record, const std::vector<PodPtr>& pods, const std::optional<Holdings>& holdings,
            std::int64_t now) {
  const PodView* pod = FindPod(pods, record.owner.uid);
  if (pod != nullptr && !pod->Ended()) return false;
  const bool young = now - record.given_at < kRecordGrace;
  if (pod == nullptr && young) return false;
  if (record.owed) return true;
  // Held by a pod that is not known yet: the next look will tell.
  if (record.assumed && holdings && IsHeld(record.slots, *holdings, pods)) return false;
  return !(record.assumed && young);
}

}  // namespace

bool IsHeld(const std::vector<std::string>& slots, const Holdings& holdings, const std::vector<PodPtr>& pods) {
  return std::any_of(holdings.begin(), holdings.end(),
                     [&](const Holding& holding) { return Overlap(holding.slots, slots) && !HasEnded(holding, pods); });
}

void Materialise(const PodView& pod, Records& records, std::int64_t now) {
  for (std::size_t i = 0; i < pod.to_allocate.size(); ++i) {
    const int container = static_cast<int>(i);
    if (pod.to_allocate[i].empty() || FindRecord(records, pod.uid, container) != nullptr) continue;
    Record owed;
    owed.owner = KeyOf(pod);
    owed.container = container;
    owed.grant = pod.to_allocate[i];
    owed.mig = ReservationsOf(pod, container);
    owed.owed = true;
    owed.given_at = now;
    records.push_back(std::move(owed));
  }
}

Settled Settle(Records records, const std::vector<PodPtr>& pods, const std::optional<Holdings>& holdings,
               const SettleOptions& options) {
  Settled settled;
  settled.records = std::move(records);
  if (holdings) {
    Identify(settled, pods, *holdings, options.now);
    SpreadIdentity(settled.records);
    if (options.find_undelivered) TakeBackUndelivered(settled, pods, *holdings);
  }
  Records kept;
  for (Record& record : settled.records) {
    if (IsOver(record, pods, holdings, options.now)) {
      settled.dropped.push_back(std::move(record));
    } else {
      kept.push_back(std::move(record));
    }
  }
  settled.records = std::move(kept);
  return settled;
}

void Supersede(Records& records, const std::vector<std::string>& slots, const std::string& new_owner_uid) {
  for (Record& record : records) {
    if (record.owner.uid != new_owner_uid && Overlap(record.slots, slots)) record.slots.clear();
  }
}

namespace {

// What the grants of POD would be by RECORDS.
struct Booked {
  device::PodGrant allocated;
  device::PodGrant to_allocate;
  std::vector<device::MigReservation> reservations;
  bool given = false;
  bool owed = false;
};

Booked BookedOf(const PodView& pod, const Records& records) {
  Booked booked{pod.allocated, pod.to_allocate, pod.reservations};
  for (const Record& record : records) {
    if (record.owner.uid != pod.uid) continue;
    const auto row = static_cast<std::size_t>(record.container);
    // A pod may have removed what it was granted.
    if (row >= booked.allocated.size()) booked.allocated.resize(std::max(row + 1, pod.containers.size()));
    booked.allocated[row] = record.grant;
    std::erase_if(booked.reservations, [&](const auto& one) { return one.container == record.container; });
    booked.reservations.insert(booked.reservations.end(), record.mig.begin(), record.mig.end());
    if (record.owed && row >= booked.to_allocate.size()) booked.to_allocate.resize(row + 1);
    if (row < booked.to_allocate.size())
      booked.to_allocate[row] = record.owed ? record.grant : device::ContainerGrant();
    (record.owed ? booked.owed : booked.given) = true;
  }
  std::sort(booked.reservations.begin(), booked.reservations.end(), [](const auto& a, const auto& b) {
    return std::pair(a.container, a.device) < std::pair(b.container, b.device);
  });
  return booked;
}

bool SameReservations(const std::vector<device::MigReservation>& sorted, const PodView& pod) {
  return sorted.size() == pod.reservations.size() && std::all_of(sorted.begin(), sorted.end(), [&](const auto& one) {
           return std::find(pod.reservations.begin(), pod.reservations.end(), one) != pod.reservations.end();
         });
}

}  // namespace

Desired DesiredAnnotations(const PodView& pod, const Records& records) {
  const Booked booked = BookedOf(pod, records);
  Desired desired;
  if (booked.allocated != pod.allocated || pod.misplaced) {
    desired.changes[kAllocated] = device::EncodeGrant(booked.allocated);
  }
  if (booked.to_allocate != pod.to_allocate || pod.misplaced) {
    desired.changes[kToAllocate] = device::EncodeGrant(booked.to_allocate);
  }
  if (!SameReservations(booked.reservations, pod)) {
    desired.changes[device::kMigAllocations] = device::EncodeReservations(booked.reservations);
  }
  // The books go by it, and the pod is where it is.
  if ((booked.given || booked.owed) && pod.assigned_node != pod.node) desired.changes[device::kAssignedNode] = pod.node;
  if (pod.bind_phase == device::kPhaseFailed) return desired;
  desired.finished = booked.given && !HasShares(booked.to_allocate) && !pod.others_pending;
  if (desired.finished && pod.bind_phase != device::kPhaseSuccess)
    desired.changes[device::kBindPhase] = device::kPhaseSuccess;
  if (booked.owed && pod.bind_phase == device::kPhaseSuccess)
    desired.changes[device::kBindPhase] = device::kPhaseAllocating;
  return desired;
}

}  // namespace hami::plugin
