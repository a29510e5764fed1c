// SPDX-License-Identifier: Apache-2.0
//
// Whose allocation is this? The kubelet names slots and never a pod, so the pod is found among those that are on their
// way to this node. Pure: the slots, the pods, the records and the node lock go in, a container and its grant come out,
// or the sentence that says why there is none. A record always wins over the annotation of its container.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plugin/origin.h"
#include "plugin/pod_view.h"
#include "plugin/record.h"

namespace hami::plugin {

// What one container holds, as the kubelet reports it. Ordinary init containers are not reported.
struct Holding {
  std::string ns;
  std::string pod;
  std::string container;
  std::vector<std::string> slots;  // sorted
  bool operator==(const Holding&) const = default;
};
using Holdings = std::vector<Holding>;

using ContainerKey = std::pair<std::string, int>;  // uid of the pod, position

struct Situation {
  std::string node;
  std::vector<PodPtr> pods;  // of this node
  std::optional<LockOwner> lock;
  bool concurrent = false;  // several pods may be in flight although nothing tells them apart
  const OriginRules* rules = nullptr;
  std::shared_ptr<const Cards> cards;
  std::int64_t now = 0;          // unix seconds
  std::set<std::string> passed;  // uids of pods that the kubelet is done with, though they do not show it yet
  // Only where the pods are of this moment: what the kubelet holds, and which containers it was told of once more.
  std::optional<Holdings> holdings;
  std::set<ContainerKey> told_again;
};

struct Choice {
  PodPtr pod;
  int container = 0;
  device::ContainerGrant grant;
  std::vector<device::MigReservation> mig;
  bool assumed = false;    // another pod just like it may be the one
  bool alike = false;      // and whichever it is, its containers say the same of how they use their shares
  bool continues = false;  // the pod has been given something before
};

// A pod that may ask, and is to be given nothing.
struct Stranger {
  PodPtr pod;
  std::size_t size = 0;  // of its first container's request
  std::string why;       // a sentence without its subject's name
};

struct Resolution {
  std::optional<Choice> choice;
  const Record* recorded = nullptr;  // the kubelet asks again: this is what it was told
  std::optional<Stranger> stranger;  // it is this one's turn
  std::string why;                   // when there is none of the others
};

// The next container of POD that is to be served; nothing when none is, or when the pod is not in flight on NODE.
std::optional<Choice> NextOf(const PodPtr& pod, const Records& records, const std::string& node, bool owns_lock);

// SIZE slots are wanted and SLOTS is what is known of them: all of them in Allocate, in GetPreferredAllocation those
// that must be included. In this order:
//   1. the pod whose init container holds one of SLOTS: a later container takes over what an init container had;
//   2. the owner of the node lock;
//   3. a pod that is partly served: the kubelet admits one pod after the other;
//   4. of those bound longest ago and their like, the one whose GPUs the slots are on, otherwise the first.
// A pod counts only if its next container wants SIZE, and if what its annotations say is the scheduler's. One that asks
// for SIZE and was never placed is not served; when it came to this node before the one that would be, it is its turn.
// When nobody waits, a kubelet without its checkpoint asks anew for what runs: for the container that was given exactly
// these slots, else for the first that was given SIZE and of which the kubelet knows nothing, the oldest pod first.
Resolution Resolve(std::span<const std::string> slots, std::size_t size, const Situation& situation,
                   const Records& records);

// No container could tell whether it was given A's part or B's: the same sizes in the same places.
bool Interchangeable(const device::PodGrant& a, const device::PodGrant& b);
// And no region, folder or mount made for A would be wrong for B.
bool Alike(const PodView& a, const PodView& b);

}  // namespace hami::plugin
