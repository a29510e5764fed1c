// SPDX-License-Identifier: Apache-2.0
//
// Brings the records to what the kubelet says, and the pods' annotations to what the records say. Pure. Invariant of an
// exchange: every grant has one owner before and after, whatever the order in which the kubelet admitted the pods. The
// records are the truth and the annotations follow, so that a crash between two patches is repaired by looking again.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugin/resolve.h"

namespace hami::plugin {

struct Exchange {
  PodKey assumed;
  PodKey actual;
  bool alike = true;      // false: the books are right now, but one of the two was promised something else
  bool stranger = false;  // ACTUAL was never placed here; what ASSUMED was promised is still to be given to it
  bool operator==(const Exchange&) const = default;
};

struct Settled {
  Records records;
  std::vector<Exchange> exchanges;
  std::vector<Record> dropped;  // records that are no more: their folders can go
};

// A record of a pod that is not among the pods is kept this long: the pod may not have been seen yet, and a pod that is
// gone may not be the one that holds the slots.
inline constexpr std::int64_t kRecordGrace = 60;

struct SettleOptions {
  std::int64_t now = 0;  // unix seconds
  // A given record of a pod that has not started and holds nothing was never delivered: its pod is still to come. Only
  // true when PODS and HOLDINGS are of this moment and no answer is on its way to the kubelet.
  bool find_undelivered = false;
};

// Whether the kubelet says that one of SLOTS is held by a pod that has not ended. One before Kubernetes 1.34 goes on
// naming those that have until it admits another pod with devices.
bool IsHeld(const std::vector<std::string>& slots, const Holdings& holdings, const std::vector<PodPtr>& pods);

// Every row that POD is still to be given becomes a record, so that the records are all there is: from here on nothing
// that the pod says of itself changes what it gets.
void Materialise(const PodView& pod, Records& records, std::int64_t now);

Settled Settle(Records records, const std::vector<PodPtr>& pods, const std::optional<Holdings>& holdings,
               const SettleOptions& options);

// SLOTS are given anew: whoever held them before does not any more.
void Supersede(Records& records, const std::vector<std::string>& slots, const std::string& new_owner_uid);

// What has to change in POD's annotations so that they say what RECORDS say.
struct Desired {
  device::StringMap changes;
  bool finished = false;  // nothing is left to be given, by anybody
};
Desired DesiredAnnotations(const PodView& pod, const Records& records);

}  // namespace hami::plugin
