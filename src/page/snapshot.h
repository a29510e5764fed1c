// SPDX-License-Identifier: Apache-2.0
//
// What people are shown of a cluster, as plain values: nodes with their cards, the pods that hold shares of them, who
// waits and why, quotas, locks. Copied out of the ledger a few nodes at a time, so that decisions never wait for it.
// Nothing here can change the books.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/vendor.h"
#include "sched/decision.h"
#include "sched/ledger.h"

namespace hami::page {

// A MIG instance that a pod was given.
struct Instance {
  std::string profile;
  device::MigPlacement placement;
  std::string pod;   // NAMESPACE/NAME
  std::string uuid;  // empty: not made yet
  bool operator==(const Instance&) const = default;
};

struct Card {
  std::string uuid;
  int index = 0;
  std::string type;
  std::string mode;
  device::MiB memory = 0;
  int cores = 0;
  int count = 0;  // shares that may live on it at once
  int numa = 0;
  bool healthy = false;
  bool cordoned = false;
  bool usable = false;  // healthy, and the books agree with what it is
  device::CardState used;
  std::vector<Instance> instances;
};

// What a pod holds of the card at position CARD of its node; -1: of a card that the node does not register.
struct Share {
  int card = -1;
  device::MiB memory = 0;
  std::int64_t cores = 0;
  int slots = 0;
};

struct Pod {
  std::string ns;
  std::string name;
  std::string uid;
  const char* state = "";  // "bound", "binding" or "placed"
  bool unreadable = false;
  std::vector<Share> shares;
};

// Of hami.io/mutex.lock, as it is written there.
struct Lock {
  std::string since;
  std::string ns;  // empty, as the name: the oldest form, which names no pod
  std::string pod;
};
// Nothing: TEXT is empty.
std::optional<Lock> ReadLock(std::string_view text);

struct Node {
  std::string name;
  bool readable = true;  // false: a pod's grant cannot be read, and nothing is placed here
  std::vector<Card> cards;
  std::vector<Pod> pods;
  std::optional<Lock> lock;
};

struct NodesReason {
  std::string reason;
  std::size_t count = 0;           // nodes that gave it
  std::vector<std::string> nodes;  // their names; fewer than COUNT where there was no room to keep all
};

struct WaitingPod {
  std::string ns;
  std::string name;
  std::string uid;
  device::UnixSeconds since = 0;  // of the first refusal
  device::UnixSeconds last = 0;
  std::uint64_t tries = 0;
  std::vector<NodesReason> reasons;
};

struct Snapshot {
  std::vector<Node> nodes;
  std::vector<sched::QuotaBooks::Line> quotas;
  std::vector<WaitingPod> waiting;
  bool leading = true;   // false: another replica decides, and knows who waits
  bool complete = true;  // all objects have been listed
};

// Appends what LEDGER has of the nodes FROM … TO-1, those that register cards or hold pods.
void CopyNodes(const sched::Ledger& ledger, sched::NodeId from, sched::NodeId to, std::vector<Node>& out);

// FAILURES by reason, the most frequent first. NAMES: whether the nodes' names are kept.
std::vector<NodesReason> GroupReasons(const std::vector<sched::NodeReason>& failures, bool names);

}  // namespace hami::page
