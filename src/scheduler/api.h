// SPDX-License-Identifier: Apache-2.0
//
// The few calls with which the scheduler changes the cluster, and the slim views that they return. An interface, so
// that tests can lose answers, delay writes and let two schedulers race without a socket; KubeApi is the real one.
// Every call ends in bounded time.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/pod.h"
#include "device/types.h"
#include "device/vendor.h"
#include "kube/error.h"
#include "kube/views.h"

namespace hami::scheduler {

using Millis = std::int64_t;
inline constexpr Millis kSecond = 1000;

inline constexpr const char* kInstanceType = "node.kubernetes.io/instance-type";

struct NodeView {
  std::string name;
  std::string version;            // resourceVersion
  device::StringMap annotations;  // those of the protocol
  device::StringMap allocatable;  // of the vendors' count resources
  device::StringMap capacity;     // of the vendors' resources
  std::string instance_type;
  bool selected = true;  // its labels are those that we register

  device::NodeFacts facts() const { return {name, annotations, capacity, instance_type}; }
};

struct PodView {
  std::string uid;
  std::string version;
  std::string node;         // empty: not bound
  bool terminated = false;  // it ended
  bool deleting = false;    // and can not be bound any more
  device::StringMap annotations;
};

using kube::Binding;

struct Owner {
  std::string ns;
  std::string name;
  std::string uid;  // empty: a lock's, which names none
  bool operator==(const Owner&) const = default;
};

struct LeaseName {
  std::string ns;
  std::string name;
};

// The lease by which schedulers agree who binds (bind_lease.h).
struct LeaseView {
  std::string uid;
  std::string version;            // resourceVersion; empty: it does not exist
  std::string holder;             // empty: nobody
  std::string members;            // as FormatMembers writes them
  bool unclean = false;           // a dead holder's Bindings may still arrive
  std::uint64_t transitions = 0;  // how often the holder has changed
};

// How far the histories of the two have come. Versions of the API server, as numbers.
struct Versions {
  std::uint64_t pods = 0;
  std::uint64_t nodes = 0;
};

// Nothing: remove the key.
using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

class Api {
 public:
  virtual ~Api() = default;
  virtual kube::Result<NodeView> GetNode(std::string_view node) = 0;
  // Changes annotations. VERSION, if not empty, must be the node's.
  virtual kube::Result<NodeView> PatchNode(std::string_view node, std::string_view version, const Changes& changes) = 0;
  virtual kube::Result<PodView> GetPod(std::string_view ns, std::string_view name) = 0;
  // Changes annotations of the pod with this UID.
  virtual kube::Result<PodView> PatchPod(std::string_view ns, std::string_view name, std::string_view uid,
                                         const Changes& changes) = 0;
  // What the server knows now of the pods bound to NODE; no cache in between.
  virtual kube::Result<std::vector<device::Pod>> PodsOn(std::string_view node) = 0;
  virtual kube::Status Bind(const Binding& binding) = 0;
  // Has the pod with this uid go, if its disruption budget allows that (kTooManyRequests: not now). ONLY_TRY: whether.
  virtual kube::Status Evict(const Owner& pod, bool only_try) = 0;
  // Sees to it that a pod that turned out to be bound has the Binding's labels, which some servers leave behind.
  virtual void BringLabels(const Binding& binding) = 0;
  // What has no node yet and asks for something of ours; no cache in between.
  virtual kube::Result<std::vector<Owner>> Unbound() = 0;
  // As of now or later; no cache in between.
  virtual kube::Result<Versions> Heads() = 0;
  virtual kube::Result<LeaseView> GetLease() = 0;
  // Creates it where LEASE has no version; else changes the lease of that version. What was written, with its version.
  virtual kube::Result<LeaseView> WriteLease(const LeaseView& lease) = 0;
};

// Time as an argument. Wall-clock time, since it is written into annotations and compared with others'.
class Time {
 public:
  virtual ~Time() = default;
  virtual Millis Now() = 0;
  // Of a clock that nobody sets: for spans.
  virtual Millis Steady() = 0;
  // Seconds east of UTC: what HAMi's programs write is in local time.
  virtual int UtcOffset() = 0;
  // True: stop waiting, nobody wants the answer any more.
  virtual bool Sleep(Millis span) = 0;
};

}  // namespace hami::scheduler
