// SPDX-License-Identifier: Apache-2.0
//
// How a binding ends: what is given back when it failed, and what is found out later when nobody could tell.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "scheduler/binder.h"

namespace hami::scheduler {
namespace {

// Then the round is over; what the server says of one pod says nothing of the next.
bool NobodyToAsk(kube::Reason reason) {
  return reason == kube::Reason::kTransport || reason == kube::Reason::kTimeout || reason == kube::Reason::kCancelled ||
         reason == kube::Reason::kNotSent;
}

// Annotations of a placement that the node's plugins may write over, as they hand out the shares, make MIG instances
// and say that they did: all but what the scheduler itself counts by.
bool IsThePlugins(const std::string& key) {
  return key != device::kAssignedNode && key != device::kAssignedTime && !device::IsAllocatedKey(key);
}

// Of the vendor that has one.
std::string_view OwnLock(const device::Vendors& vendors) {
  for (const auto& vendor : vendors) {
    if (!vendor->own_lock_annotation().empty()) return vendor->own_lock_annotation();
  }
  return {};
}

}  // namespace

Binder::Fate Binder::Examine(const Pending& pending, const PodView& pod, std::string& why) const {
  why = "the pod is gone";
  if (pod.uid != pending.candidate.pod.uid || pod.terminated) return Fate::kLost;
  if (!pod.node.empty() && options_.keys != nullptr) return ExamineSealed(pending, pod, why);
  if (!pod.node.empty()) {
    const bool ours = pod.node == pending.node && device::TextAt(pod.annotations, kBoundBy) == options_.writer &&
                      std::all_of(pending.annotations.begin(), pending.annotations.end(), [&](const auto& written) {
                        return IsThePlugins(written.first) ||
                               device::TextAt(pod.annotations, written.first) == written.second.value_or("[]");
                      });
    why = "the pod is assigned to node " + pod.node + " already";
    return ours ? Fate::kOurs : Fate::kLost;
  }
  why = "the pod is being deleted";
  return pod.deleting ? Fate::kLost : Fate::kFree;
}

// What a tenant wrote on the pod since says nothing, only the seal does. Without one nobody can tell whose Binding it
// was: the books learn that the pod is bound before our charge is given back.
Binder::Fate Binder::ExamineSealed(const Pending& pending, const PodView& pod, std::string& why) const {
  why = "the pod is assigned to node " + pod.node + " already";
  const bool sealed = device::IsSealed(options_.keys->Get().get(), pod.uid, pod.node, pod.annotations);
  const auto same = [&](const auto& written) {
    return !device::IsAllocatedKey(written.first) ||
           device::TextAt(pod.annotations, written.first) == written.second.value_or("");
  };
  const auto& annotations = pending.annotations;
  const bool ours = sealed && pod.node == pending.node && std::all_of(annotations.begin(), annotations.end(), same);
  if (ours) return Fate::kOurs;
  device::Pod bound = pending.candidate.pod;
  bound.node_name = pod.node;
  bound.annotations = pod.annotations;
  books_.Locked([&](State& state) { state.PodBorrowed(bound, time_.Now() / kSecond); });
  return Fate::kLost;
}

// The server takes any label with a Binding, and no later write of a pod that has too long a one.
device::StringMap Binder::LabelsFor(const std::string& node) {
  constexpr std::size_t kMostLabelBytes = 63;
  if (node.size() > kMostLabelBytes) return {};
  return {{device::kAssignedNode, node}};
}

void Binder::FoundBound(const Owner& pod, const std::string& node) {
  Succeed(pod);
  api_.BringLabels({pod.ns, pod.name, pod.uid, {}, node, {}, LabelsFor(node)});
}

void Binder::Succeed(const Owner& pod) {
  books_.Locked([&](State& state) { state.Bound(pod.uid, time_.Now() / kSecond); });
}

void Binder::GiveBack(const Owner& pod, const std::string& node, Trace trace) {
  Release release{node, pod, trace == Trace::kUnheard};
  books_.Locked([&](State& state) {
    const NodeBook* book = state.FindNode(node);
    if (book != nullptr) {
      const auto entry = book->in_flight.find(pod.uid);
      release.own_lock = entry != book->in_flight.end() && entry->second.own_lock;
    }
    state.GiveUp(pod.uid);
    state.LeaveNode(pod.uid, node);
  });
  if (trace == Trace::kNone) return;
  const kube::Result<Left> left = ReleaseNode(release);
  if (!left || *left == Left::kInUse) Owe(std::move(release));
}

void Binder::Owe(Release release) {
  const std::scoped_lock lock(mutex_);
  const auto same = std::find_if(owed_.begin(), owed_.end(), [&](const Release& other) {
    return other.node == release.node && other.pod == release.pod;
  });
  if (same == owed_.end()) return owed_.push_back(std::move(release));
  same->unheard = same->unheard || release.unheard;
  same->own_lock = same->own_lock || release.own_lock;
}

// The pod may have been placed and bound here again since, and then what names it is the new binding's. That is looked
// at after the node was: what comes later changes the node before it relies on it, and so meets our write.
kube::Result<Binder::Left> Binder::ReleaseNode(const Release& release) {
  const auto& [node, pod, unheard, own_lock] = release;
  const std::string_view own = own_lock ? OwnLock(books_.vendors()) : std::string_view();
  kube::Result<NodeView> view = unheard ? api_.GetNode(node) : NodeView{};
  kube::Error why;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (!view) {
      if (view.error().reason == kube::Reason::kNotFound) return Left::kNothing;
      why = view.error();
      break;
    }
    Left left = Left::kNothing;
    const bool again = books_.Read([&](const State& state) {
      const auto found = state.nodes().find(node);
      if (found == state.nodes().end()) return view->version.empty();
      if (view->version.empty()) *view = found->second.view;
      const auto entry = found->second.in_flight.find(pod.uid);
      const bool in_flight = entry != found->second.in_flight.end();
      if (in_flight && entry->second.stage != InFlight::Stage::kBound) left = Left::kInUse;
      return in_flight || state.IsBoundTo(pod.uid, node);
    });
    if (again || view->version.empty()) return left;  // without a version it is gone, with all that was on it
    const Changes changes = ReleaseChanges(*view, pod, options_.writer, time_.Now(), own);
    if (changes.empty()) return Left::kNothing;
    kube::Result<NodeView> written = api_.PatchNode(node, view->version, changes);
    if (written) {
      books_.Locked([&](State& state) { state.NodeAnswered(*std::move(written)); });
      return Left::kNothing;
    }
    why = written.error();
    if (why.reason == kube::Reason::kNotFound) return Left::kNothing;
    if (why.reason != kube::Reason::kConflict) break;
    view = api_.GetNode(node);
  }
  base::LogWarning(base::Concat(
      {"node ", node, " could not be given back after pod ", pod.ns, "/", pod.name, " was not bound; trying again"}));
  return tl::unexpected(why);
}

kube::Result<PodView> Binder::Revoke(const Owner& owner) {
  const std::string mark = base::Concat({std::to_string(time_.Now()), ";", options_.writer});
  kube::Result<PodView> pod = api_.PatchPod(owner.ns, owner.name, owner.uid, {{kBindRevoked, mark}});
  // Refused for its uid: that pod does not exist any more.
  const bool other =
      !pod && (pod.error().reason == kube::Reason::kConflict || pod.error().reason == kube::Reason::kInvalid);
  return other ? kube::Fail(kube::Reason::kNotFound, pod.error().message) : std::move(pod);
}

kube::Status Binder::RevokeBefore(const Owner& owner) {
  const kube::Result<PodView> pod = Revoke(owner);
  if (!pod) return tl::unexpected(pod.error());
  const std::string node = books_.Read([&](const State& state) {
    const auto found = state.pendings().find(owner.uid);
    return found == state.pendings().end() ? std::string() : found->second.node;
  });
  if (!node.empty()) AdoptRevoked(owner, node, *pod);
  return {};
}

Pending* Binder::OnOurHands(State& state, const Owner& owner, const std::string& node) {
  Pending* pending = state.FindPending(owner.uid);
  if (pending == nullptr || pending->stage == Pending::Stage::kPlaced) return pending;
  const auto& in_flight = state.NodeAt(node).in_flight;
  const auto entry = in_flight.find(owner.uid);
  const bool waits = entry != in_flight.end() && entry->second.stage == InFlight::Stage::kWaiting;
  return waits && pending->stage == Pending::Stage::kBinding ? pending : nullptr;
}

// Our own Binding of the pod is still to be ticketed, and is not what was revoked.
void Binder::AdoptRevoked(const Owner& owner, const std::string& node, const PodView& pod) {
  books_.Locked([&](State& state) {
    Pending* pending = OnOurHands(state, owner, node);
    if (pending == nullptr) return;
    pending->candidate.version = pod.version;
    pending->candidate.pod.annotations[kBindRevoked] = device::TextAt(pod.annotations, kBindRevoked);
  });
}

bool Binder::Unsettled() const {
  return books_.Read([](const State& state) {
    return std::any_of(state.pendings().begin(), state.pendings().end(),
                       [](const auto& pending) { return pending.second.stage == Pending::Stage::kUnknown; });
  });
}

void Binder::Settle() {
  SettleUnknown();
  SettleReleases();
  SettleBorrowed();
}

void Binder::SettleUnknown() {
  const auto unknown = books_.Read([](const State& state) {
    std::vector<Pending> found;
    for (const auto& [uid, pending] : state.pendings()) {
      if (pending.stage == Pending::Stage::kUnknown) found.push_back(pending);
    }
    return found;
  });
  for (const Pending& pending : unknown) {
    const Owner owner{pending.candidate.pod.ns, pending.candidate.pod.name, pending.candidate.pod.uid};
    if (BoundTo(owner.uid, pending.node)) {
      bound_.fetch_add(1, std::memory_order_relaxed);
      Succeed(owner);
      continue;
    }
    const kube::Result<PodView> pod = Revoke(owner);
    if (!pod && pod.error().reason != kube::Reason::kNotFound) {
      if (NobodyToAsk(pod.error().reason)) return;
      continue;
    }
    std::string why;
    if (pod && Examine(pending, *pod, why) == Fate::kOurs) {
      bound_.fetch_add(1, std::memory_order_relaxed);
      FoundBound(owner, pending.node);
    } else {
      failed_.fetch_add(1, std::memory_order_relaxed);
      GiveBack(owner, pending.node, Trace::kWritten);
    }
  }
}

void Binder::SettleReleases() {
  std::vector<Release> owed;
  {
    const std::scoped_lock lock(mutex_);
    owed.swap(owed_);
  }
  bool nobody_to_ask = false;
  for (const Release& release : owed) {
    if (!nobody_to_ask) {
      const kube::Result<Left> left = ReleaseNode(release);
      if (left && *left == Left::kNothing) continue;
      nobody_to_ask = !left && NobodyToAsk(left.error().reason);
    }
    Owe(release);
  }
}

void Binder::SettleBorrowed() {
  const device::UnixSeconds now = time_.Now() / kSecond;
  constexpr device::UnixSeconds kPatience = 10;
  const auto borrowed = books_.Read([&](const State& state) {
    std::vector<Owner> old;
    for (const auto& [uid, pod] : state.borrowed()) {
      if (now - pod.since >= kPatience) old.push_back({pod.ns, pod.name, uid});
    }
    return old;
  });
  for (const Owner& owner : borrowed) {
    const kube::Result<PodView> pod = api_.GetPod(owner.ns, owner.name);
    if (!pod && pod.error().reason != kube::Reason::kNotFound) {
      if (NobodyToAsk(pod.error().reason)) return;
      continue;
    }
    const bool gone = !pod || pod->uid != owner.uid || pod->terminated;
    books_.Locked([&](State& state) { gone ? state.PodGone(owner.uid) : state.StillBorrowed(owner.uid, now); });
  }
}

}  // namespace hami::scheduler
