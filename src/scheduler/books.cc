// SPDX-License-Identifier: Apache-2.0

#include "scheduler/books.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/strings.h"
#include "device/annotations.h"
#include "scheduler/node_lock.h"

namespace hami::scheduler {
namespace {

std::uint64_t Number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

constexpr device::UnixSeconds kEvictAgain = 10;  // a pod that has not gone by then may never have heard of it

sched::Decision Refuse(std::string text) {
  sched::Decision decision;
  decision.outcome = sched::Outcome::kError;
  decision.error = std::move(text);
  return decision;
}

// Handed out by bind, and not yet claimed or refused by the node's plugin.
bool WaitsForPlugin(const device::Pod& pod) {
  const std::string* phase = device::Find(pod.annotations, device::kBindPhase);
  return !pod.node_name.empty() && !pod.terminated && phase != nullptr && *phase == device::kPhaseAllocating;
}

// But for what bind calls write.
bool SameForRegistration(const NodeView& a, const NodeView& b) {
  const auto skip = [](auto at, const device::StringMap& map) {
    while (at != map.end() && (at->first == device::kNodeLock || at->first == kBindTicket)) ++at;
    return at;
  };
  if (a.selected != b.selected || a.allocatable != b.allocatable || a.capacity != b.capacity) return false;
  if (a.instance_type != b.instance_type) return false;
  auto left = skip(a.annotations.begin(), a.annotations);
  auto right = skip(b.annotations.begin(), b.annotations);
  while (left != a.annotations.end() && right != b.annotations.end() && *left == *right) {
    left = skip(std::next(left), a.annotations);
    right = skip(std::next(right), b.annotations);
  }
  return left == a.annotations.end() && right == b.annotations.end();
}

}  // namespace

JudgeClaim JudgeSeals(device::GrantKeyring& keys, bool believe_unsealed) {
  const sched::Trust unsealed = believe_unsealed ? sched::Trust::kBelieved : sched::Trust::kDoubted;
  return [&keys, unsealed](const device::Pod& pod) {
    const bool sealed = device::IsSealed(keys.Get().get(), pod.uid, pod.node_name, pod.annotations);
    return sealed ? sched::Trust::kProven : unsealed;
  };
}

bool State::PodSeen(const device::Pod& pod, device::UnixSeconds now) {
  borrowed_.erase(pod.uid);
  const sched::PodRecord* known = ledger.FindPod(pod.uid);
  const bool bound = !pod.node_name.empty();
  // A pod that is bound does not come loose, and one that was placed here is bound by us or by nobody.
  if (!bound && !pod.terminated && known != nullptr && (known->own || known->bound)) return false;
  if (filter.learns()) BookHost(pod);

  const bool known_before = known != nullptr;
  const bool unreadable_before = known_before && known->unreadable;
  const std::string node_before = known == nullptr ? std::string() : ledger.node(known->node).name();
  const bool recharged = Book(pod);
  const sched::PodRecord* record = ledger.FindPod(pod.uid);
  if (known_before && (record == nullptr || recharged)) RoomMade(node_before);
  if (record == nullptr) {
    ForgetInFlight(pod.uid, node_before);
    // Somebody else bound it, or it ended: nothing is left to be bound. A bind call at work finds out by itself.
    if (bound || pod.terminated) ForgetPlaced(pod.uid);
    return false;
  }
  if (bound) ForgetPlaced(pod.uid);
  if (bound) nominations_.erase(pod.uid);
  const std::string& node = ledger.node(record->node).name();
  if (node != node_before) ForgetInFlight(pod.uid, node_before);
  if (node != node_before || recharged) Changed(node);
  if (WaitsForPlugin(pod) && !record->answered) {
    NoteInFlight(pod, *record, now);
  } else if (bound) {
    ForgetInFlight(pod.uid, node);
    // For good: it was bound with the phase that its plugin answers, and one that is written back later holds nobody
    // up.
    ledger.NoteAnswered(pod.uid);
  }
  return record->unreadable && !unreadable_before;
}

bool State::Book(const device::Pod& pod) {
  const sched::Trust trust = judge_ ? judge_(pod) : sched::Trust::kBelieved;
  const std::string_view told = device::TextAt(pod.annotations, device::kAssignedNode);
  if (trust == sched::Trust::kBelieved || pod.node_name.empty() || told == pod.node_name) {
    return ledger.UpsertPod(pod, trust);
  }
  // With keys only the node counts on which it runs, whatever is written.
  device::Pod there = pod;
  there.annotations[device::kAssignedNode] = pod.node_name;
  return ledger.UpsertPod(there, trust);
}

void State::BookHost(const device::Pod& pod) {
  if (pod.terminated) return DropHost(pod.uid);
  if (pod.node_name.empty()) return;
  const std::string before = hosts.NodeOf(pod.uid);
  if (!hosts.Use(pod.uid, pod.node_name, sched::HostRequest(pod))) return;
  if (before.empty()) filter.Learn(pod);
  if (!before.empty() && before != pod.node_name) ledger.HostChanged(before);
  ledger.HostChanged(pod.node_name);
}

void State::DropHost(std::string_view uid) {
  if (const std::string node = hosts.Drop(uid); !node.empty()) ledger.HostChanged(node);
}

void State::PodGone(std::string_view uid) {
  DropHost(uid);
  borrowed_.erase(std::string(uid));
  if (const sched::PodRecord* known = ledger.FindPod(uid)) {
    const std::string& node = ledger.node(known->node).name();
    ForgetInFlight(uid, node);
    RoomMade(node);
  }
  ledger.RemovePod(uid);
  ForgetPlaced(uid);
  if (const auto nominated = nominations_.find(uid); nominated != nominations_.end()) nominations_.erase(nominated);
}

void State::PodBorrowed(const device::Pod& pod, device::UnixSeconds now) {
  // Of one that the watch has shown on its node, it will tell the end.
  const sched::PodRecord* known = ledger.FindPod(pod.uid);
  const bool shown = known != nullptr && known->bound && borrowed_.count(pod.uid) == 0;
  PodSeen(pod, now);
  if (!shown && ledger.FindPod(pod.uid) != nullptr) borrowed_[pod.uid] = {pod.ns, pod.name, now};
}

void State::StillBorrowed(const std::string& uid, device::UnixSeconds now) {
  if (const auto found = borrowed_.find(uid); found != borrowed_.end()) found->second.since = now;
}

bool State::IsBoundTo(std::string_view uid, std::string_view node) const {
  const sched::PodRecord* record = ledger.FindPod(uid);
  return record != nullptr && record->bound && ledger.node(record->node).name() == node;
}

void State::NoteInFlight(const device::Pod& pod, const sched::PodRecord& record, device::UnixSeconds now) {
  NodeBook& node = NodeAt(ledger.node(record.node).name());
  InFlight& entry = node.in_flight[pod.uid];
  entry.ns = pod.ns;
  entry.name = pod.name;
  entry.shape = ShapeOf(record.allocation, pod);
  // By our own clock: how long a plugin is waited for is nothing that a pod's annotations decide.
  if (entry.stage != InFlight::Stage::kBound) entry.since = now;
  entry.stage = InFlight::Stage::kBound;
}

void State::ForgetInFlight(std::string_view uid, std::string_view node) {
  NodeBook* book = FindNode(node);
  if (book == nullptr) return;
  const auto found = book->in_flight.find(uid);
  if (found != book->in_flight.end()) book->in_flight.erase(found);
  DropIfGone(node);
}

void State::Changed(std::string_view node) {
  if (NodeBook* book = FindNode(node)) book->foreign = ++changes_;
}

void State::DropIfGone(std::string_view node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  const NodeBook& book = found->second;
  if (!book.exists && book.in_flight.empty() && !book.patching) nodes_.erase(found);
}

void State::ForgetPlaced(std::string_view uid) {
  const auto found = pendings_.find(uid);
  if (found != pendings_.end() && found->second.stage == Pending::Stage::kPlaced) pendings_.erase(found);
}

bool State::NodeSeen(NodeView view, bool restored) {
  NodeBook& book = NodeAt(view.name);
  if (!restored && book.exists && Number(view.version) < Number(book.view.version)) return false;
  const bool looked_at = book.exists && book.looked_at == book.view.version && SameForRegistration(book.view, view);
  if (looked_at) book.looked_at = view.version;
  if (filter.learns() && hosts.SetNode(view.name, sched::ReadHostAmounts(view.allocatable))) {
    ledger.HostChanged(view.name);
  }
  book.exists = true;
  book.view = std::move(view);
  return true;
}

bool State::NodeAnswered(NodeView view) {
  const NodeBook* book = FindNode(view.name);
  return book != nullptr && book->exists && NodeSeen(std::move(view));
}

bool State::KnowsNode(std::string_view name, std::string_view version) const {
  const auto found = nodes_.find(name);
  if (found == nodes_.end() || !found->second.exists) return false;
  const NodeBook& book = found->second;
  // Several binds may have written by the time that the first is told.
  if (Number(version) < Number(book.view.version)) return true;
  return book.view.version == version && book.looked_at == version;
}

void State::NodeGone(std::string_view name) {
  ledger.RemoveNode(name);
  hosts.RemoveNode(name);
  NodeBook* book = FindNode(name);
  if (book == nullptr) return;
  Changed(name);
  book->exists = false;
  book->view = {};
  book->vendors.assign(vendors_.size(), {});
  DropIfGone(name);
}

void State::CardsSeen(NodeBook& node, int vendor, const device::NodeCards& cards) {
  const sched::NodeId before = ledger.Find(node.view.name);
  const std::uint64_t version = before == sched::kNoNode ? 0 : ledger.node(before).version;
  ledger.SetCards(node.view.name, vendor, cards);
  const sched::NodeId after = ledger.Find(node.view.name);
  if (after != before || (after != sched::kNoNode && ledger.node(after).version != version)) {
    Changed(node.view.name);
    RoomMade(node.view.name);
  }
}

sched::Decision State::Place(Candidate candidate, std::span<const std::string_view> names, device::UnixSeconds now,
                             const PlaceOptions& options) {
  const device::Pod& pod = candidate.pod;
  if (pod.uid.empty()) return Refuse("the pod has no uid");
  const Pending* pending = FindPending(pod.uid);
  if (pending != nullptr && pending->stage != Pending::Stage::kPlaced) {
    return Refuse("a binding of this pod to node " + pending->node + " is still being worked on");
  }
  const sched::PodRecord* known = ledger.FindPod(pod.uid);
  if (known != nullptr && known->bound) {
    return Refuse("the pod is bound to node " + ledger.node(known->node).name() + " already");
  }
  simulated_.erase(pod.uid);
  const std::string before = known == nullptr ? std::string() : ledger.node(known->node).name();
  const std::size_t offer = candidate.group ? std::min<std::size_t>(options.offer, 1) : options.offer;
  Drop(pod.uid);
  sched::Decision decision = filter.Decide(pod, names, {now, options.explain, offer});
  const bool was_refused = std::exchange(refused_, refused_ || decision.outcome == sched::Outcome::kNoFit);
  if (decision.outcome == sched::Outcome::kNoFit && options.preempt && candidate.preempts) {
    Nominate(candidate, names, now, decision);
  } else {
    nominations_.erase(pod.uid);
  }
  if (decision.outcome == sched::Outcome::kNotOurs) passed_[pod.uid] = now + assume_seconds_;
  const std::string uid = pod.uid;
  if (decision.outcome == sched::Outcome::kPlaced) Keep(std::move(candidate), decision, now + assume_seconds_);
  // What it had, and does not get again, is room for those who were refused before it.
  const sched::PodRecord* holds = ledger.FindPod(uid);
  const bool as_before = holds != nullptr && ledger.node(holds->node).name() == before;
  if (!before.empty() && !as_before && was_refused) RoomMade(before);
  return decision;
}

void State::Nominate(const Candidate& candidate, std::span<const std::string_view> names, device::UnixSeconds now,
                     sched::Decision& decision) {
  const device::Pod& pod = candidate.pod;
  Nomination& wanted = nominations_[pod.uid];
  wanted.until = now + assume_seconds_;
  std::erase_if(wanted.victims, [&](const Owner& victim) { return !IsBoundTo(victim.uid, wanted.node); });
  const bool named = std::find(names.begin(), names.end(), wanted.node) != names.end();
  if (wanted.victims.empty() || !named) {
    const auto found =
        filter.FindVictims(pod, names, [&](std::string_view uid) { return wanted.spared.count(std::string(uid)) > 0; });
    wanted.victims.clear();
    if (!found || found->pods.empty()) return;
    wanted.node = found->node;
    wanted.allocation = found->allocation;
    wanted.asked = 0;
    for (const sched::PodRecord* victim : found->pods)
      wanted.victims.push_back({victim->ns, victim->name, victim->uid});
  }
  // No other pod gets what they leave.
  ledger.Assume(pod, wanted.node, wanted.allocation, wanted.until);
  if (now - wanted.asked < kEvictAgain) return;
  wanted.asked = now;
  decision.node = wanted.node;
  for (const Owner& victim : wanted.victims) {
    evictions_.push_back({victim, {pod.ns, pod.name, pod.uid}});
    decision.evicts.push_back(base::Concat({victim.ns, "/", victim.name}));
  }
}

void State::EvictionRefused(const Eviction& eviction) {
  const auto found = nominations_.find(eviction.preemptor.uid);
  if (found == nominations_.end()) return;
  found->second.spared.insert(eviction.victim.uid);
  found->second.victims.clear();
  refused_ = true;
  if (FindPending(eviction.preemptor.uid) == nullptr) GiveUp(eviction.preemptor.uid);
}

void State::Keep(Candidate candidate, sched::Decision& decision, device::UnixSeconds deadline) {
  if (filter.learns()) hosts.Use(candidate.pod.uid, decision.node, sched::HostRequest(candidate.pod));
  ledger.Assume(candidate.pod, decision.node, decision.allocation, deadline);
  Pending& pending = pendings_[candidate.pod.uid];
  pending.candidate = std::move(candidate);
  pending.node = decision.node;
  pending.allocation = std::move(decision.allocation);
  pending.annotations = std::move(decision.annotations);
  pending.offered = decision.offered;
  pending.foreign = NodeAt(decision.node).foreign;
}

bool State::MoveTo(std::string_view uid, const std::string& node, device::UnixSeconds now) {
  Pending* pending = FindPending(uid);
  if (pending == nullptr) return false;
  const std::string before = pending->node;
  ledger.Forget(uid);
  DropHost(uid);
  const std::string_view names[] = {node};
  sched::Decision decision = filter.Decide(pending->candidate.pod, names, {now, false});
  RoomMade(before);
  if (decision.outcome != sched::Outcome::kPlaced) {
    pendings_.erase(pendings_.find(uid));
    return false;
  }
  Keep(std::move(pending->candidate), decision, now + assume_seconds_);
  return true;
}

void State::BindBegins(Pending& pending) {
  pending.stage = Pending::Stage::kBinding;
  ledger.Hold(pending.candidate.pod.uid);
}

bool State::StillFits(std::string_view uid, device::UnixSeconds now) {
  Pending* pending = FindPending(uid);
  if (pending == nullptr) return false;
  const std::string name = pending->node;
  NodeBook& node = NodeAt(name);
  const sched::PodRecord* record = ledger.FindPod(uid);
  if (record != nullptr && record->bound) return false;  // by another scheduler, and charged for what it decided
  if (pending->foreign == node.foreign) return record != nullptr;
  const std::string_view names[] = {name};
  ledger.Forget(uid);
  DropHost(uid);
  sched::Decision decision = filter.Decide(pending->candidate.pod, names, {now, false});
  if (decision.outcome != sched::Outcome::kPlaced) {
    RoomMade(name);
    return false;
  }
  Keep(std::move(pending->candidate), decision, now);
  ledger.Hold(uid);  // as it was
  return true;
}

void State::Drop(std::string_view uid) {
  if (const auto found = pendings_.find(uid); found != pendings_.end()) {
    LeaveNode(uid, found->second.node);
    pendings_.erase(found);
  }
  if (ledger.Forget(uid)) DropHost(uid);
}

void State::GiveUp(std::string_view uid) {
  const sched::PodRecord* record = ledger.FindPod(uid);
  const std::string node = record == nullptr ? std::string() : ledger.node(record->node).name();
  Drop(uid);
  if (record != nullptr && ledger.FindPod(uid) == nullptr) RoomMade(node);
}

void State::Simulated(const std::string& uid, device::UnixSeconds now) {
  constexpr std::size_t kEnoughToTell = 1000;
  if (simulated_.size() < kEnoughToTell) simulated_[uid] = now + assume_seconds_;
}

bool State::TakePassed(std::string_view uid) {
  const auto found = passed_.find(uid);
  if (found == passed_.end()) return false;
  passed_.erase(found);
  return true;
}

void State::LeaveNode(std::string_view uid, std::string_view node) {
  NodeBook* book = FindNode(node);
  if (book == nullptr) return;
  const auto entry = book->in_flight.find(uid);
  if (entry != book->in_flight.end() && entry->second.stage != InFlight::Stage::kBound) book->in_flight.erase(entry);
  DropIfGone(node);
}

void State::Bound(std::string_view uid, device::UnixSeconds now) {
  const sched::PodRecord* record = ledger.FindPod(uid);
  const bool shown = record == nullptr || !record->own;
  ledger.Confirm(uid);
  const auto found = pendings_.find(uid);
  if (found == pendings_.end()) return;
  if (NodeBook* node = FindNode(found->second.node)) {
    const auto entry = node->in_flight.find(uid);
    // The plugin may have answered for it already.
    if (entry != node->in_flight.end() && entry->second.stage != InFlight::Stage::kBound) {
      entry->second.stage = InFlight::Stage::kBound;
      entry->second.since = now;
    }
  }
  // It may be over before a watch that is down comes back, which never shows it then.
  const device::Pod& pod = found->second.candidate.pod;
  if (!shown) borrowed_[pod.uid] = {pod.ns, pod.name, now};
  pendings_.erase(found);
}

std::vector<std::string> State::Expire(device::UnixSeconds now) {
  std::vector<std::string> expired = ledger.ExpireBefore(now);
  for (const std::string& uid : expired) {
    const auto found = pendings_.find(uid);
    // A bind call at work holds its charge and ends by itself, and so does the question what became of one.
    if (found != pendings_.end() && found->second.stage == Pending::Stage::kPlaced) Drop(uid);
    DropHost(uid);
  }
  std::erase_if(passed_, [&](const auto& pod) { return pod.second <= now; });
  std::erase_if(nominations_, [&](const auto& pod) { return pod.second.until <= now; });
  std::erase_if(simulated_, [&](const auto& pod) { return pod.second <= now; });
  if (!expired.empty()) RoomMade({});
  return expired;
}

void State::RoomMade(std::string_view node) {
  if (refused_) room_ = node;
}

std::optional<std::string> State::TakeRoom() {
  if (!room_) return std::nullopt;
  const auto named = nodes_.find(*room_);
  const auto exists = [](const auto& entry) { return entry.second.exists; };
  const auto any = named != nodes_.end() && exists(*named) ? named : std::find_if(nodes_.begin(), nodes_.end(), exists);
  room_.reset();
  if (any == nodes_.end()) return std::nullopt;
  refused_ = false;
  return any->first;
}

void State::RoomNotShown(std::string_view node) {
  refused_ = true;
  if (!room_) room_ = node;
}

Pending* State::FindPending(std::string_view uid) {
  const auto found = pendings_.find(uid);
  return found == pendings_.end() ? nullptr : &found->second;
}

NodeBook* State::FindNode(std::string_view name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

NodeBook& State::NodeAt(std::string_view name) {
  const auto found = nodes_.find(name);
  if (found != nodes_.end()) return found->second;
  NodeBook& book = nodes_[std::string(name)];
  book.vendors.resize(vendors_.size());
  return book;
}

}  // namespace hami::scheduler
