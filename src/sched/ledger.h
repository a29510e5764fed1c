// SPDX-License-Identifier: Apache-2.0
//
// Who holds what in the whole cluster. Fed by events (a node's cards, a pod, a quota) in any order; each event changes
// the books of at most two nodes (where the pod was and where it is), whatever the size of the cluster, and counters
// say so. Whatever order the events came in, the books equal those rebuilt from the last state of every object.
//
// A pod may be charged before the API server knows (Assume); such a charge is confirmed by the binding, forgotten on
// failure, or expires, unless a bind call holds it. One thread at a time.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/pod.h"
#include "device/vendor.h"
#include "sched/claim.h"
#include "sched/node.h"
#include "sched/node_names.h"
#include "sched/quota.h"

namespace hami::sched {

using PodId = std::uint32_t;

struct PodRecord {
  std::string uid;
  std::string ns;
  std::string name;
  device::PodTraits traits;
  std::int32_t priority = 0;
  NodeId node = kNoNode;
  std::vector<Role> roles;
  device::Allocation allocation;
  std::vector<ShareLimit> limits;  // of a claim that nothing proves
  bool believed = false;           // that is what it is
  device::Marks marks = 0;         // of the one vendor that has some
  bool unreadable = false;
  bool init_done = false;
  bool bound = false;
  bool own = false;                  // decided here, and not yet seen bound
  bool answered = false;             // its plugin has served or refused it
  bool held = false;                 // a bind call is at work on it: the charge does not expire
  device::UnixSeconds assigned = 0;  // when another scheduler placed it, as the object says
  device::UnixSeconds deadline = 0;  // of a charge that is neither bound nor held
  NodeCharge charge;                 // what the above amounts to
  std::uint32_t position = 0;        // in the node's list of pods
};

struct LedgerCounters {
  std::uint64_t events = 0;
  std::uint64_t nodes_touched = 0;
  std::uint64_t pods_charged = 0;  // pods added to or taken from a node's sums, rebuilds included
};

class Ledger {
 public:
  // ASSUME_SECONDS: how long a pod that was placed and is not bound keeps its charge.
  explicit Ledger(const device::Vendors& vendors, device::UnixSeconds assume_seconds = 300);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Nodes. An empty list of cards drops the vendor from the node.
  void SetCards(std::string_view node, int vendor, const device::NodeCards& cards);
  void RemoveNode(std::string_view node);

  // Pods as the API server tells. A terminated pod is a removed one. What was charged for a pod on the node where it
  // runs stays until it ends: later annotations change that only if they are proven, or if they say more where nothing
  // was. Whether it is charged otherwise than before, or elsewhere.
  bool UpsertPod(const device::Pod& pod, Trust trust = Trust::kProven);
  void RemovePod(std::string_view uid);

  // What is not in these books changed on NODE (its CPU and memory): verdicts about it are to be asked for anew.
  void HostChanged(std::string_view node);

  QuotaBooks& quotas() { return quotas_; }
  const QuotaBooks& quotas() const { return quotas_; }
  const device::Vendors& vendors() const { return vendors_; }

  // A decision is charged at once, until DEADLINE.
  void Assume(const device::Pod& pod, std::string_view node, const device::Allocation& allocation,
              device::UnixSeconds deadline);
  // From now on the charge of a pod that was assumed does not expire: its Binding may be on its way, for as long as
  // that takes and whatever becomes of the clock.
  void Hold(std::string_view uid);
  // The pod was bound: the charge stays. False when there is none (it expired, or was never there).
  bool Confirm(std::string_view uid);
  void NoteAnswered(std::string_view uid);
  // Takes back the charge of a pod that is not bound.
  bool Forget(std::string_view uid);
  // Takes back every charge whose deadline is at or before NOW; returns the pods' UIDs. Brings deadlines that lie
  // beyond ASSUME_SECONDS from NOW down to that.
  std::vector<std::string> ExpireBefore(device::UnixSeconds now);

  // Reading.
  NodeId Find(std::string_view name) const { return names_.Find(name); }
  std::vector<NodeId> FindAll(std::span<const std::string_view> names) const { return names_.FindAll(names); }
  std::vector<NodeId> Guess(std::span<const std::string_view> names) const { return names_.Guess(names); }
  const Node& node(NodeId id) const { return *nodes_[id]; }
  bool exists(NodeId id) const { return nodes_[id] != nullptr; }
  NodeId node_ids() const { return static_cast<NodeId>(nodes_.size()); }  // ids are below this
  std::size_t node_count() const { return names_.size(); }
  std::size_t pod_count() const { return by_uid_.size(); }
  const PodRecord* FindPod(std::string_view uid) const;
  const PodRecord& pod(PodId id) const { return *pods_[id]; }  // of a node's list of pods
  void ForEachNode(const std::function<void(const Node&)>& visit) const;
  void ForEachPod(const std::function<void(const PodRecord&)>& visit) const;
  const LedgerCounters& counters() const { return counters_; }
  // The most that any card or MIG profile seen so far has, and whether a card was in MIG mode: bounds for the quota's
  // short cut.
  device::MiB largest_card() const { return largest_card_; }
  std::size_t most_cards() const { return most_cards_; }  // that any node had
  int largest_profile_cores() const { return largest_profile_cores_; }
  bool seen_mig() const { return seen_mig_; }

  // The ids of changed nodes, in order, from number CURSOR on. False when that far back is no longer kept.
  bool ChangesSince(std::uint64_t cursor, std::vector<NodeId>& out) const;
  std::uint64_t change_count() const { return change_base_ + changes_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename T>
  using ByText = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  bool UpsertSettled(const PodRecord& known, const device::Pod& pod, Trust trust);
  bool Replace(PodRecord record, const std::string& at);
  void Refresh(PodRecord& same, PodRecord record);
  void Charge(PodRecord& record);
  Node& NodeAt(std::string_view name, NodeId& id);
  void Touch(NodeId id);
  void Release(NodeId id);  // frees a node that holds nothing
  PodRecord* Mutable(std::string_view uid);
  void Insert(PodRecord record);
  void Erase(PodId id);
  void Attach(PodId id);
  void Detach(PodId id);
  void SetDeadline(PodRecord& record, device::UnixSeconds deadline);
  void ClearDeadline(const PodRecord& record);
  device::Marks MarksOf(const device::Pod& pod, const device::Allocation& allocation) const;
  void ChargeQuota(const PodRecord& record, bool refund);

  const device::Vendors& vendors_;
  device::UnixSeconds assume_seconds_;
  QuotaBooks quotas_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<NodeId> free_nodes_;
  NodeNames names_;
  std::vector<std::unique_ptr<PodRecord>> pods_;
  std::vector<PodId> free_pods_;
  ByText<PodId> by_uid_;
  std::set<std::pair<device::UnixSeconds, std::string>> deadlines_;
  // Pods that expired before the time which their object still tells, and that: they are not charged by it once more.
  ByText<device::UnixSeconds> ahead_;
  std::vector<NodeId> changes_;
  std::uint64_t change_base_ = 0;
  std::uint64_t last_version_ = 0;
  LedgerCounters counters_;
  device::MiB largest_card_ = 0;
  std::size_t most_cards_ = 0;
  int largest_profile_cores_ = 0;
  bool seen_mig_ = false;
};

// What ALLOCATION amounts to on its node.
NodeCharge ChargeOf(const device::Allocation& allocation, const std::vector<Role>& roles, bool init_done);

}  // namespace hami::sched
