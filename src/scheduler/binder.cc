// SPDX-License-Identifier: Apache-2.0

#include "scheduler/binder.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "scheduler/binder_work.h"

namespace hami::scheduler {
namespace {

constexpr std::size_t kMostAnnotationBytes = 256U << 10U;  // of keys and values of one object

// Of OLD after NEWER was written over it.
std::size_t BytesOfBoth(const device::StringMap& old, const device::StringMap& newer) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : newer) bytes += key.size() + value.size();
  for (const auto& [key, value] : old) bytes += newer.count(key) > 0 ? 0 : key.size() + value.size();
  return bytes;
}

// Of the vendors of which an app container holds a share.
VendorLocks LocksFor(const Pending& pending, const device::Vendors& vendors) {
  const std::size_t first_app = pending.candidate.pod.init_containers.size();
  VendorLocks locks;
  for (const auto& [index, grant] : pending.allocation.grants) {
    const device::Vendor& vendor = *vendors[static_cast<std::size_t>(index)];
    const auto from = grant.begin() + static_cast<std::ptrdiff_t>(std::min(first_app, grant.size()));
    if (std::all_of(from, grant.end(), [](const auto& row) { return row.empty(); })) continue;
    if (vendor.takes_node_lock()) {
      locks.node = true;
      locks.may_do_without = locks.may_do_without && vendor.may_do_without_lock();
    }
    if (!vendor.own_lock_annotation().empty()) locks.own = vendor.own_lock_annotation();
  }
  return locks;
}

}  // namespace

base::Status Binder::Bind(const BindRequest& request, const std::function<bool()>& abandoned) {
  Work work;
  work.pod = {request.ns, request.name, request.uid};
  work.node = request.node;
  const PodName name{request.ns, request.name, request.uid};
  base::Status status = Run(work, abandoned);
  if (status) {
    bound_.fetch_add(1, std::memory_order_relaxed);
    record_(name, {false, "BindingSucceed",
                   base::Concat({"Successfully binding node [", work.node, "] to ", request.ns, "/", request.name})});
  } else {
    (work.unknown ? unknown_ : failed_).fetch_add(1, std::memory_order_relaxed);
    record_(name, {true, "BindingFailed", status.error().message});
  }
  return status;
}

base::Status Binder::Run(Work& work, const std::function<bool()>& abandoned) {
  work.term = lease_.term();
  const bool caught_up = lease_.CaughtUp(work.term);
  bool bound = false;
  GateVerdict verdict;
  base::Status status;
  // In one go, since nearly always nothing is in the way: the books are what everybody waits for.
  const base::Status started = books_.Locked([&](State& state) -> base::Status {
    // Asked twice: the first answer was lost.
    bound = state.IsBoundTo(work.pod.uid, work.node);
    if (bound) return {};
    HAMI_TRY(Start(state, work));
    if (work.bare) return {};
    verdict = Judge(state, work, caught_up);
    if (work.ticketed) status = Prepare(state, work);
    return {};
  });
  if (bound || !started) return started;
  if (work.bare) return BindBare(work);
  if (!work.ticketed) {
    status = TakeNode(work, std::move(verdict), abandoned);
    if (status) status = books_.Locked([&](State& state) { return Prepare(state, work); });
  }
  if (status) return Post(work);  // knows better what is left when it fails
  GiveBack(work.pod, work.node, work.trace);
  return status;
}

// kube-scheduler asks the extender for every pod that names one of its resources, be the amount 0, and then leaves the
// binding to it, whatever the answer was. Nobody's books are concerned: no lock, no ticket, nothing to find out later.
base::Status Binder::BindBare(const Work& work) {
  const kube::Status bound = api_.Bind({work.pod.ns, work.pod.name, work.pod.uid, {}, work.node, {}, {}});
  return bound ? base::Status() : Failed("bind", bound.error());
}

bool Binder::BoundTo(const std::string& uid, const std::string& node) const {
  return books_.Read([&](const State& state) { return state.IsBoundTo(uid, node); });
}

base::Status Binder::Start(State& state, Work& work) {
  Pending* pending = state.FindPending(work.pod.uid);
  if (pending == nullptr) {
    work.bare = state.TakePassed(work.pod.uid);
    if (work.bare) return {};
    const char* why =
        state.OnlySimulated(work.pod.uid)
            ? " holds no placement: it was asked for with whole nodes, which is taken for a simulation; set "
              "nodeCacheCapable: true for this extender in kube-scheduler's configuration"
            : " holds no placement of this scheduler (it was restarted, or the placement expired); it will be placed "
              "again";
    return base::Fail(base::Concat({"pod ", work.pod.ns, "/", work.pod.name, why}));
  }
  if (pending->stage != Pending::Stage::kPlaced) return base::Fail("another bind call is at work on this pod");
  const bool offered = std::any_of(pending->offered.begin(), pending->offered.end(),
                                   [&](const sched::NodeScore& one) { return one.node == work.node; });
  const NodeBook* node = state.FindNode(work.node);
  const bool elsewhere = offered && pending->node != work.node;
  const bool anew = pending->lapsed && pending->node == work.node;
  if ((elsewhere || anew) && node != nullptr && node->exists) {
    if (!state.MoveTo(work.pod.uid, work.node, time_.Now() / kSecond)) {
      return base::Fail(
          base::Concat({"node ", work.node, " has no room for the pod any more; it will be placed again"}));
    }
    pending = state.FindPending(work.pod.uid);
  }
  std::string why;
  if (pending->node != work.node) {
    why = base::Concat({"the pod was placed on node ", pending->node, " and not on ", work.node});
  } else if (pending->candidate.pod.ns != work.pod.ns || pending->candidate.pod.name != work.pod.name) {
    why = "the pod's uid belongs to another pod";
  } else if (node == nullptr || !node->exists) {
    why = "failed to get node " + work.node;
  }
  if (!why.empty()) {
    state.GiveUp(work.pod.uid);
    return base::Fail(std::move(why));
  }
  state.BindBegins(*pending);
  work.locks = LocksFor(*pending, books_.vendors());
  work.group = pending->candidate.group;
  InFlight& entry = state.NodeAt(work.node).in_flight[work.pod.uid];
  entry = {work.pod.ns,
           work.pod.name,
           ShapeOf(pending->allocation, pending->candidate.pod),
           time_.Now() / kSecond,
           InFlight::Stage::kWaiting,
           !work.locks.own.empty()};
  return {};
}

base::Status Binder::Prepare(State& state, Work& work) {
  const device::UnixSeconds now = time_.Now() / kSecond;
  Pending* pending = state.FindPending(work.pod.uid);
  NodeBook& node = state.NodeAt(work.node);
  const auto entry = node.in_flight.find(work.pod.uid);
  if (pending == nullptr || entry == node.in_flight.end()) return base::Fail("the pod is gone");
  const bool changed = pending->foreign != node.foreign;
  if (changed) asked_again_.fetch_add(1, std::memory_order_relaxed);
  if (!state.StillFits(work.pod.uid, now)) {
    return base::Fail(base::Concat({"node ", work.node, " has changed and has no room for the pod any more"}));
  }
  // The node was taken for grants of the old shape.
  if (changed && ShapeOf(pending->allocation, pending->candidate.pod) != entry->second.shape) {
    return base::Fail(base::Concat({"node ", work.node, " has changed; the pod will be placed again"}));
  }
  Binding& binding = work.binding;
  binding = {work.pod.ns, work.pod.name, work.pod.uid, pending->candidate.version, work.node, {}, {}};
  for (const auto& [key, value] : pending->annotations) {
    // A Binding can not remove a key; the only one to be removed is a list.
    binding.annotations[key] = value.value_or("[]");
  }
  binding.annotations[device::kBindPhase] = device::kPhaseAllocating;
  binding.annotations[device::kBindTime] = std::to_string(now);
  binding.annotations[kBoundBy] = options_.writer;
  binding.labels = LabelsFor(work.node);
  Seal(binding, pending->candidate.pod.annotations);
  // The server takes anything with a Binding, and no later write of a pod that has too much.
  const std::size_t bytes = BytesOfBoth(pending->candidate.pod.annotations, binding.annotations);
  if (bytes > kMostAnnotationBytes) {
    return base::Fail(base::Concat({"the pod's annotations and its grant are ", std::to_string(bytes),
                                    " bytes, more than the API server's ", std::to_string(kMostAnnotationBytes)}));
  }
  return {};
}

// As the pod will look, that carries CARRIED now.
void Binder::Seal(Binding& binding, const device::StringMap& carried) const {
  if (options_.keys == nullptr) return;
  device::StringMap annotations = binding.annotations;
  for (const auto& [key, value] : carried) {
    if (device::IsAllocatedKey(key)) annotations.emplace(key, value);
  }
  const std::string text = device::SealedText(binding.uid, binding.node, annotations);
  binding.annotations[device::kGrantSeal] = options_.keys->Get()->Seal(text);
}

base::Status Binder::Post(Work& work) {
  std::string why = "the pod is gone";
  const BindLease::Posting posting(lease_, work.term, work.paper);
  for (int tries = 0; tries < kMostTries; ++tries) {
    std::optional<kube::Status> bound;
    if (!posting.may()) {
      why = "another scheduler has come to bind pods; this one will be placed again";
      break;
    }
    if (!work.binding.version.empty()) {
      bound = api_.Bind(work.binding);
      if (*bound) return Succeed(work.pod), base::Status();
    }
    // What was to be bound; nobody else takes it away from a bind call.
    const std::optional<Pending> pending = books_.Read([&](const State& state) -> std::optional<Pending> {
      const auto found = state.pendings().find(work.pod.uid);
      return found == state.pendings().end() ? std::nullopt : std::optional<Pending>(found->second);
    });
    if (!pending) break;
    if (bound) {
      if (Silent(bound->error().reason)) return AfterSilence(work, *pending, bound->error());
      why = "bind: " + bound->error().message;
      if (bound->error().reason != kube::Reason::kConflict) break;
    }
    // The pod was changed since we saw it, or is somebody else's now.
    const kube::Result<PodView> pod = api_.GetPod(work.pod.ns, work.pod.name);
    if (!pod) {
      why = "bind: " + pod.error().message;
      break;
    }
    const Fate fate = Examine(*pending, *pod, why);
    if (fate == Fate::kOurs) return FoundBound(work.pod, work.node), base::Status();
    if (fate == Fate::kLost) break;
    const bool revoked = device::TextAt(pod->annotations, kBindRevoked) !=
                         device::TextAt(pending->candidate.pod.annotations, kBindRevoked);
    why = "another scheduler stopped this binding";
    if (revoked) break;
    why = "the pod changes faster than it can be bound";
    work.binding.version = pod->version;
    Seal(work.binding, pod->annotations);
  }
  GiveBack(work.pod, work.node, work.trace);
  return base::Fail(why);
}

base::Status Binder::AfterSilence(Work& work, const Pending& pending, const kube::Error& error) {
  const std::string message = "bind: " + error.message;
  const kube::Result<PodView> pod = Revoke(work.pod);
  if (!pod && pod.error().reason != kube::Reason::kNotFound) {
    work.unknown = true;
    books_.Locked([&](State& state) {
      if (Pending* mine = state.FindPending(work.pod.uid)) mine->stage = Pending::Stage::kUnknown;
    });
    return base::Fail(message + "; whether the pod was bound will be found out");
  }
  std::string why;
  if (pod && Examine(pending, *pod, why) == Fate::kOurs) {
    FoundBound(work.pod, work.node);
    return {};
  }
  GiveBack(work.pod, work.node, work.trace);
  return base::Fail(message);
}

Binder::Counters Binder::counters() const {
  return {bound_.load(), failed_.load(), unknown_.load(), contended_.load(), asked_again_.load()};
}

}  // namespace hami::scheduler
