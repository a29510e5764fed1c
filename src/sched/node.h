// SPDX-License-Identifier: Apache-2.0
//
// One node's books: its cards, what is in use on each, and the pods that use it. Usage is a sum over the pods: charging
// and refunding the same pod leaves the node as it was, and the ledger rebuilds a node from its pods when its cards
// change. A node whose books can not be trusted says so instead of guessing.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/vendor.h"
#include "sched/accounting.h"

namespace hami::sched {

// What one pod does to the card of one UUID.
struct PodCharge {
  int vendor = 0;
  std::string uuid;
  device::MiB memory = 0;
  std::int64_t cores = 0;
  int slots = 0;
  std::int64_t percent = 0;  // of cores, for the quota
  bool operator==(const PodCharge&) const = default;
};

// What one pod does to its node.
struct NodeCharge {
  std::vector<PodCharge> cards;
  // Shares in the order of the grant, one MIG reservation each at most: what is checked against the cards' modes.
  std::vector<std::string> shares;
  std::vector<device::MigReservation> reservations;
  device::Marks marks = 0;
  bool unreadable = false;  // the pod holds something here, and nobody can tell what
  bool operator==(const NodeCharge&) const = default;
};

// COUNT shares of a pod with MARKS more on a card.
void AddMarks(device::CardState& state, device::Marks marks, int count);

class Node {
 public:
  Node(std::string name, std::size_t vendors) : name_(std::move(name)), by_vendor_(vendors) {}

  const std::string& name() const { return name_; }
  const std::vector<device::Device>& devices() const { return devices_; }
  const std::vector<device::CardState>& used() const { return used_; }
  const std::vector<device::MigInstance>& instances() const { return instances_; }
  const std::vector<std::int32_t>& pair_scores() const { return pair_scores_; }
  // Which vendor registered the card.
  int vendor_of(std::size_t card) const;
  // Its place, or -1.
  int FindCard(std::string_view uuid) const;
  std::string_view lower_type(std::size_t card) const { return lower_types_[card]; }

  bool registered() const { return !devices_.empty(); }
  bool readable() const { return unreadable_ == 0; }
  // Healthy, and no pod's records contradict the card's mode.
  bool usable(std::size_t card) const {
    return devices_[card].healthy && fences_[card] == 0 && (mig_fences_ == 0 || !devices_[card].IsMig());
  }
  // Whether VENDOR's requests may look at the card: its type contains the vendor's key, whatever the case.
  bool belongs(std::size_t card, int vendor) const {
    return (owners_[card] >> static_cast<unsigned>(vendor) & 1U) != 0;
  }
  // 10 × (slots + cores + memory in use, each as a part of the node's); 0 where the node has none of one.
  float base_score() const { return base_score_; }

  // Replaces VENDOR's cards; true when something changed. Usage starts from nothing: the caller charges the pods again.
  bool SetCards(int vendor, const device::NodeCards& cards, const device::Vendors& vendors);
  void Apply(const NodeCharge& charge) { Change(charge, 1); }
  void Revert(const NodeCharge& charge) { Change(charge, -1); }

  // Pods on this node, by the ledger's numbering; the ledger's alone to change.
  std::vector<std::uint32_t> pods;
  std::uint64_t version = 0;  // raised with every change

 private:
  void Change(const NodeCharge& charge, int sign);
  void ChangeMig(const NodeCharge& charge, int sign);
  void ChangeInstance(const device::MigInstance& instance, int sign);
  void Score();

  std::string name_;
  std::vector<device::NodeCards> by_vendor_;
  std::vector<device::Device> devices_;  // by vendor, each in the order of registration
  std::vector<std::string> lower_types_;
  std::vector<std::uint64_t> owners_;
  std::vector<std::int32_t> pair_scores_;
  std::vector<device::CardState> used_;
  std::vector<int> fences_;
  std::vector<device::MigInstance> instances_;
  int mig_fences_ = 0;
  int unreadable_ = 0;
  float base_score_ = 0;
};

}  // namespace hami::sched
