// SPDX-License-Identifier: Apache-2.0
//
// How a bind call gets its node: whether it may have it (node_lock.h), the write that takes it, the questions that
// settle who had it before, and the wait while it is taken.

#include <algorithm>
#include <utility>

#include "base/flags.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "scheduler/binder_work.h"

namespace hami::scheduler {

GateVerdict Binder::Judge(State& state, Work& work, bool caught_up) {
  GateVerdict verdict;
  verdict.kind = GateVerdict::Kind::kRefused;
  NodeBook* node = state.FindNode(work.node);
  verdict.reason = "failed to get node " + work.node;
  if (node == nullptr || !node->exists) return verdict;
  const auto self = node->in_flight.find(work.pod.uid);
  verdict.reason = "the pod is gone";
  if (self == node->in_flight.end()) return verdict;
  work.ticketed = work.paper = self->second.stage != InFlight::Stage::kWaiting;
  if (work.paper && work.trace == Trace::kNone) work.trace = Trace::kWritten;
  if (work.ticketed) return verdict;
  verdict.kind = GateVerdict::Kind::kTaken;
  verdict.reason = "it is not settled yet whether another scheduler binds pods; it will be within seconds";
  if (work.term.mode == BindMode::kNobody) return verdict;
  if (!caught_up && node->caught_up != work.term.number) {
    verdict.kind = GateVerdict::Kind::kCatchUp;
    return verdict;
  }
  verdict.reason = "node " + work.node + " is being changed: node lock contention";
  if (node->patching) return verdict;

  work.version = node->view.version;
  // A lock names its pod and a second: the ticket beside it tells one from that of a successor with the same name.
  const std::string lock(device::TextAt(node->view.annotations, device::kNodeLock));
  work.lock = base::Concat({lock, ";", device::TextAt(node->view.annotations, kBindTicket)});
  const std::string own(work.locks.own.empty() ? "" : device::TextAt(node->view.annotations, work.locks.own));
  const Millis own_age = work.locks.own.empty() ? 0 : node->own_lock.See(own, time_.Steady());
  const auto bound_here = [&](const std::string& uid) { return state.IsBoundTo(uid, work.node); };
  const GateInput input{.node = node->view,
                        .in_flight = node->in_flight,
                        .uid = work.pod.uid,
                        .writer = options_.writer,
                        .takes_lock = work.locks.node,
                        .may_do_without = work.locks.may_do_without,
                        .own_lock = work.locks.own,
                        .own_lock_age = own_age,
                        .lock_age = node->lock.See(lock, time_.Steady()),
                        .lock_orphaned = work.lock == work.orphaned_lock,
                        .alone = work.term.mode == BindMode::kAlone,
                        .digested = node->digested,
                        .now = time_.Now(),
                        .utc_offset_seconds = time_.UtcOffset(),
                        .bound_here = bound_here};
  verdict = JudgeGate(input, options_.lock);
  work.ticketed = verdict.kind == GateVerdict::Kind::kGo && verdict.changes.empty();
  if (work.ticketed) {
    self->second.stage = InFlight::Stage::kTicketed;
  } else {
    node->patching = verdict.kind == GateVerdict::Kind::kGo;
  }
  return verdict;
}

GateVerdict Binder::JudgeAgain(Work& work) {
  work.term = lease_.term();
  const bool caught_up = lease_.CaughtUp(work.term);
  return books_.Locked([&](State& state) { return Judge(state, work, caught_up); });
}

base::Status Binder::TakeNode(Work& work, GateVerdict verdict, const std::function<bool()>& abandoned) {
  const Millis begin = time_.Steady();
  const Millis wait = work.group ? options_.group_wait : options_.other_wait;
  const Waiting waiting(waiting_);
  int writes = 0;
  bool contended = false;
  for (;; verdict = JudgeAgain(work)) {
    if (work.ticketed) return {};
    base::Result<bool> go_on = false;
    switch (verdict.kind) {
      case GateVerdict::Kind::kRefused:
        GoElsewhere(work.node);
        return base::Fail(verdict.reason);
      case GateVerdict::Kind::kGo:
        HAMI_TRY(WriteTicket(work, verdict));
        if (work.ticketed) return {};
        if (++writes >= kMostTries) return base::Fail("node " + work.node + " changes faster than it can be locked");
        continue;
      case GateVerdict::Kind::kAskOwner:
        go_on = OwnerIsGone(work, verdict.owner);
        break;
      case GateVerdict::Kind::kDigest:
        go_on = Digest(work, verdict.ticket, verdict.ticket_text);
        break;
      case GateVerdict::Kind::kCatchUp:
        go_on = CatchUp(work);
        break;
      case GateVerdict::Kind::kTaken:
        break;
    }
    if (!go_on) return tl::unexpected(go_on.error());
    if (*go_on) continue;
    if (!std::exchange(contended, true)) contended_.fetch_add(1, std::memory_order_relaxed);
    if (waiting.count() > options_.most_waiting) {
      GoElsewhere(work.node);
      return base::Fail(
          base::Concat({std::to_string(options_.most_waiting), " bind calls wait for their nodes already; ",
                        verdict.reason.empty() ? "node lock contention" : verdict.reason}));
    }
    if (time_.Steady() - begin >= wait) {
      GoElsewhere(work.node);
      return base::Fail(work.group
                            ? base::Concat({"timed out after ", base::FormatGoDuration(std::chrono::milliseconds(wait)),
                                            " waiting for node ", work.node, " to be unlocked: node lock contention"})
                            : verdict.reason);
    }
    if (abandoned() || time_.Sleep(options_.look_again)) return base::Fail("context cancelled");
  }
}

void Binder::GoElsewhere(const std::string& node) {
  books_.Locked([&](State& state) { state.NodeWasTaken(node, time_.Now() / kSecond); });
}

base::Status Binder::WriteTicket(Work& work, const GateVerdict& verdict) {
  kube::Result<NodeView> written = api_.PatchNode(work.node, work.version, verdict.changes);
  kube::Error error;
  if (!written) {
    error = written.error();
    // Somebody was faster, or the answer was lost: the node itself knows.
    if (error.reason == kube::Reason::kConflict || Silent(error.reason)) written = api_.GetNode(work.node);
  }
  if (written) {
    work.trace = Trace::kWritten;
  } else if (Silent(error.reason)) {
    work.trace = Trace::kUnheard;
  }
  const std::string& ticket = *verdict.changes.front().second;
  bool ours = false;
  books_.Locked([&](State& state) {
    NodeBook& node = state.NodeAt(work.node);
    node.patching = false;
    if (!written) return;
    ours = device::TextAt(written->annotations, kBindTicket) == ticket;
    state.NodeAnswered(*std::move(written));
    if (!ours) return;
    for (const std::string& uid : verdict.named) {
      const auto entry = node.in_flight.find(uid);
      if (entry != node.in_flight.end() && entry->second.stage == InFlight::Stage::kWaiting) {
        entry->second.stage = InFlight::Stage::kTicketed;
      }
    }
  });
  work.ticketed = work.paper = ours;
  if (ours || error.reason == kube::Reason::kConflict) return {};
  return Failed("lock node " + work.node, error);
}

// Past the watches, which have not come as far as the term's begin.
base::Result<bool> Binder::CatchUp(Work& work) {
  kube::Result<NodeView> node = api_.GetNode(work.node);
  if (!node) return Failed("get node " + work.node, node.error());
  const auto pods = api_.PodsOn(work.node);
  if (!pods) return Failed("list the pods of node " + work.node, pods.error());
  books_.Locked([&](State& state) {
    state.NodeAnswered(*std::move(node));
    for (const device::Pod& pod : *pods) state.PodBorrowed(pod, time_.Now() / kSecond);
    state.NodeAt(work.node).caught_up = work.term.number;
  });
  return true;
}

base::Result<bool> Binder::OwnerIsGone(Work& work, const Owner& owner) {
  if (time_.Steady() < work.next_ask) return false;
  work.next_ask = time_.Steady() + options_.ask_again;
  const kube::Result<PodView> pod = api_.GetPod(owner.ns, owner.name);
  if (!pod && pod.error().reason != kube::Reason::kNotFound) return Failed("look for the lock's owner", pod.error());
  // Where a pod runs never changes: bound elsewhere, it will not come here any more.
  const bool elsewhere = pod && !pod->node.empty() && pod->node != work.node;
  if (pod && !pod->terminated && !elsewhere) return false;
  base::LogInfo(base::Concat({"node ", work.node, ": taking over the lock of pod ", owner.ns, "/", owner.name,
                              elsewhere ? ", which runs elsewhere" : ", which is gone"}));
  work.orphaned_lock = work.lock;
  return true;
}

base::Result<bool> Binder::IsSettled(const Owner& owner, const std::string& node, Millis age) {
  if (BoundTo(owner.uid, node)) return true;
  kube::Result<PodView> pod = api_.GetPod(owner.ns, owner.name);
  const auto may_come = [&] {
    return pod && pod->uid == owner.uid && pod->node.empty() && !pod->terminated && !pod->deleting;
  };
  const bool handed_over = books_.Locked([&](State& state) { return OnOurHands(state, owner, node) != nullptr; });
  if (may_come() && !handed_over && age < options_.lock.ticket_patience) return false;
  // Its scheduler is gone or asleep. Should it wake up, its Binding finds the pod changed.
  if (may_come()) {
    pod = Revoke(owner);
    if (pod) AdoptRevoked(owner, node, *pod);
  }
  if (!pod && pod.error().reason != kube::Reason::kNotFound) return Failed("look for a pod in flight", pod.error());
  return true;
}

base::Result<bool> Binder::Digest(Work& work, const Ticket& ticket, const std::string& text) {
  if (time_.Steady() < work.next_ask) return false;
  // By the writer's clock, which may be wrong, or by how long we have known it.
  const Millis met = books_.Locked([&](State& state) {
    NodeBook& node = state.NodeAt(work.node);
    if (std::exchange(node.stranger, text) != text) node.stranger_since = time_.Steady();
    return node.stranger_since;
  });
  const Millis age = std::max(time_.Steady() - met, time_.Now() - ticket.time);
  for (const Owner& owner : ticket.pods) {
    const base::Result<bool> settled = IsSettled(owner, work.node, age);
    if (!settled) return settled;
    if (*settled) continue;
    work.next_ask = time_.Steady() + options_.ask_again / 10;
    return false;
  }
  // No more pods come to the node by that ticket; those that came are read past the watch.
  const auto pods = api_.PodsOn(work.node);
  if (!pods) return Failed("list the pods of node " + work.node, pods.error());
  books_.Locked([&](State& state) {
    for (const device::Pod& pod : *pods) state.PodBorrowed(pod, time_.Now() / kSecond);
    state.NodeAt(work.node).digested = text;
  });
  return true;
}

}  // namespace hami::scheduler
