// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs may be given out. A GPU in trouble is taken out, and comes back by itself when it has answered well for
// long enough; the wait grows with each relapse, and the third relapse within a day keeps it out until somebody acts.
//
//     Healthy ──suspicion──► Suspect ──good reading──► Healthy
//        │                      │ bad reading
//        └──────trouble─────────┴──► Unhealthy ──quiet long enough──► Probation ──good for a while──► Healthy
//                                        ▲                               │ trouble
//                                        └───────────────────────────────┘
//     the fourth trouble within a day: Out, until it is readmitted
//
// Pure: time is an argument, in Unix seconds, because the book outlives the process (see EncodeJournal).

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"
#include "nvml/nvml.h"
#include "plugin/inventory.h"

namespace hami::plugin {

using device::UnixSeconds;

enum class HealthState { kHealthy, kSuspect, kUnhealthy, kProbation, kOut };

struct HealthRules {
  // Quiet time before probation after the first, second and third trouble within MEMORY.
  std::array<UnixSeconds, 3> quiet = {60, 300, 900};
  UnixSeconds probation = 30;
  UnixSeconds memory = 24 * 3600;
};

// What is known of one GPU; absent from the book when there is nothing to say.
struct HealthEntry {
  HealthState state = HealthState::kHealthy;
  std::string reason;
  UnixSeconds since = 0;              // of the state
  std::vector<UnixSeconds> troubles;  // within the memory
  bool operator==(const HealthEntry&) const = default;
};
using HealthJournal = std::map<std::string, HealthEntry, std::less<>>;  // by UUID

struct HealthChange {
  std::string uuid;
  HealthState from;
  HealthState to;
  std::string reason;
};

// How one look at a GPU went.
struct Reading {
  nvml::Condition condition = nvml::Condition::kAnswers;
  std::string trouble;         // the driver's words
  bool listed = true;          // the driver enumerates it
  bool reset_pending = false;  // memory repairs wait for a reset
  bool worn_out = false;       // memory can not be repaired any more
};
Reading ReadingOf(const nvml::HealthSigns& signs);

// What a GPU counts of its own damage. A count that is absent was not told.
struct Damage {
  std::optional<std::uint64_t> uncorrected;  // memory errors
  std::optional<std::uint64_t> repairs;      // rows and pages, and one for those that wait for a reset
  // This, with what LATER tells.
  Damage Then(const Damage& later) const;
};
Damage DamageOf(const nvml::HealthSigns& signs);
// The XID that the driver reports when these grow, for who could not hear it. A reset begins them anew.
std::optional<std::uint64_t> XidBehind(const Damage& before, const Damage& now);

class HealthBook {
 public:
  explicit HealthBook(HealthRules rules = {}) : rules_(rules) {}

  // What was known when the process ended. GPUs that were out of order stay so until they have proved themselves.
  void Restore(const HealthJournal& journal, UnixSeconds now);

  void Suspect(const std::string& uuid, const std::string& reason, UnixSeconds now);
  void Condemn(const std::string& uuid, const std::string& reason, UnixSeconds now);
  // NOW is when the look began: what happened during it is judged by the next one.
  void Look(const std::string& uuid, const Reading& reading, UnixSeconds now);
  // An administrator lifted the cordon of a GPU that is out.
  void Readmit(const std::string& uuid, UnixSeconds now);
  // All others are no part of this machine any more.
  void KeepOnly(const std::function<bool(const std::string& uuid)>& here) {
    std::erase_if(entries_, [&](const auto& entry) { return !here(entry.first); });
  }

  HealthState StateOf(std::string_view uuid) const;
  // GPUs that must not be given out, with the reasons.
  Troubles Current() const;
  // What has to survive a restart. Suspicion does not, and probation is written as what it came from.
  HealthJournal Journal(UnixSeconds now) const;
  // State changes since the last call, in order.
  std::vector<HealthChange> TakeChanges();

 private:
  struct Entry {
    HealthEntry seen;
    UnixSeconds last_trouble = 0;
  };
  void Enter(const std::string& uuid, Entry& entry, HealthState state, const std::string& reason, UnixSeconds now);
  void Recover(const std::string& uuid, Entry& entry, UnixSeconds now);
  void Prune(std::vector<UnixSeconds>& troubles, UnixSeconds now) const;

  const HealthRules rules_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<HealthChange> changes_;
};

const char* HealthStateName(HealthState state);

// As an annotation of the node: {"GPU-…":{"state":"unhealthy","reason":"…","since":…,"troubles":[…]}}; empty when there
// is nothing to say.
std::string EncodeJournal(const HealthJournal& journal);
base::Result<HealthJournal> DecodeJournal(std::string_view text);

}  // namespace hami::plugin
