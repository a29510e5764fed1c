// SPDX-License-Identifier: Apache-2.0

#include "scheduler/node_lock.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "base/flags.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "kube/timestamp.h"

namespace hami::scheduler {
namespace {

constexpr const char* kRegister = "hami.io/node-nvidia-register";

std::optional<Millis> ParseTime(std::string_view text) {
  const auto seconds = kube::ParseUnixTime(text);
  if (!seconds) return std::nullopt;
  return *seconds * kSecond;
}

const InFlight* FindByName(const GateInput& input, std::string_view ns, std::string_view name) {
  for (const auto& [uid, entry] : input.in_flight) {
    if (entry.ns == ns && entry.name == name) return &entry;
  }
  return nullptr;
}

const InFlight& Self(const GateInput& input) { return input.in_flight.find(input.uid)->second; }

GateVerdict Taken(std::string reason) {
  GateVerdict verdict;
  verdict.reason = std::move(reason);
  return verdict;
}

bool Concurrent(const GateInput& input) {
  if (!input.may_do_without) return false;
  const device::StringMap& annotations = input.node.annotations;
  return device::AllocatesConcurrently(annotations, device::TextAt(annotations, kRegister), input.now / kSecond);
}

// Nothing: what other schedulers did here is in our books.
std::optional<GateVerdict> JudgeTicket(const GateInput& input, const std::optional<Ticket>& ticket,
                                       std::string_view text) {
  if (!ticket || ticket->writer == input.writer || text == input.digested) return std::nullopt;
  const auto known = [&](const Owner& owner) { return input.bound_here(owner.uid); };
  if (!ticket->pods.empty() && std::all_of(ticket->pods.begin(), ticket->pods.end(), known)) return std::nullopt;
  GateVerdict verdict =
      Taken(base::Concat({"node ", input.node.name, " is being used by another scheduler: node lock contention"}));
  verdict.kind = GateVerdict::Kind::kDigest;
  verdict.ticket = *ticket;
  verdict.ticket_text = text;
  return verdict;
}

// The pod of LOCK in TICKET.
const Owner* Named(const Ticket& ticket, const LockText& lock) {
  const auto found = std::find_if(ticket.pods.begin(), ticket.pods.end(),
                                  [&](const Owner& owner) { return owner.ns == lock.ns && owner.name == lock.pod; });
  return found == ticket.pods.end() ? nullptr : &*found;
}

// Nothing: no lock stands in the way.
std::optional<GateVerdict> JudgeLock(const GateInput& input, const std::optional<Ticket>& ticket,
                                     std::string_view text_of_ticket, const LockOptions& options) {
  const std::string* text = device::Find(input.node.annotations, device::kNodeLock);
  if (text == nullptr || text->empty()) return std::nullopt;
  const std::optional<LockText> lock = ParseLock(*text);
  if (!lock) {
    GateVerdict verdict;
    verdict.kind = GateVerdict::Kind::kRefused;
    verdict.reason = base::Concat(
        {"node ", input.node.name, ": annotation ", device::kNodeLock, " \"", *text, "\" is no lock; remove it"});
    return verdict;
  }
  const InFlight& self = Self(input);
  if (input.lock_age > options.lock_timeout || input.lock_orphaned) return std::nullopt;
  if (lock->ns == self.ns && lock->pod == self.name) return std::nullopt;
  const bool in_flight = FindByName(input, lock->ns, lock->pod) != nullptr;
  const Owner* named = ticket ? Named(*ticket, *lock) : nullptr;
  // Another of our kind took it, in the write that brought this ticket: once that has been looked into, the lock's pod
  // is bound here or will not be.
  const bool together = named != nullptr && ticket->time / kSecond == lock->time / kSecond;
  if (together && ticket->writer != input.writer && !input.bound_here(named->uid)) {
    return JudgeTicket(input, ticket, text_of_ticket);
  }
  GateVerdict taken = Taken(base::Concat({"node ", input.node.name, " has been locked within ",
                                          base::FormatGoDuration(std::chrono::milliseconds(options.lock_timeout)),
                                          ": node lock contention"}));
  const bool ours = named != nullptr && ticket->writer == input.writer;
  // We took it, and its pod is done with the node: whoever should have released it did not.
  if (ours && !in_flight) return std::nullopt;
  if (!ours && !in_flight && !lock->pod.empty()) {
    taken.kind = GateVerdict::Kind::kAskOwner;
    taken.owner = {lock->ns, lock->pod, {}};
  }
  return taken;
}

// Nothing: the vendor's own lock does not stand in the way. That of a pod that was never bound is taken over in time.
std::optional<GateVerdict> JudgeOwnLock(const GateInput& input) {
  if (input.own_lock.empty() || device::TextAt(input.node.annotations, input.own_lock).empty()) return std::nullopt;
  if (input.own_lock_age > kOwnLockTimeout) return std::nullopt;
  return Taken(base::Concat({"node ", input.node.name, " has been locked within 2 minutes: node lock contention"}));
}

// Nothing: the pods in flight here leave room for this one. Comes after the lock, so that LOCKS means: no lock stands,
// or one that may be taken over.
std::optional<GateVerdict> JudgeInFlight(const GateInput& input, bool locks, const LockOptions& options) {
  const InFlight& self = Self(input);
  for (const auto& [uid, other] : input.in_flight) {
    if (uid == input.uid || other.stage == InFlight::Stage::kWaiting) continue;
    const bool bound = other.stage == InFlight::Stage::kBound;
    // With a lock it alone says how long a plugin is waited for: one that released it is done, even where the watch
    // does not show that yet. Without one no plugin is waited for longer than a lock would last; as with a lock, a
    // time from the future is as wrong as one from long ago.
    if (bound && (locks || std::abs(input.now - other.since * kSecond) > options.lock_timeout)) continue;
    if (locks || !MayBeTogether(self.shape, other.shape)) {
      return Taken(base::Concat(
          {"node ", input.node.name, " is busy with pod ", other.ns, "/", other.name, ": node lock contention"}));
    }
  }
  return std::nullopt;
}

GateVerdict Go(const GateInput& input, bool locks, bool concurrent) {
  GateVerdict verdict;
  verdict.kind = GateVerdict::Kind::kGo;
  const InFlight& self = Self(input);
  Ticket ticket{input.now, input.writer, {}};
  for (const auto& [uid, other] : input.in_flight) {
    // Who waits for the same node and may go along goes along: one write for all of them.
    const bool along = concurrent && other.stage == InFlight::Stage::kWaiting && self.shape == other.shape;
    if (uid != input.uid && other.stage != InFlight::Stage::kTicketed && !along) continue;
    ticket.pods.push_back({other.ns, other.name, uid});
    if (uid == input.uid || along) verdict.named.push_back(uid);
  }
  verdict.changes.emplace_back(kBindTicket, FormatTicket(ticket));
  if (locks) {
    verdict.changes.emplace_back(device::kNodeLock,
                                 FormatLock(input.now, input.utc_offset_seconds, self.ns, self.name));
  }
  if (!input.own_lock.empty()) {
    verdict.changes.emplace_back(input.own_lock, FormatTime(input.now, input.utc_offset_seconds));
  }
  return verdict;
}

std::optional<Ticket> TicketOf(const NodeView& node, std::string_view& text) {
  const std::string* found = device::Find(node.annotations, kBindTicket);
  if (found == nullptr) return std::nullopt;
  text = *found;
  return ParseTicket(*found);
}

}  // namespace

std::optional<LockText> ParseLock(std::string_view text) {
  const std::vector<std::string> parts = base::Split(text, ',');
  if (parts.size() != 1 && parts.size() != 3) return std::nullopt;
  const std::optional<Millis> time = ParseTime(parts[0]);
  if (!time) return std::nullopt;
  if (parts.size() == 1) return LockText{*time, {}, {}};
  if (parts[1].empty() || parts[2].empty()) return std::nullopt;
  return LockText{*time, parts[1], parts[2]};
}

std::string FormatTime(Millis time, int offset_seconds) {
  const std::int64_t minutes = offset_seconds / 60;
  const auto local = std::chrono::sys_seconds(std::chrono::seconds(time / kSecond + minutes * 60));
  const auto day = std::chrono::floor<std::chrono::days>(local);
  const std::chrono::year_month_day date(day);
  const auto second = static_cast<int>((local - day).count());
  std::array<char, 64> text = {};
  int length = std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
                             static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), second / 3600,
                             second / 60 % 60, second % 60);
  std::string out(text.data(), static_cast<std::size_t>(length));
  if (minutes == 0) {
    out += "Z";
  } else {
    const int away = static_cast<int>(std::abs(minutes));
    length = std::snprintf(text.data(), text.size(), "%c%02d:%02d", minutes < 0 ? '-' : '+', away / 60, away % 60);
    out.append(text.data(), static_cast<std::size_t>(length));
  }
  return out;
}

std::string FormatLock(Millis time, int offset_seconds, std::string_view ns, std::string_view pod) {
  return base::Concat({FormatTime(time, offset_seconds), ",", ns, ",", pod});
}

std::optional<Ticket> ParseTicket(std::string_view text) {
  const std::vector<std::string> parts = base::Split(text, ';');
  if (parts.size() < 2 || parts[1].empty()) return std::nullopt;
  const auto time = base::ParseNumber(parts[0]);
  if (!time || *time > 1ULL << 52U) return std::nullopt;
  Ticket ticket{static_cast<Millis>(*time), parts[1], {}};
  for (std::size_t i = 2; i < parts.size(); ++i) {
    std::vector<std::string> fields = base::Split(parts[i], '/');
    const bool whole = fields.size() == 3 && !fields[0].empty() && !fields[1].empty() && !fields[2].empty();
    if (!whole) return std::nullopt;
    ticket.pods.push_back({std::move(fields[0]), std::move(fields[1]), std::move(fields[2])});
  }
  return ticket;
}

std::string FormatTicket(const Ticket& ticket) {
  std::string text = base::Concat({std::to_string(ticket.time), ";", ticket.writer});
  for (const Owner& owner : ticket.pods) text += base::Concat({";", owner.ns, "/", owner.name, "/", owner.uid});
  return text;
}

GateVerdict JudgeGate(const GateInput& input, const LockOptions& options) {
  std::string_view text;
  const std::optional<Ticket> ticket = TicketOf(input.node, text);
  const bool concurrent = Concurrent(input);
  const bool locks = input.takes_lock && !concurrent;
  // Also where nobody takes locks any more: one that stands is another scheduler's, which knows of no other way.
  if (input.takes_lock) {
    if (auto verdict = JudgeLock(input, ticket, text, options)) return *verdict;
    if (auto verdict = JudgeInFlight(input, locks, options)) return *verdict;
  }
  if (auto verdict = JudgeOwnLock(input)) return *verdict;
  if (auto verdict = JudgeTicket(input, ticket, text)) return *verdict;
  if (input.alone && !locks && input.own_lock.empty()) {
    GateVerdict verdict;
    verdict.kind = GateVerdict::Kind::kGo;
    return verdict;
  }
  return Go(input, locks, concurrent);
}

Changes ReleaseChanges(const NodeView& node, const Owner& pod, const std::string& writer, Millis now,
                       std::string_view own_lock) {
  Changes changes;
  std::string_view text;
  std::optional<Ticket> ticket = TicketOf(node, text);
  // The lock came with its writer's ticket: where the ticket is another's, so is the lock, even for the same pod.
  if (!ticket || ticket->writer != writer || std::erase(ticket->pods, pod) == 0) return changes;
  ticket->time = now;
  changes.emplace_back(kBindTicket, FormatTicket(*ticket));
  const std::string* found = device::Find(node.annotations, device::kNodeLock);
  const std::optional<LockText> lock = found == nullptr ? std::nullopt : ParseLock(*found);
  if (lock && lock->ns == pod.ns && lock->pod == pod.name) changes.emplace_back(device::kNodeLock, std::nullopt);
  if (!own_lock.empty() && device::Find(node.annotations, own_lock) != nullptr) {
    changes.emplace_back(own_lock, std::nullopt);
  }
  return changes;
}

}  // namespace hami::scheduler
