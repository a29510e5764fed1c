// SPDX-License-Identifier: Apache-2.0

#include "sched/ledger.h"

#include <algorithm>
#include <charconv>

#include "device/annotations.h"
#include "device/lists.h"

namespace hami::sched {
namespace {

device::UnixSeconds AssignedTime(const device::Pod& pod) {
  const std::string* text = device::Find(pod.annotations, device::kAssignedTime);
  device::UnixSeconds time = 0;
  if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), time);
  constexpr device::UnixSeconds kLatest = 1LL << 40;  // keeps sums with a lifetime inside 64 bits
  return std::clamp<device::UnixSeconds>(time, 0, kLatest);
}

}  // namespace

Ledger::Ledger(const device::Vendors& vendors, device::UnixSeconds assume_seconds)
    : vendors_(vendors), assume_seconds_(assume_seconds), quotas_(vendors) {}

Node& Ledger::NodeAt(std::string_view name, NodeId& id) {
  id = Find(name);
  if (id != kNoNode) return *nodes_[id];
  auto node = std::make_unique<Node>(std::string(name), vendors_.size());
  if (free_nodes_.empty()) {
    id = static_cast<NodeId>(nodes_.size());
    nodes_.push_back(std::move(node));
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
    nodes_[id] = std::move(node);
  }
  names_.Add(name, id);
  return *nodes_[id];
}

void Ledger::Touch(NodeId id) {
  nodes_[id]->version = ++last_version_;
  ++counters_.nodes_touched;
  changes_.push_back(id);
  // Half of what is kept goes at once: one step now and then, nothing per event.
  const std::size_t most = 4 * nodes_.size() + 1024;
  if (changes_.size() <= most) return;
  const std::size_t cut = changes_.size() / 2;
  changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(cut));
  change_base_ += cut;
}

void Ledger::Release(NodeId id) {
  Node& node = *nodes_[id];
  if (node.registered() || !node.pods.empty()) return;
  names_.Remove(id);
  nodes_[id].reset();
  free_nodes_.push_back(id);
}

bool Ledger::ChangesSince(std::uint64_t cursor, std::vector<NodeId>& out) const {
  if (cursor < change_base_) return false;
  out.assign(changes_.begin() + static_cast<std::ptrdiff_t>(cursor - change_base_), changes_.end());
  return true;
}

void Ledger::SetCards(std::string_view name, int vendor, const device::NodeCards& cards) {
  ++counters_.events;
  if (cards.devices.empty() && Find(name) == kNoNode) return;
  NodeId id = kNoNode;
  Node& node = NodeAt(name, id);
  for (const device::Device& device : cards.devices) {
    largest_card_ = std::max(largest_card_, device.memory);
    seen_mig_ = seen_mig_ || device.IsMig();
    for (const device::MigProfile& profile : device.mig_profiles) {
      largest_card_ = std::max(largest_card_, profile.memory);
      largest_profile_cores_ = std::max(largest_profile_cores_, profile.cores);
    }
  }
  if (!node.SetCards(vendor, cards, vendors_)) return;
  most_cards_ = std::max(most_cards_, node.devices().size());
  for (const PodId pod : node.pods) {
    PodRecord& record = *pods_[pod];
    // Parts are of cards that are others now.
    ChargeQuota(record, true);
    Charge(record);
    ChargeQuota(record, false);
    node.Apply(record.charge);
    ++counters_.pods_charged;
  }
  Touch(id);
  Release(id);
}

void Ledger::HostChanged(std::string_view node) {
  if (const NodeId id = Find(node); id != kNoNode) Touch(id);
}

void Ledger::RemoveNode(std::string_view name) {
  for (std::size_t v = 0; v < vendors_.size(); ++v) SetCards(name, static_cast<int>(v), {});
}

const PodRecord* Ledger::FindPod(std::string_view uid) const {
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end() ? nullptr : pods_[found->second].get();
}

PodRecord* Ledger::Mutable(std::string_view uid) {
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end() ? nullptr : pods_[found->second].get();
}

void Ledger::Attach(PodId id) {
  PodRecord& record = *pods_[id];
  Node& node = *nodes_[record.node];
  record.position = static_cast<std::uint32_t>(node.pods.size());
  node.pods.push_back(id);
  node.Apply(record.charge);
  ++counters_.pods_charged;
  ChargeQuota(record, false);
  Touch(record.node);
}

void Ledger::Detach(PodId id) {
  PodRecord& record = *pods_[id];
  Node& node = *nodes_[record.node];
  const PodId last = node.pods.back();
  node.pods[record.position] = last;
  pods_[last]->position = record.position;
  node.pods.pop_back();
  node.Revert(record.charge);
  ++counters_.pods_charged;
  ChargeQuota(record, true);
  Touch(record.node);
  Release(record.node);
}

void Ledger::ChargeQuota(const PodRecord& record, bool refund) {
  for (std::size_t v = 0; v < vendors_.size(); ++v) {
    QuotaUse use;
    for (const PodCharge& card : record.charge.cards) {
      if (card.vendor != static_cast<int>(v)) continue;
      use.memory += card.memory;
      use.cores += card.percent;
    }
    if (use == QuotaUse{}) continue;
    if (refund) {
      quotas_.Refund(record.ns, record.traits, static_cast<int>(v), use);
    } else {
      quotas_.Charge(record.ns, record.traits, static_cast<int>(v), use);
    }
  }
}

void Ledger::SetDeadline(PodRecord& record, device::UnixSeconds deadline) {
  record.deadline = deadline;
  deadlines_.emplace(deadline, record.uid);
}

void Ledger::ClearDeadline(const PodRecord& record) {
  if (!record.bound && !record.held) deadlines_.erase({record.deadline, record.uid});
}

void Ledger::Insert(PodRecord record) {
  PodId id = static_cast<PodId>(pods_.size());
  if (free_pods_.empty()) {
    pods_.emplace_back();
  } else {
    id = free_pods_.back();
    free_pods_.pop_back();
  }
  by_uid_.emplace(record.uid, id);
  pods_[id] = std::make_unique<PodRecord>(std::move(record));
  if (!pods_[id]->bound) SetDeadline(*pods_[id], pods_[id]->deadline);
  Attach(id);
}

void Ledger::Erase(PodId id) {
  Detach(id);
  ClearDeadline(*pods_[id]);
  by_uid_.erase(by_uid_.find(pods_[id]->uid));
  pods_[id].reset();
  free_pods_.push_back(id);
}

void Ledger::RemovePod(std::string_view uid) {
  ++counters_.events;
  if (const auto found = ahead_.find(uid); found != ahead_.end()) ahead_.erase(found);
  if (const auto found = by_uid_.find(uid); found != by_uid_.end()) Erase(found->second);
}

// What the record's allocation amounts to on its node.
void Ledger::Charge(PodRecord& record) {
  record.charge = record.believed
                      ? ChargeOf(WithinLimits(record.allocation, record.limits, *nodes_[record.node], vendors_),
                                 record.roles, record.init_done)
                      : ChargeOf(record.allocation, record.roles, record.init_done);
  record.charge.unreadable = record.unreadable;
  record.charge.marks = record.marks;
  const Node& node = *nodes_[record.node];
  for (PodCharge& card : record.charge.cards) {
    const int place = node.FindCard(card.uuid);
    const device::Vendor& vendor = *vendors_[static_cast<std::size_t>(card.vendor)];
    card.percent =
        place < 0 ? card.cores : vendor.CorePercent(node.devices()[static_cast<std::size_t>(place)], card.cores);
  }
}

device::Marks Ledger::MarksOf(const device::Pod& pod, const device::Allocation& allocation) const {
  device::Marks marks = 0;
  for (const auto& [vendor, grant] : allocation.grants) {
    marks |= vendors_[static_cast<std::size_t>(vendor)]->MarksOf(pod.annotations);
  }
  return marks;
}

bool Ledger::UpsertPod(const device::Pod& pod, Trust trust) {
  const PodRecord* known = FindPod(pod.uid);
  const bool bound = !pod.node_name.empty();
  const auto remove = [&] {
    const bool changed = known != nullptr;
    RemovePod(pod.uid);
    return changed;
  };
  if (pod.terminated) return remove();
  if (known != nullptr && bound && nodes_[known->node]->name() == pod.node_name &&
      (known->bound || (known->own && trust == Trust::kDoubted))) {
    return UpsertSettled(*known, pod, trust);
  }
  // A view from before the decision was written: what was decided here stands.
  const bool stale = known != nullptr && known->own && !bound;
  const std::string assigned(device::TextAt(pod.annotations, device::kAssignedNode));
  if (assigned.empty()) return !stale && remove();
  // It holds nothing of a node on which it does not run, whoever wrote that it does.
  if (bound && pod.node_name != assigned) return remove();
  Claim claim = ReadClaim(pod, vendors_, trust);
  if (!claim.any) return !stale && remove();
  if (stale) return false;

  PodRecord record;
  record.uid = pod.uid;
  record.ns = pod.ns;
  record.name = pod.name;
  record.roles = Roles(pod);
  record.marks = MarksOf(pod, claim.allocation);
  record.allocation = std::move(claim.allocation);
  record.limits = std::move(claim.limits);
  record.believed = trust != Trust::kProven;
  record.unreadable = claim.unreadable;
  record.traits = pod.traits;
  record.priority = pod.priority;
  record.init_done = pod.init_done || (known != nullptr && known->init_done);
  record.bound = bound || (known != nullptr && known->bound);
  record.assigned = AssignedTime(pod);
  record.deadline = record.assigned + assume_seconds_;
  // Its time begins anew when it is placed anew, and not with everything else that somebody writes on it.
  if (known != nullptr && !known->own && known->assigned == record.assigned) record.deadline = known->deadline;
  const auto over = ahead_.find(pod.uid);
  if (over != ahead_.end() && !record.bound && over->second == record.assigned) return false;
  return Replace(std::move(record), assigned);
}

// The pod runs where it is charged.
bool Ledger::UpsertSettled(const PodRecord& known, const device::Pod& pod, Trust trust) {
  Claim claim = ReadClaim(pod, vendors_, trust);
  const bool init_done = known.init_done || pod.init_done;
  const bool same =
      claim.any && !claim.unreadable && !known.unreadable && SameGrant(claim.allocation, known.allocation);
  const bool told_nothing = !claim.any || (claim.unreadable && !known.unreadable);
  const bool proves = known.believed && trust == Trust::kProven;
  const bool nothing_new = told_nothing || (same && !proves && claim.allocation == known.allocation);
  if (known.bound && known.init_done == init_done && known.traits == pod.traits && nothing_new) {
    ++counters_.events;
    return false;
  }
  PodRecord next = known;
  // By us, or by another scheduler with another grant: until our Binding is known to be the one, or the grant is
  // proven, nobody can tell.
  if (!known.bound && trust == Trust::kDoubted) next.unreadable = true;
  next.bound = true;
  next.own = next.held = false;
  next.init_done = init_done;
  next.roles = Roles(pod);
  next.traits = pod.traits;
  if (same && !proves) next.allocation = std::move(claim.allocation);  // the plugin may have added identities
  if (!told_nothing && (!same || proves)) {
    PodRecord told = next;
    told.allocation = std::move(claim.allocation);
    told.limits = std::move(claim.limits);
    told.believed = trust != Trust::kProven;
    told.unreadable = claim.unreadable;
    Charge(told);
    if (trust == Trust::kProven || (known.believed && Covers(told.charge, known.charge))) next = std::move(told);
  }
  return Replace(std::move(next), nodes_[known.node]->name());
}

// Puts RECORD in the place of what is known of its pod.
bool Ledger::Replace(PodRecord record, const std::string& at) {
  const std::string node = at;  // of a name that may go with what is removed
  const PodRecord* known = FindPod(record.uid);
  const bool was = known != nullptr;
  const bool requoted = was && (known->ns != record.ns || known->traits != record.traits);
  const bool moved = was && (requoted || nodes_[known->node]->name() != node);
  NodeCharge before;
  if (was && !moved) {
    const bool alike = known->allocation == record.allocation && known->limits == record.limits &&
                       known->believed == record.believed && known->roles == record.roles &&
                       known->unreadable == record.unreadable && known->init_done == record.init_done;
    record.node = known->node;
    if (alike) {
      record.charge = known->charge;
    } else {
      Charge(record);
    }
    if (known->bound == record.bound && record.charge == known->charge) {
      ++counters_.events;
      PodRecord* const same = Mutable(record.uid);
      Refresh(*same, std::move(record));
      return false;
    }
    before = known->charge;
  }
  RemovePod(record.uid);
  NodeAt(node, record.node);
  Charge(record);
  const bool recharged = !was || moved || before != record.charge;
  Insert(std::move(record));
  return recharged;
}

// What does not change the charge.
void Ledger::Refresh(PodRecord& same, PodRecord record) {
  same.allocation = std::move(record.allocation);  // the plugin may have added identities
  same.limits = std::move(record.limits);
  same.believed = record.believed;
  same.roles = std::move(record.roles);
  same.init_done = record.init_done;
  same.own = same.own && !same.bound;
  same.assigned = record.assigned;
  if (same.bound || same.deadline == record.deadline) return;  // else it was placed there once more
  ClearDeadline(same);
  SetDeadline(same, record.deadline);
}

void Ledger::Assume(const device::Pod& pod, std::string_view node, const device::Allocation& allocation,
                    device::UnixSeconds deadline) {
  RemovePod(pod.uid);
  PodRecord record;
  record.uid = pod.uid;
  record.ns = pod.ns;
  record.name = pod.name;
  record.traits = pod.traits;
  record.priority = pod.priority;
  record.roles = Roles(pod);
  record.allocation = allocation;
  record.marks = MarksOf(pod, allocation);
  record.own = true;
  record.deadline = deadline;
  NodeAt(node, record.node);
  Charge(record);
  Insert(std::move(record));
}

void Ledger::Hold(std::string_view uid) {
  PodRecord* record = Mutable(uid);
  if (record == nullptr || !record->own) return;
  ClearDeadline(*record);
  record->held = true;
}

bool Ledger::Confirm(std::string_view uid) {
  PodRecord* record = Mutable(uid);
  if (record == nullptr) return false;
  ClearDeadline(*record);
  record->bound = true;
  record->own = record->held = false;
  if (record->unreadable && !record->believed) {
    PodRecord clear = *record;
    clear.unreadable = false;
    Replace(std::move(clear), nodes_[record->node]->name());
  }
  return true;
}

void Ledger::NoteAnswered(std::string_view uid) {
  if (PodRecord* record = Mutable(uid)) record->answered = true;
}

bool Ledger::Forget(std::string_view uid) {
  const auto found = by_uid_.find(uid);
  if (found == by_uid_.end() || pods_[found->second]->bound) return false;
  ++counters_.events;
  Erase(found->second);
  return true;
}

std::vector<std::string> Ledger::ExpireBefore(device::UnixSeconds now) {
  std::vector<std::string> expired;
  // Nothing lasts longer from now on than what is placed now: such a time is by a clock that was, or is, ahead.
  const device::UnixSeconds latest = now + assume_seconds_;
  while (!deadlines_.empty() && deadlines_.rbegin()->first > latest) {
    PodRecord& record = *Mutable(deadlines_.rbegin()->second);
    ClearDeadline(record);
    SetDeadline(record, latest);
  }
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(deadlines_.begin()->second);
    const PodRecord& record = *FindPod(expired.back());
    if (!record.own && record.assigned + assume_seconds_ > now) ahead_[record.uid] = record.assigned;
    Forget(expired.back());
  }
  return expired;
}

void Ledger::ForEachNode(const std::function<void(const Node&)>& visit) const {
  for (const auto& node : nodes_) {
    if (node != nullptr) visit(*node);
  }
}

void Ledger::ForEachPod(const std::function<void(const PodRecord&)>& visit) const {
  for (const auto& record : pods_) {
    if (record != nullptr) visit(*record);
  }
}

}  // namespace hami::sched
