// SPDX-License-Identifier: Apache-2.0
//
// How a binding ends: what is given back when it failed, and what is found out later when nobody could tell.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "scheduler/binder.h"

namespace hami::scheduler {
namespace {

// Then the round is over; what the server says of one pod says nothing of the next.
bool NobodyToAsk(kube::Reason reason) {
  return reason == kube::Reason::kTransport || reason == kube::Reason::kTimeout || reason == kube::Reason::kCancelled;
}

}  // namespace

void Binder::Succeed(const Owner& pod) {
  books_.Locked([&](State& state) { state.Bound(pod.uid, time_.Now() / kSecond); });
}

void Binder::GiveBack(const Owner& pod, const std::string& node, bool wrote) {
  books_.Locked([&](State& state) {
    state.GiveUp(pod.uid);
    state.LeaveNode(pod.uid, node);
  });
  if (!wrote || ReleaseNode(node, pod)) return;
  const std::scoped_lock lock(mutex_);
  owed_.push_back({node, pod});
}

bool Binder::ReleaseNode(const std::string& node, const Owner& pod) {
  kube::Result<NodeView> view = books_.Read([&](const State& state) -> kube::Result<NodeView> {
    const auto found = state.nodes().find(node);
    return found == state.nodes().end() ? NodeView{} : found->second.view;
  });
  if (view->version.empty()) return true;  // gone with all that was on it
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (!view) return view.error().reason == kube::Reason::kNotFound;
    const Changes changes = ReleaseChanges(*view, pod, options_.writer, time_.Now());
    if (changes.empty()) return true;
    kube::Result<NodeView> written = api_.PatchNode(node, view->version, changes);
    if (written) {
      books_.Locked([&](State& state) { state.NodeAnswered(*std::move(written)); });
      return true;
    }
    if (written.error().reason == kube::Reason::kNotFound) return true;
    if (written.error().reason != kube::Reason::kConflict) break;
    view = api_.GetNode(node);
  }
  base::LogWarning(base::Concat(
      {"node ", node, " could not be given back after pod ", pod.ns, "/", pod.name, " was not bound; trying again"}));
  return false;
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
      Succeed(owner);
    } else {
      GiveBack(owner, pending.node, true);
    }
  }
}

void Binder::SettleReleases() {
  std::vector<Release> owed;
  {
    const std::scoped_lock lock(mutex_);
    owed.swap(owed_);
  }
  for (const Release& release : owed) {
    // Placed there once more in the meantime: the lock is the new binding's.
    const bool busy = books_.Read([&](const State& state) {
      const auto found = state.nodes().find(release.node);
      return found != state.nodes().end() && found->second.in_flight.count(release.pod.uid) > 0;
    });
    if (busy || ReleaseNode(release.node, release.pod)) continue;
    const std::scoped_lock lock(mutex_);
    owed_.push_back(release);
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
