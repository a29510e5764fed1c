// SPDX-License-Identifier: Apache-2.0

#include "sched/quota.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/strings.h"
#include "device/amount.h"

namespace hami::sched {
namespace {

using Limit = std::optional<std::int64_t>;

// Half of what there is keeps sums inside 64 bits.
constexpr std::int64_t kMostCores = std::numeric_limits<std::int64_t>::max() / 2;

Limit Smaller(Limit a, Limit b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

bool IsRaised(Limit before, Limit after) { return before && (!after || *after > *before); }

Limit Left(Limit limit, std::int64_t used) { return limit ? Limit(*limit - used) : std::nullopt; }

const std::string* LimitText(const device::StringMap& hard, const std::string& resource) {
  return resource.empty() ? nullptr : device::Find(hard, "limits." + resource);
}

std::string Complain(std::string_view quota, const std::string& resource, const std::string& text,
                     const base::Error& error) {
  return base::Concat({"quota ", quota, " blocks: limits.", resource, " ", base::Printable(text), " ", error.message,
                       error.hint.empty() ? "" : ": ", error.hint});
}

}  // namespace

QuotaBooks::Limits QuotaBooks::ReadLimits(std::string_view name, const device::StringMap& hard, int vendor) const {
  const device::QuotaResources resources = vendors_[static_cast<std::size_t>(vendor)]->quota_resources();
  Limits limits;
  if (const std::string* text = LimitText(hard, resources.memory)) {
    const auto memory = device::ReadMemory(*text, resources.memory_factor, device::kMostOfNamespace);
    limits.memory = memory ? memory->mib : 0;
    if (!memory) limits.complaint = Complain(name, resources.memory, *text, memory.error());
  }
  if (const std::string* text = LimitText(hard, resources.cores)) {
    const auto cores = device::ReadCount(*text, std::numeric_limits<std::int64_t>::max());
    limits.cores = cores ? std::min(*cores, kMostCores) : 0;
    if (!cores) limits.complaint = Complain(name, resources.cores, *text, cores.error());
  }
  return limits;
}

QuotaBooks::Namespace& QuotaBooks::At(std::string_view ns) {
  const auto found = namespaces_.find(ns);
  return found == namespaces_.end() ? namespaces_[std::string(ns)] : found->second;
}

const QuotaBooks::Quota* QuotaBooks::Find(std::string_view ns, std::string_view name) const {
  const auto space = namespaces_.find(ns);
  if (space == namespaces_.end()) return nullptr;
  const auto quota = space->second.quotas.find(name);
  return quota == space->second.quotas.end() ? nullptr : &quota->second;
}

void QuotaBooks::DropIfEmpty(std::string_view ns) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return;
  if (found->second.quotas.empty() && found->second.used.empty()) namespaces_.erase(found);
}

bool QuotaBooks::Set(std::string_view ns, std::string_view name, const device::StringMap& hard, QuotaScopes scopes) {
  Quota quota{{}, std::move(scopes)};
  for (std::size_t v = 0; v < vendors_.size(); ++v) {
    quota.limits.push_back(ReadLimits(name, hard, static_cast<int>(v)));
  }
  const bool limits = std::any_of(quota.limits.begin(), quota.limits.end(),
                                  [](const Limits& one) { return one.memory.has_value() || one.cores.has_value(); });
  const Quota* known = Find(ns, name);
  // What a change of scopes lifts, and from which pods, is more than anybody needs to know.
  const bool rescoped = known != nullptr && !known->scopes.empty() && *known != quota;
  const std::vector<Limits> before = LimitsOf(ns);
  Erase(ns, name);
  if (limits) At(ns).quotas.emplace(std::string(name), std::move(quota));
  return rescoped || HasMoreThan(before, ns);
}

bool QuotaBooks::Remove(std::string_view ns, std::string_view name) {
  const Quota* known = Find(ns, name);
  const bool scoped = known != nullptr && !known->scopes.empty();
  const std::vector<Limits> before = LimitsOf(ns);
  Erase(ns, name);
  return scoped || HasMoreThan(before, ns);
}

std::string QuotaBooks::Complaint(std::string_view ns, std::string_view name) const {
  const Quota* quota = Find(ns, name);
  if (quota == nullptr) return {};
  for (const Limits& limits : quota->limits) {
    if (!limits.complaint.empty()) return limits.complaint;
  }
  return {};
}

void QuotaBooks::Erase(std::string_view ns, std::string_view name) {
  const auto space = namespaces_.find(ns);
  if (space == namespaces_.end()) return;
  auto& quotas = space->second.quotas;
  if (const auto quota = quotas.find(name); quota != quotas.end()) quotas.erase(quota);
  DropIfEmpty(ns);
}

std::vector<QuotaBooks::Limits> QuotaBooks::LimitsOf(std::string_view ns) const {
  std::vector<Limits> limits(vendors_.size());
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return limits;
  for (std::size_t v = 0; v < limits.size(); ++v) limits[v] = found->second.Smallest(static_cast<int>(v));
  return limits;
}

bool QuotaBooks::HasMoreThan(const std::vector<Limits>& before, std::string_view ns) const {
  const std::vector<Limits> after = LimitsOf(ns);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (IsRaised(before[i].memory, after[i].memory) || IsRaised(before[i].cores, after[i].cores)) return true;
  }
  return false;
}

void QuotaBooks::Charge(std::string_view ns, const device::PodTraits& pod, int vendor, QuotaUse use) {
  Uses& uses = At(ns).used[pod];
  uses.resize(vendors_.size());
  QuotaUse& used = uses[static_cast<std::size_t>(vendor)];
  used.memory += use.memory;
  used.cores += use.cores;
}

void QuotaBooks::Refund(std::string_view ns, const device::PodTraits& pod, int vendor, QuotaUse use) {
  Charge(ns, pod, vendor, {-use.memory, -use.cores});
  auto& used = At(ns).used;
  const Uses& uses = used[pod];
  if (std::all_of(uses.begin(), uses.end(), [](const QuotaUse& one) { return one == QuotaUse{}; })) used.erase(pod);
  DropIfEmpty(ns);
}

QuotaUse QuotaBooks::Namespace::Used(int vendor, const QuotaScopes& scopes) const {
  QuotaUse sum;
  for (const auto& [pod, uses] : used) {
    if (!Tracks(scopes, pod)) continue;
    sum.memory += uses[static_cast<std::size_t>(vendor)].memory;
    sum.cores += uses[static_cast<std::size_t>(vendor)].cores;
  }
  return sum;
}

QuotaBooks::Limits QuotaBooks::Namespace::Smallest(int vendor) const {
  Limits smallest;
  for (const auto& [name, quota] : quotas) {
    if (!quota.scopes.empty()) continue;
    const Limits& limits = quota.limits[static_cast<std::size_t>(vendor)];
    smallest.memory = Smaller(smallest.memory, limits.memory);
    smallest.cores = Smaller(smallest.cores, limits.cores);
  }
  return smallest;
}

QuotaRoom QuotaBooks::Room(std::string_view ns, const device::PodTraits& pod, int vendor) const {
  QuotaRoom room;
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return room;
  for (const auto& [name, quota] : found->second.quotas) {
    const Limits& limits = quota.limits[static_cast<std::size_t>(vendor)];
    if (!Tracks(quota.scopes, pod)) continue;
    const QuotaUse used = found->second.Used(vendor, quota.scopes);
    room.memory = Smaller(room.memory, Left(limits.memory, used.memory));
    room.cores = Smaller(room.cores, Left(limits.cores, used.cores));
    if (room.complaint.empty()) room.complaint = limits.complaint;
  }
  return room;
}

std::vector<QuotaRoom> QuotaBooks::Rooms(std::string_view ns, const device::PodTraits& pod) const {
  std::vector<QuotaRoom> rooms;
  for (std::size_t v = 0; v < vendors_.size(); ++v) rooms.push_back(Room(ns, pod, static_cast<int>(v)));
  return rooms;
}

std::vector<QuotaBooks::Line> QuotaBooks::Lines() const {
  std::vector<Line> lines;
  for (const auto& [ns, space] : namespaces_) {
    for (std::size_t i = 0; i < vendors_.size(); ++i) {
      const device::QuotaResources resources = vendors_[i]->quota_resources();
      const Limits limits = space.Smallest(static_cast<int>(i));
      const QuotaUse used = space.Used(static_cast<int>(i), {});
      const auto unscaled = limits.memory ? Limit(*limits.memory / resources.memory_factor) : std::nullopt;
      if (!resources.memory.empty()) lines.push_back({ns, resources.memory, used.memory, unscaled});
      if (!resources.cores.empty()) lines.push_back({ns, resources.cores, used.cores, limits.cores});
    }
  }
  return lines;
}

}  // namespace hami::sched
