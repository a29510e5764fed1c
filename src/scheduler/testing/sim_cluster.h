// SPDX-License-Identifier: Apache-2.0
//
// An API server for tests, as the scheduler's Api sees one: versions, preconditions, a history to watch, and virtual
// time. Refuses what the real one refuses. Keeps its own account of what every card holds, taken from what was bound
// and from nothing else. Not part of any program.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "device/register_codec.h"
#include "sched/testing/samples.h"
#include "scheduler/api.h"
#include "scheduler/books.h"
#include "scheduler/in_flight.h"
#include "scheduler/node_lock.h"
#include "scheduler/registration.h"

namespace hami::scheduler::testing {

// What happens to a call on its way.
enum class Fault {
  kNone,
  kRefusedBefore,  // the server never saw it
  kAnswerLost,     // done, and nobody hears of it
  kDelayed,        // times out, and is done later
  kServerError,    // 500 without doing anything
  kDenied,         // 403, by a policy of the cluster
  kNotSent,        // our own rate limit leaves no time
};

struct SimPod {
  device::Pod pod;
  std::string version;
  bool deleting = false;
  std::uint64_t refusal = 0;  // as in PodObject
};

struct SimEvent {
  std::uint64_t revision = 0;
  bool node = false;
  bool deleted = false;
  std::string key;  // the pod's uid, or the node's name
  SimPod pod;
  NodeView view;
};

class SimCluster final : public Time {
 public:
  // Time.
  Millis Now() override { return now + clock_set; }
  Millis Steady() override { return now; }
  int UtcOffset() override { return 3600; }
  bool Sleep(Millis span) override {
    const Millis wake = now + span;
    if (yield) yield();
    now = std::max(now, wake);
    return false;
  }

  void AddNode(const std::string& name, const device::NodeCards& cards, bool concurrent) {
    NodeView& view = nodes[name];
    view.name = name;
    view.annotations["hami.io/node-nvidia-register"] = device::EncodeRegisterJson(cards.devices);
    if (concurrent) {
      view.annotations[kConcurrentAllocate] = "1";
      view.annotations[device::kPluginAlive] =
          device::FormatAlive(now / kSecond, view.annotations["hami.io/node-nvidia-register"]);
    }
    view.allocatable["nvidia.com/gpu"] = "10";
    for (const device::Device& card : cards.devices) capacity[card.uuid] = card;
    NodeChanged(view);
  }

  void AddPod(const device::Pod& pod) {
    SimPod& stored = pods[Key(pod.ns, pod.name)];
    stored = {pod, {}, false, 0};
    PodChanged(stored);
  }
  SimPod* FindPod(const std::string& ns, const std::string& name) {
    const auto found = pods.find(Key(ns, name));
    return found == pods.end() ? nullptr : &found->second;
  }
  void RemovePod(const std::string& ns, const std::string& name) {
    const auto found = pods.find(Key(ns, name));
    if (found == pods.end()) return;
    SimEvent event;
    event.deleted = true;
    event.key = found->second.pod.uid;
    pods.erase(found);
    event.revision = ++revision;
    history.push_back(std::move(event));
  }
  void PodChanged(SimPod& pod) {
    pod.version = std::to_string(++revision);
    SimEvent event;
    event.revision = revision;
    event.key = pod.pod.uid;
    event.pod = pod;
    history.push_back(std::move(event));
  }
  void NodeChanged(NodeView& view) {
    view.version = std::to_string(++revision);
    SimEvent event;
    event.revision = revision;
    event.node = true;
    event.key = view.name;
    event.view = view;
    history.push_back(std::move(event));
  }

  // The server's side of the calls.
  kube::Result<NodeView> GetNode(const std::string& name) const {
    const auto found = nodes.find(name);
    if (found == nodes.end()) return kube::Fail(kube::Reason::kNotFound, "node not found");
    return found->second;
  }
  kube::Result<NodeView> PatchNode(const std::string& name, const std::string& version, const Changes& changes) {
    const auto found = nodes.find(name);
    if (found == nodes.end()) return kube::Fail(kube::Reason::kNotFound, "node not found");
    if (!version.empty() && version != found->second.version) return kube::Fail(kube::Reason::kConflict, "changed");
    Apply(changes, found->second.annotations);
    NodeChanged(found->second);
    return found->second;
  }
  kube::Result<PodView> GetPod(const std::string& ns, const std::string& name) const {
    const auto found = pods.find(Key(ns, name));
    if (found == pods.end()) return kube::Fail(kube::Reason::kNotFound, "pod not found");
    return ViewOf(found->second);
  }
  kube::Result<PodView> PatchPod(const std::string& ns, const std::string& name, const std::string& uid,
                                 const Changes& changes) {
    SimPod* pod = FindPod(ns, name);
    if (pod == nullptr) return kube::Fail(kube::Reason::kNotFound, "pod not found");
    if (pod->pod.uid != uid) return kube::Fail(kube::Reason::kConflict, "uid");
    Apply(changes, pod->pod.annotations);
    PodChanged(*pod);
    return ViewOf(*pod);
  }
  kube::Result<std::vector<device::Pod>> PodsOn(const std::string& node) const {
    std::vector<device::Pod> found;
    for (const auto& [key, pod] : pods) {
      if (pod.pod.node_name == node) found.push_back(pod.pod);
    }
    return found;
  }
  kube::Result<std::vector<Owner>> Unbound() const {
    std::vector<Owner> found;
    for (const auto& [key, pod] : pods) {
      if (pod.pod.node_name.empty() && !pod.pod.terminated) found.push_back({pod.pod.ns, pod.pod.name, pod.pod.uid});
    }
    return found;
  }
  kube::Result<LeaseView> GetLease() const {
    if (lease_forbidden) return kube::Fail(kube::Reason::kForbidden, "forbidden");
    if (lease.version.empty()) return kube::Fail(kube::Reason::kNotFound, "lease not found");
    return lease;
  }
  kube::Result<LeaseView> WriteLease(const LeaseView& next) {
    if (lease_forbidden) return kube::Fail(kube::Reason::kForbidden, "forbidden");
    if (next.version.empty() && !lease.version.empty()) return kube::Fail(kube::Reason::kAlreadyExists, "exists");
    if (next.version != lease.version) return kube::Fail(kube::Reason::kConflict, "changed");
    lease = next;
    lease.uid = "lease";
    lease.version = std::to_string(++revision);
    return lease;
  }
  kube::Status Bind(const Binding& binding) {
    SimPod* pod = FindPod(binding.ns, binding.name);
    if (pod == nullptr) return kube::Fail(kube::Reason::kNotFound, "pod not found");
    if (pod->pod.uid != binding.uid) return kube::Fail(kube::Reason::kConflict, "uid");
    if (!binding.version.empty() && pod->version != binding.version) return kube::Fail(kube::Reason::kConflict, "rv");
    if (pod->deleting || pod->pod.terminated) return kube::Fail(kube::Reason::kConflict, "being deleted");
    if (!pod->pod.node_name.empty()) return kube::Fail(kube::Reason::kConflict, "already assigned");
    pod->pod.node_name = binding.node;
    for (const auto& [key, value] : binding.annotations) pod->pod.annotations[key] = value;
    bound_with[pod->pod.uid] = pod->pod.annotations;
    PodChanged(*pod);
    ++bindings;
    CheckNode(binding.node, *pod);
    return {};
  }

  // A pod of a disruption budget stays; another goes at once.
  kube::Status Evict(const Owner& owner, bool only_try) {
    const SimPod* pod = FindPod(owner.ns, owner.name);
    if (pod == nullptr) return kube::Fail(kube::Reason::kNotFound, "pod not found");
    if (pod->pod.uid != owner.uid) return kube::Fail(kube::Reason::kConflict, "uid");
    if (kept.count(owner.uid) > 0) return kube::Fail(kube::Reason::kTooManyRequests, "disruption budget");
    if (!only_try) RemovePod(owner.ns, owner.name);
    return {};
  }

  // What the pods bound to NODE hold of its cards, against what the cards have; and who waits for the plugin.
  void CheckNode(const std::string& node, const SimPod& newest) {
    std::map<std::string, device::CardState> used;
    for (const auto& [key, pod] : pods) {
      if (pod.pod.node_name != node || pod.pod.terminated) continue;
      for (const device::ContainerGrant& container : HeldBy(pod.pod)) {
        for (const device::Share& share : container) {
          device::CardState& card = used[share.uuid];
          card.memory += share.memory;
          card.cores += share.cores;
          card.slots += 1;
        }
      }
      if (claims_hold && pod.pod.uid != newest.pod.uid) CheckTogether(node, newest.pod, pod.pod);
    }
    for (const auto& [uuid, card] : used) {
      const device::Device& device = capacity[uuid];
      if (card.memory > device.memory || card.cores > device.cores || card.slots > device.count) {
        violations.push_back("card " + uuid + " is given twice by pod " + newest.pod.uid);
      }
    }
  }

  // By its Binding, whatever is written on it since; of a pod that came without one, by what it says, if that counts.
  device::PodGrant HeldBy(const device::Pod& pod) const {
    const auto bound = bound_with.find(pod.uid);
    if (bound == bound_with.end()) return claims_hold ? GrantOf(pod) : device::PodGrant{};
    device::Pod as_bound;
    as_bound.annotations = bound->second;
    return GrantOf(as_bound);
  }

  LeaseView lease;
  bool lease_forbidden = false;
  bool claims_hold = true;                              // false: tenants write on pods
  std::map<std::string, device::StringMap> bound_with;  // how each pod looked with its Binding, by uid
  std::map<std::string, NodeView> nodes;
  std::map<std::string, SimPod> pods;
  std::vector<SimEvent> history;
  std::map<std::string, device::Device> capacity;
  std::set<std::string> kept;  // uids of pods that no eviction may end
  std::vector<std::string> violations;
  std::uint64_t revision = 0;
  std::uint64_t bindings = 0;
  Millis now = 1'700'000'000'000;
  Millis clock_set = 0;  // by how much the wall clock was set meanwhile
  Millis lock_timeout = 300'000;
  std::function<void()> yield;  // others act now

  static std::string Key(const std::string& ns, const std::string& name) { return ns + "/" + name; }
  static device::PodGrant GrantOf(const device::Pod& pod) {
    const std::string* text = device::Find(pod.annotations, "hami.io/vgpu-devices-allocated");
    auto grant = device::DecodeGrant(text == nullptr ? "" : *text);
    return grant ? *grant : device::PodGrant{};
  }
  static PodView ViewOf(const SimPod& pod) {
    return {pod.pod.uid, pod.version, pod.pod.node_name, pod.pod.terminated, pod.deleting, pod.pod.annotations};
  }
  static bool Allocating(const device::Pod& pod) {
    const std::string* phase = device::Find(pod.annotations, device::kBindPhase);
    return !pod.node_name.empty() && !pod.terminated && phase != nullptr && *phase == device::kPhaseAllocating;
  }

 private:
  static void Apply(const Changes& changes, device::StringMap& annotations) {
    for (const auto& [key, value] : changes) {
      if (value) {
        annotations[key] = *value;
      } else {
        annotations.erase(key);
      }
    }
  }

  // The plugin must be able to tell the two apart, or need not.
  void CheckTogether(const std::string& node, const device::Pod& a, const device::Pod& b) {
    if (!Allocating(b)) return;
    const Millis since = std::stoll(b.annotations.find(device::kBindTime)->second) * 1000;
    if (now - since > lock_timeout - 60'000) return;
    const bool concurrent = nodes[node].annotations.count(kConcurrentAllocate) > 0;
    const auto shape = [](const device::Pod& pod) { return ShapeOf({{{0, GrantOf(pod)}}, {}}, pod); };
    if (concurrent && MayBeTogether(shape(a), shape(b))) return;
    violations.push_back("pods " + a.uid + " and " + b.uid + " wait for the plugin of " + node + " together");
  }
};

// One scheduler's way to the server, with FAULT deciding what happens to each call ("BIND", "PATCH node", …).
class SimApi final : public Api {
 public:
  explicit SimApi(SimCluster& cluster) : cluster_(cluster) {}

  std::function<Fault(const std::string& call)> fault;
  std::function<void(std::function<void()> write)> delay;  // keeps a write for later
  std::map<std::string, int> calls;
  std::vector<Binding> labelled;  // what was to be, beside Bind

  kube::Result<NodeView> GetNode(std::string_view node) override {
    return Do<kube::Result<NodeView>>("GET node",
                                      [&cluster = cluster_, n = std::string(node)] { return cluster.GetNode(n); });
  }
  kube::Result<NodeView> PatchNode(std::string_view node, std::string_view version, const Changes& changes) override {
    return Do<kube::Result<NodeView>>("PATCH node",
                                      [&cluster = cluster_, n = std::string(node), v = std::string(version), changes] {
                                        return cluster.PatchNode(n, v, changes);
                                      });
  }
  kube::Result<PodView> GetPod(std::string_view ns, std::string_view name) override {
    return Do<kube::Result<PodView>>(
        "GET pod", [&cluster = cluster_, a = std::string(ns), b = std::string(name)] { return cluster.GetPod(a, b); });
  }
  kube::Result<PodView> PatchPod(std::string_view ns, std::string_view name, std::string_view uid,
                                 const Changes& changes) override {
    return Do<kube::Result<PodView>>(
        "PATCH pod", [&cluster = cluster_, a = std::string(ns), b = std::string(name), u = std::string(uid), changes] {
          return cluster.PatchPod(a, b, u, changes);
        });
  }
  kube::Result<std::vector<device::Pod>> PodsOn(std::string_view node) override {
    return Do<kube::Result<std::vector<device::Pod>>>(
        "LIST pods", [&cluster = cluster_, n = std::string(node)] { return cluster.PodsOn(n); });
  }
  kube::Status Bind(const Binding& binding) override {
    return Do<kube::Status>("BIND", [&cluster = cluster_, binding] { return cluster.Bind(binding); });
  }
  kube::Status Evict(const Owner& pod, bool only_try) override {
    return Do<kube::Status>(only_try ? "TRY eviction" : "EVICT",
                            [&cluster = cluster_, pod, only_try] { return cluster.Evict(pod, only_try); });
  }
  void BringLabels(const Binding& binding) override { labelled.push_back(binding); }
  kube::Result<std::vector<Owner>> Unbound() override {
    return Do<kube::Result<std::vector<Owner>>>("LIST unbound", [&cluster = cluster_] { return cluster.Unbound(); });
  }
  kube::Result<Versions> Heads() override {
    return Do<kube::Result<Versions>>("LIST heads", [&cluster = cluster_] {
      return kube::Result<Versions>(Versions{cluster.revision, cluster.revision});
    });
  }
  kube::Result<LeaseView> GetLease() override {
    return Do<kube::Result<LeaseView>>("GET lease", [&cluster = cluster_] { return cluster.GetLease(); });
  }
  kube::Result<LeaseView> WriteLease(const LeaseView& lease) override {
    return Do<kube::Result<LeaseView>>("WRITE lease",
                                       [&cluster = cluster_, lease] { return cluster.WriteLease(lease); });
  }

 private:
  template <typename R, typename F>
  R Do(const std::string& call, F server) {
    ++calls[call];
    if (cluster_.yield) cluster_.yield();
    const Fault what = fault ? fault(call) : Fault::kNone;
    if (what == Fault::kRefusedBefore) return kube::Fail(kube::Reason::kTransport, "connection refused");
    if (what == Fault::kNotSent) return kube::Fail(kube::Reason::kNotSent, "not sent");
    if (what == Fault::kServerError) return kube::Fail(kube::Reason::kServerError, "internal error");
    if (what == Fault::kDenied) return kube::Fail(kube::Reason::kForbidden, "denied");
    if (what == Fault::kDelayed) {
      if (delay) delay([server] { (void)server(); });
      return kube::Fail(kube::Reason::kTimeout, "timed out");
    }
    R answer = server();
    if (cluster_.yield) cluster_.yield();
    if (what == Fault::kAnswerLost) return kube::Fail(kube::Reason::kTransport, "connection reset");
    return answer;
  }

  SimCluster& cluster_;
};

// A reflector's contract without its threads: what happened comes one by one, or all at once by a list.
class SimWatch {
 public:
  SimWatch(SimCluster& cluster, Books& books, Registration& registration)
      : cluster_(cluster), books_(books), registration_(registration) {
    Relist();
  }

  bool Step() {
    if (cursor_ >= cluster_.history.size()) return false;
    const SimEvent& event = cluster_.history[cursor_++];
    reached_ = event.revision;
    if (event.node) {
      SeeNode(event.view);
    } else if (event.deleted) {
      if (known_.erase(event.key) > 0) books_.Locked([&](State& state) { state.PodGone(event.key); });
    } else {
      SeePod(event.pod);
    }
    return true;
  }
  void Drain() {
    while (Step()) {
    }
  }
  // The watch was lost: what is there now, and what is not there any more.
  void Relist() {
    std::set<std::string> there;
    for (const auto& [name, view] : cluster_.nodes) SeeNode(view);
    for (const auto& [key, pod] : cluster_.pods) {
      there.insert(pod.pod.uid);
      SeePod(pod);
    }
    std::vector<std::string> gone;
    for (const auto& [uid, version] : known_) {
      if (there.count(uid) == 0) gone.push_back(uid);
    }
    for (const std::string& uid : gone) {
      known_.erase(uid);
      books_.Locked([&](State& state) { state.PodGone(uid); });
    }
    cursor_ = cluster_.history.size();
    reached_ = cluster_.revision;
  }
  Versions Reached() const { return {reached_, reached_}; }

 private:
  void SeePod(const SimPod& pod) {
    std::uint64_t& version = known_[pod.pod.uid];
    const std::uint64_t now = std::stoull(pod.version);
    if (now <= version) return;
    version = now;
    // As the selection of living pods: one that ended is told as deleted.
    books_.Locked([&](State& state) {
      if (pod.pod.terminated) {
        state.PodGone(pod.pod.uid);
      } else {
        state.Refused({.pod = pod.pod, .version = pod.version, .refusal = pod.refusal}, cluster_.now / 1000);
        state.PodSeen(pod.pod, cluster_.now / 1000);
      }
    });
  }
  void SeeNode(const NodeView& view) {
    books_.Locked([&](State& state) {
      if (state.NodeSeen(view)) {
        registration_.Look(state, state.NodeAt(view.name), {cluster_.now / 1000, cluster_.UtcOffset()});
      }
    });
  }

  SimCluster& cluster_;
  Books& books_;
  Registration& registration_;
  std::size_t cursor_ = 0;
  std::uint64_t reached_ = 0;
  std::map<std::string, std::uint64_t> known_;
};

}  // namespace hami::scheduler::testing
