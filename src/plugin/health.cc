// SPDX-License-Identifier: Apache-2.0

#include "plugin/health.h"

#include <algorithm>
#include <utility>

namespace hami::plugin {

using nvml::Condition;

Reading ReadingOf(const nvml::HealthSigns& signs) {
  Reading reading;
  reading.condition = signs.condition;
  reading.trouble = signs.trouble;
  reading.reset_pending = (signs.remapped && signs.remapped->pending) || signs.retirement_pending.value_or(false);
  reading.worn_out = signs.remapped && signs.remapped->failed;
  return reading;
}

Damage Damage::Then(const Damage& later) const {
  return {later.uncorrected ? later.uncorrected : uncorrected, later.repairs ? later.repairs : repairs};
}

Damage DamageOf(const nvml::HealthSigns& signs) {
  Damage damage;
  damage.uncorrected = signs.ecc.uncorrected_volatile;
  if (signs.remapped || signs.retired_pages) {
    damage.repairs = signs.retired_pages.value_or(0);
    if (signs.remapped) *damage.repairs += signs.remapped->correctable + signs.remapped->uncorrectable;
    if (ReadingOf(signs).reset_pending) ++*damage.repairs;
  }
  return damage;
}

std::optional<std::uint64_t> XidBehind(const Damage& before, const Damage& now) {
  // Absent is less than any number, so what was not told before must not count as growth.
  if (before.uncorrected && now.uncorrected > before.uncorrected) return 48;
  if (before.repairs && now.repairs > before.repairs) return 63;
  return std::nullopt;
}

void HealthBook::Restore(const HealthJournal& journal, UnixSeconds now) {
  for (const auto& [uuid, entry] : journal) {
    Entry& mine = entries_[uuid];
    mine.seen = entry;
    mine.seen.since = std::min(entry.since, now);
    mine.last_trouble = now;  // the quiet time begins anew: nobody watched meanwhile
  }
}

void HealthBook::Prune(std::vector<UnixSeconds>& troubles, UnixSeconds now) const {
  // A stamp from the future is a clock that was set back; it would never age.
  std::erase_if(troubles, [&](UnixSeconds when) { return when > now || now - when >= rules_.memory; });
}

void HealthBook::Enter(const std::string& uuid, Entry& entry, HealthState state, const std::string& reason,
                       UnixSeconds now) {
  changes_.push_back({uuid, entry.seen.state, state, reason});
  entry.seen.state = state;
  entry.seen.reason = reason;
  entry.seen.since = now;
}

void HealthBook::Suspect(const std::string& uuid, const std::string& reason, UnixSeconds now) {
  Entry& entry = entries_[uuid];
  switch (entry.seen.state) {
    case HealthState::kHealthy:
    case HealthState::kSuspect:
      Enter(uuid, entry, HealthState::kSuspect, reason, now);
      break;
    case HealthState::kProbation:
      Condemn(uuid, reason, now);
      break;
    default:
      entry.last_trouble = now;
  }
}

void HealthBook::Condemn(const std::string& uuid, const std::string& reason, UnixSeconds now) {
  Entry& entry = entries_[uuid];
  entry.last_trouble = now;
  if (entry.seen.state == HealthState::kOut) return;
  if (entry.seen.state == HealthState::kUnhealthy) {
    entry.seen.reason = reason;
    return;
  }
  Prune(entry.seen.troubles, now);
  entry.seen.troubles.push_back(now);
  const bool too_often = entry.seen.troubles.size() > rules_.quiet.size();
  Enter(uuid, entry, too_often ? HealthState::kOut : HealthState::kUnhealthy, reason, now);
}

void HealthBook::Recover(const std::string& uuid, Entry& entry, UnixSeconds now) {
  // A look that began before the suspicion can not have seen its cause.
  const bool saw_the_cause = now > entry.seen.since;
  // Where the clock was set back, the time until it is where it was does not count: the waits begin now.
  entry.seen.since = std::min(entry.seen.since, now);
  entry.last_trouble = std::min(entry.last_trouble, now);
  switch (entry.seen.state) {
    case HealthState::kSuspect:
      if (saw_the_cause) Enter(uuid, entry, HealthState::kHealthy, "it answers well", now);
      break;
    case HealthState::kUnhealthy: {
      const std::size_t times = std::clamp<std::size_t>(entry.seen.troubles.size(), 1, rules_.quiet.size());
      if (now - entry.last_trouble >= rules_.quiet[times - 1]) {
        Enter(uuid, entry, HealthState::kProbation, entry.seen.reason, now);
      }
      break;
    }
    case HealthState::kProbation:
      if (now - entry.seen.since >= rules_.probation)
        Enter(uuid, entry, HealthState::kHealthy, "it has recovered", now);
      break;
    default:
      break;
  }
}

void HealthBook::Look(const std::string& uuid, const Reading& reading, UnixSeconds now) {
  const auto found = entries_.find(uuid);
  const HealthState state = found == entries_.end() ? HealthState::kHealthy : found->second.seen.state;
  if (!reading.listed) return Condemn(uuid, "the driver does not list it any more", now);
  if (reading.condition == Condition::kLost) return Condemn(uuid, "lost: " + reading.trouble, now);
  if (reading.condition == Condition::kResetRequired) return Condemn(uuid, "needs a reset: " + reading.trouble, now);
  if (reading.worn_out) return Condemn(uuid, "its memory can not be repaired any more", now);
  if (reading.condition == Condition::kFails) {
    // Once may be chance.
    if (state == HealthState::kHealthy) return Suspect(uuid, "does not answer: " + reading.trouble, now);
    return Condemn(uuid, "does not answer: " + reading.trouble, now);
  }
  // Work goes on with a repair pending, until there was damage; then it has to be made first.
  if (reading.reset_pending && state != HealthState::kHealthy) {
    const std::string reason = found->second.seen.reason;
    const std::string wait = "memory repair waits for a reset";
    return Condemn(uuid, reason.find(wait) == std::string::npos ? reason + "; " + wait : reason, now);
  }
  if (found != entries_.end()) Recover(uuid, found->second, now);
}

void HealthBook::Readmit(const std::string& uuid, UnixSeconds now) {
  const auto found = entries_.find(uuid);
  if (found == entries_.end() || found->second.seen.state != HealthState::kOut) return;
  found->second.seen.troubles.clear();
  Enter(uuid, found->second, HealthState::kProbation, found->second.seen.reason, now);
}

HealthState HealthBook::StateOf(std::string_view uuid) const {
  const auto found = entries_.find(uuid);
  return found == entries_.end() ? HealthState::kHealthy : found->second.seen.state;
}

Troubles HealthBook::Current() const {
  Troubles troubles;
  for (const auto& [uuid, entry] : entries_) {
    if (entry.seen.state != HealthState::kHealthy && entry.seen.state != HealthState::kSuspect) {
      troubles[uuid] = entry.seen.reason;
    }
  }
  return troubles;
}

HealthJournal HealthBook::Journal(UnixSeconds now) const {
  HealthJournal journal;
  for (const auto& [uuid, entry] : entries_) {
    HealthEntry out = entry.seen;
    Prune(out.troubles, now);
    switch (out.state) {
      case HealthState::kSuspect:
      case HealthState::kHealthy:
        if (out.troubles.empty()) continue;
        out = {HealthState::kHealthy, {}, out.troubles.back(), out.troubles};
        break;
      case HealthState::kProbation:
        out.state = HealthState::kUnhealthy;
        out.since = out.troubles.empty() ? out.since : out.troubles.back();
        break;
      default:
        break;
    }
    journal[uuid] = std::move(out);
  }
  return journal;
}

std::vector<HealthChange> HealthBook::TakeChanges() { return std::exchange(changes_, {}); }

const char* HealthStateName(HealthState state) {
  switch (state) {
    case HealthState::kHealthy:
      return "healthy";
    case HealthState::kSuspect:
      return "suspect";
    case HealthState::kUnhealthy:
      return "unhealthy";
    case HealthState::kProbation:
      return "probation";
    case HealthState::kOut:
      return "out";
  }
  return "";
}

}  // namespace hami::plugin
