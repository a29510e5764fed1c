// SPDX-License-Identifier: Apache-2.0

#include "scheduler/binder.h"

#include <algorithm>
#include <utility>

#include "base/flags.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"

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

// The locks of the vendors of which an app container holds a share: those by which their plugins recognise the pod.
struct Locks {
  bool node = false;
  bool may_do_without = true;
  std::string_view own;
};
Locks LocksFor(const Pending& pending, const device::Vendors& vendors) {
  const std::size_t first_app = pending.candidate.pod.init_containers.size();
  Locks locks;
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

// The server may have done it all the same.
bool Silent(kube::Reason reason) {
  switch (reason) {
    case kube::Reason::kTransport:
    case kube::Reason::kTimeout:
    case kube::Reason::kCancelled:
    case kube::Reason::kBadAnswer:
    case kube::Reason::kServerError:
      return true;
    default:
      return false;
  }
}

tl::unexpected<base::Error> Failed(std::string_view doing, const kube::Error& error) {
  return base::Fail(base::Concat({doing, ": ", error.message}));
}

}  // namespace

// A bind call that has not got its node at once.
class Binder::Waiting {
 public:
  explicit Waiting(std::atomic<int>& all) : all_(all), count_(all.fetch_add(1) + 1) {}
  ~Waiting() { all_.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  int count() const { return count_; }  // of them, when this came

 private:
  std::atomic<int>& all_;
  const int count_;
};

struct Binder::Work {
  Owner pod;
  std::string node;
  bool bare = false;  // it asked for nothing
  Locks locks;
  bool group = false;
  BindTerm term;
  bool ticketed = false;  // the node is ours
  bool paper = false;     // and says so
  Trace trace = Trace::kNone;
  bool unknown = false;       // whether it was bound will be found out
  std::string version;        // of the node, that the verdict was based on
  std::string lock;           // the lock that stands there, and the ticket
  std::string orphaned_lock;  // one whose owner will not come
  Millis next_ask = 0;
  Binding binding;
};

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
  if (offered && pending->node != work.node && node != nullptr && node->exists) {
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
      return base::Fail(
          base::Concat({std::to_string(options_.most_waiting), " bind calls wait for their nodes already; ",
                        verdict.reason.empty() ? "node lock contention" : verdict.reason}));
    }
    if (time_.Steady() - begin >= wait) {
      return base::Fail(work.group
                            ? base::Concat({"timed out after ", base::FormatGoDuration(std::chrono::milliseconds(wait)),
                                            " waiting for node ", work.node, " to be unlocked: node lock contention"})
                            : verdict.reason);
    }
    if (abandoned() || time_.Sleep(options_.look_again)) return base::Fail("context cancelled");
  }
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
