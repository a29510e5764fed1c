// SPDX-License-Identifier: Apache-2.0

#include "sched/quota.h"

#include <algorithm>
#include <limits>

#include "base/strings.h"
#include "device/quantity.h"

namespace hami::sched {
namespace {

using Limit = std::optional<std::int64_t>;

Limit Smaller(Limit a, Limit b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

bool IsRaised(Limit before, Limit after) { return before && (!after || *after > *before); }

Limit Left(Limit limit, std::int64_t used) { return limit ? Limit(*limit - used) : std::nullopt; }

Limit ReadLimit(const device::StringMap& hard, const std::string& resource, std::int64_t factor) {
  if (resource.empty()) return std::nullopt;
  const std::string* text = device::Find(hard, "limits." + resource);
  const Limit limit = text == nullptr ? std::nullopt : device::QuantityAsInt64(*text);
  if (!limit) return std::nullopt;
  if (*limit > std::numeric_limits<std::int64_t>::max() / 2 / factor) return std::nullopt;
  return std::max<std::int64_t>(*limit, 0) * factor;
}

}  // namespace

QuotaBooks::PerVendor& QuotaBooks::At(std::string_view ns, int vendor) {
  auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) {
    found = namespaces_.emplace(std::string(ns), Namespace{std::vector<PerVendor>(vendors_.size())}).first;
  }
  return found->second.vendors[static_cast<std::size_t>(vendor)];
}

void QuotaBooks::DropIfEmpty(std::string_view ns) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return;
  const auto& list = found->second.vendors;
  const bool empty = std::all_of(list.begin(), list.end(),
                                 [](const PerVendor& one) { return one.limits.empty() && one.used == QuotaUse{}; });
  if (empty) namespaces_.erase(found);
}

bool QuotaBooks::Set(std::string_view ns, std::string_view name, const device::StringMap& hard) {
  const std::vector<Limits> before = LimitsOf(ns);
  Erase(ns, name);
  for (std::size_t i = 0; i < vendors_.size(); ++i) {
    const device::QuotaResources resources = vendors_[i]->quota_resources();
    const Limits limits{ReadLimit(hard, resources.memory, resources.memory_factor),
                        ReadLimit(hard, resources.cores, 1)};
    if (limits.memory || limits.cores) At(ns, static_cast<int>(i)).limits.emplace(std::string(name), limits);
  }
  return HasMoreThan(before, ns);
}

bool QuotaBooks::Remove(std::string_view ns, std::string_view name) {
  const std::vector<Limits> before = LimitsOf(ns);
  Erase(ns, name);
  return HasMoreThan(before, ns);
}

void QuotaBooks::Erase(std::string_view ns, std::string_view name) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return;
  for (PerVendor& vendor : found->second.vendors) {
    if (const auto limit = vendor.limits.find(name); limit != vendor.limits.end()) vendor.limits.erase(limit);
  }
  DropIfEmpty(ns);
}

std::vector<QuotaBooks::Limits> QuotaBooks::LimitsOf(std::string_view ns) const {
  std::vector<Limits> limits(vendors_.size());
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return limits;
  for (std::size_t i = 0; i < limits.size(); ++i) limits[i] = found->second.vendors[i].Smallest();
  return limits;
}

bool QuotaBooks::HasMoreThan(const std::vector<Limits>& before, std::string_view ns) const {
  const std::vector<Limits> after = LimitsOf(ns);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (IsRaised(before[i].memory, after[i].memory) || IsRaised(before[i].cores, after[i].cores)) return true;
  }
  return false;
}

void QuotaBooks::Charge(std::string_view ns, int vendor, QuotaUse use) {
  QuotaUse& used = At(ns, vendor).used;
  used.memory += use.memory;
  used.cores += use.cores;
}

void QuotaBooks::Refund(std::string_view ns, int vendor, QuotaUse use) {
  QuotaUse& used = At(ns, vendor).used;
  used.memory -= use.memory;
  used.cores -= use.cores;
  DropIfEmpty(ns);
}

QuotaBooks::Limits QuotaBooks::PerVendor::Smallest() const {
  Limits smallest;
  for (const auto& [name, one] : limits) {
    smallest.memory = Smaller(smallest.memory, one.memory);
    smallest.cores = Smaller(smallest.cores, one.cores);
  }
  return smallest;
}

QuotaRoom QuotaBooks::Room(std::string_view ns, int vendor) const {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end()) return {};
  const PerVendor& books = found->second.vendors[static_cast<std::size_t>(vendor)];
  const Limits limits = books.Smallest();
  return {Left(limits.memory, books.used.memory), Left(limits.cores, books.used.cores)};
}

std::vector<QuotaRoom> QuotaBooks::Rooms(std::string_view ns) const {
  std::vector<QuotaRoom> rooms;
  for (std::size_t v = 0; v < vendors_.size(); ++v) rooms.push_back(Room(ns, static_cast<int>(v)));
  return rooms;
}

std::vector<QuotaBooks::Line> QuotaBooks::Lines() const {
  std::vector<Line> lines;
  for (const auto& [ns, space] : namespaces_) {
    for (std::size_t i = 0; i < vendors_.size(); ++i) {
      const device::QuotaResources resources = vendors_[i]->quota_resources();
      const PerVendor& books = space.vendors[i];
      const Limits limits = books.Smallest();
      const auto unscaled = limits.memory ? Limit(*limits.memory / resources.memory_factor) : std::nullopt;
      if (!resources.memory.empty()) lines.push_back({ns, resources.memory, books.used.memory, unscaled});
      if (!resources.cores.empty()) lines.push_back({ns, resources.cores, books.used.cores, limits.cores});
    }
  }
  return lines;
}

}  // namespace hami::sched
