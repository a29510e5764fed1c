// SPDX-License-Identifier: Apache-2.0
//
// What a pod's annotations say that it holds, and how much of that is believed. A tenant may write anything on a pod:
// a claim that nothing proves counts for at most what the pod's own containers ask for, by number of shares, memory and
// cores, whatever the configuration gave them by default then. A pod that asks for nothing holds nothing, and a text
// that cannot be read closes a node only for a pod that runs there and asks for devices.

#pragma once

#include <vector>

#include "device/pod.h"
#include "device/vendor.h"
#include "sched/node.h"

namespace hami::sched {

enum class Trust {
  kProven,    // the scheduler's word: counted as it is written
  kBelieved,  // counted up to the pod's own request
  kDoubted,   // not counted: a pod that runs and asks for devices holds what nobody can tell
};

// What each share of a container may have at most; a part of a card depends on the card.
struct ShareLimit {
  int vendor = 0;
  int container = 0;
  device::MiB memory = 0;  // 0: as the percentage says
  int percent = 100;
  int cores = 100;
  bool operator==(const ShareLimit&) const = default;
};

struct Claim {
  bool any = false;
  bool unreadable = false;  // the pod holds something, and nobody can tell what
  device::Allocation allocation;
  std::vector<ShareLimit> limits;  // of a claim that is believed
};

Claim ReadClaim(const device::Pod& pod, const device::Vendors& vendors, Trust trust);

// ALLOCATION within LIMITS on NODE's cards. A MIG instance has the memory of its profile, which may be more than was
// asked for, up to the whole card, and is one on a MIG card alone. Of a card that is not there a part is nothing, also
// for the quota.
device::Allocation WithinLimits(device::Allocation allocation, const std::vector<ShareLimit>& limits, const Node& node,
                                const device::Vendors& vendors);

// Whether HELD is all in CLAIMED: a claim that nothing proves never takes anything back.
bool Covers(const NodeCharge& claimed, const NodeCharge& held);

// Whether the two differ at most in what a plugin adds, the identities of MIG instances.
bool SameGrant(const device::Allocation& a, const device::Allocation& b);

}  // namespace hami::sched
