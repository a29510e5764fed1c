// SPDX-License-Identifier: Apache-2.0
//
// How a placement is held: where a pod goes, what it is charged there, and when that charge ends without a Binding. It
// ends when the pod is placed again, when a bind call fails, when kube-scheduler gives the pod up, and in time. A
// placement that lapsed is remembered without a charge: should its bind call come all the same, the pod is decided anew
// on that node, as long as there is room.

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "scheduler/books.h"

namespace hami::scheduler {
namespace {

constexpr device::UnixSeconds kEvictAgain = 10;  // a pod that has not gone by then may never have heard of it

constexpr device::UnixSeconds kTakenFor = 30;      // pods go to other nodes first; then one tries again
constexpr device::UnixSeconds kShortestHold = 10;  // a bind call comes within seconds, if it comes
constexpr std::size_t kMostRemembered = 10'000;

sched::Decision Refuse(std::string text) {
  sched::Decision decision;
  decision.outcome = sched::Outcome::kError;
  decision.error = std::move(text);
  return decision;
}

}  // namespace

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
  sched::Decision decision = Decide(pod, names, {now, options.explain, offer});
  const bool was_refused = std::exchange(refused_, refused_ || decision.outcome == sched::Outcome::kNoFit);
  if (decision.outcome == sched::Outcome::kNoFit && options.preempt && candidate.preempts) {
    Nominate(candidate, names, now, decision);
  } else {
    nominations_.erase(pod.uid);
  }
  if (decision.outcome == sched::Outcome::kNotOurs) passed_[pod.uid] = now + assume_seconds_;
  const std::string uid = pod.uid;
  if (decision.outcome == sched::Outcome::kPlaced) Keep(std::move(candidate), decision, now, HoldFor(uid));
  // What it had, and does not get again, is room for those who were refused before it.
  const sched::PodRecord* holds = ledger.FindPod(uid);
  const bool as_before = holds != nullptr && ledger.node(holds->node).name() == before;
  if (!before.empty() && !as_before && was_refused) RoomMade(before);
  return decision;
}

bool State::IsTaken(std::string_view node, device::UnixSeconds now) const {
  const auto found = taken_.find(node);
  if (found == taken_.end() || found->second.until <= now || found->second.until > now + kTakenFor) return false;
  const auto book = nodes_.find(node);
  return book != nodes_.end() && device::TextAt(book->second.view.annotations, device::kNodeLock) == found->second.lock;
}

void State::NodeWasTaken(const std::string& node, device::UnixSeconds now) {
  const NodeBook* book = FindNode(node);
  if (book == nullptr) return;
  taken_[node] = {now + kTakenFor, std::string(device::TextAt(book->view.annotations, device::kNodeLock))};
}

sched::Decision State::Decide(const device::Pod& pod, std::span<const std::string_view> names,
                              const sched::FilterOptions& options) {
  std::vector<std::string_view> others;
  if (!taken_.empty()) {
    std::erase_if(taken_, [&](const auto& entry) { return !IsTaken(entry.first, options.now); });
    std::copy_if(names.begin(), names.end(), std::back_inserter(others),
                 [&](std::string_view name) { return taken_.find(name) == taken_.end(); });
  }
  if (!others.empty() && others.size() < names.size()) {
    sched::Decision decision = filter.Decide(pod, others, options);
    if (decision.outcome != sched::Outcome::kNoFit) return decision;
  }
  return filter.Decide(pod, names, options);
}

device::UnixSeconds State::HoldFor(std::string_view uid) const {
  const auto found = patience_.find(uid);
  if (found == patience_.end()) return assume_seconds_;
  return std::min(std::max(2 * found->second, kShortestHold), assume_seconds_);
}

void State::Refused(const device::PodObject& pod, device::UnixSeconds now) {
  Pending* pending = FindPending(pod.pod.uid);
  if (pending == nullptr || pending->stage != Pending::Stage::kPlaced || pending->lapsed) return;
  const Candidate& asked = pending->candidate;
  const bool news = pod.refusal != 0 && pod.refusal != asked.refusal;
  if (!news || !pod.pod.node_name.empty() || VersionNumber(pod.version) <= VersionNumber(asked.version)) return;
  if (patience_.size() < kMostRemembered)
    patience_[pod.pod.uid] = std::max<device::UnixSeconds>(now - pending->since, 0);
  pending->lapsed = true;
  const std::string node = pending->node;
  if (ledger.Forget(pod.pod.uid)) DropHost(pod.pod.uid);
  RoomMade(node);
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

void State::Keep(Candidate candidate, sched::Decision& decision, device::UnixSeconds now, device::UnixSeconds hold) {
  if (filter.learns()) hosts.Use(candidate.pod.uid, decision.node, sched::HostRequest(candidate.pod));
  ledger.Assume(candidate.pod, decision.node, decision.allocation, now + hold);
  Pending& pending = pendings_[candidate.pod.uid];
  pending.candidate = std::move(candidate);
  pending.node = decision.node;
  pending.allocation = std::move(decision.allocation);
  pending.annotations = std::move(decision.annotations);
  pending.offered = decision.offered;
  pending.foreign = NodeAt(decision.node).foreign;
  pending.since = now;
  pending.lapsed = false;
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
  Keep(std::move(pending->candidate), decision, now, assume_seconds_);
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
  Keep(std::move(pending->candidate), decision, now, 0);
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
    if (found != pendings_.end() && found->second.stage == Pending::Stage::kPlaced) found->second.lapsed = true;
    DropHost(uid);
  }
  std::erase_if(pendings_, [&](const auto& pending) {
    return pending.second.lapsed && pending.second.since + assume_seconds_ <= now;
  });
  std::erase_if(passed_, [&](const auto& pod) { return pod.second <= now; });
  std::erase_if(nominations_, [&](const auto& pod) { return pod.second.until <= now; });
  std::erase_if(simulated_, [&](const auto& pod) { return pod.second <= now; });
  if (!expired.empty()) RoomMade({});
  return expired;
}

}  // namespace hami::scheduler
