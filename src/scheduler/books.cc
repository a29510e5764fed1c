// SPDX-License-Identifier: Apache-2.0

#include "scheduler/books.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/strings.h"
#include "device/annotations.h"
#include "scheduler/node_lock.h"

namespace hami::scheduler {
namespace {

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
  if (bound) patience_.erase(pod.uid);
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
  if (pod.node_name.empty()) return filter.Learn(pod);  // those that wait are what is asked for next
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
  if (const auto refused = patience_.find(uid); refused != patience_.end()) patience_.erase(refused);
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
  if (!restored && book.exists && VersionNumber(view.version) < VersionNumber(book.view.version)) return false;
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
  if (VersionNumber(version) < VersionNumber(book.view.version)) return true;
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
