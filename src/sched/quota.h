// SPDX-License-Identifier: Apache-2.0
//
// ResourceQuotas of device memory and cores, per namespace. Keeps every quota object apart and enforces each against
// the pods that it is about, so that removing one never lifts another's. Usage is charged and refunded with the pods. A
// limit of 0 blocks everything, and so does one that cannot be read: a limit that was meant never becomes none.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/types.h"
#include "device/vendor.h"
#include "sched/quota_scopes.h"

namespace hami::sched {

// What a pod of the namespace may still take of one vendor; nothing where there is no limit.
struct QuotaRoom {
  std::optional<std::int64_t> memory;
  std::optional<std::int64_t> cores;
  std::string complaint;  // of a limit that cannot be read
  bool limited() const { return memory.has_value() || cores.has_value(); }
  bool Admits(std::int64_t more_memory, std::int64_t more_cores) const {
    return (!memory || more_memory <= *memory) && (!cores || more_cores <= *cores);
  }
};

// By a container, of memory or cores, where the ask is held against a quota: the sum of any number of containers stays
// inside 64 bits, and no quota is as large.
inline constexpr std::int64_t kMostAsked = 1LL << 44;

struct QuotaUse {
  std::int64_t memory = 0;
  std::int64_t cores = 0;
  bool operator==(const QuotaUse&) const = default;
};

class QuotaBooks {
 public:
  explicit QuotaBooks(const device::Vendors& vendors) : vendors_(vendors) {}

  // HARD is spec.hard of the object: only `limits.<a vendor's memory or core resource>` counts. Both: whether some pod
  // of the namespace may have more of something than before.
  bool Set(std::string_view ns, std::string_view name, const device::StringMap& hard, QuotaScopes scopes = {});
  bool Remove(std::string_view ns, std::string_view name);
  // Of the object's limits, one that cannot be read; empty: none.
  std::string Complaint(std::string_view ns, std::string_view name) const;

  void Charge(std::string_view ns, const device::PodTraits& pod, int vendor, QuotaUse use);
  void Refund(std::string_view ns, const device::PodTraits& pod, int vendor, QuotaUse use);

  // For POD, which counts by its traits.
  QuotaRoom Room(std::string_view ns, const device::PodTraits& pod, int vendor) const;
  // Of every vendor.
  std::vector<QuotaRoom> Rooms(std::string_view ns, const device::PodTraits& pod = {}) const;

  // One line of the metrics: USED by all pods; LIMIT as written (before the vendor's memory factor), the smallest of
  // the quotas that are about all pods.
  struct Line {
    std::string ns;
    std::string resource;
    std::int64_t used = 0;
    std::optional<std::int64_t> limit;
  };
  std::vector<Line> Lines() const;

 private:
  struct Limits {
    std::optional<std::int64_t> memory;  // MiB
    std::optional<std::int64_t> cores;
    std::string complaint;
    bool operator==(const Limits&) const = default;
  };
  struct Quota {
    std::vector<Limits> limits;  // by vendor
    QuotaScopes scopes;
    bool operator==(const Quota&) const = default;
  };
  using Uses = std::vector<QuotaUse>;  // by vendor
  struct Namespace {
    std::map<std::string, Quota, std::less<>> quotas;
    std::map<device::PodTraits, Uses> used;  // a handful of kinds of pods
    QuotaUse Used(int vendor, const QuotaScopes& scopes) const;
    // Of the quotas that are about all pods.
    Limits Smallest(int vendor) const;
  };

  Limits ReadLimits(std::string_view name, const device::StringMap& hard, int vendor) const;
  const Quota* Find(std::string_view ns, std::string_view name) const;
  void Erase(std::string_view ns, std::string_view name);
  std::vector<Limits> LimitsOf(std::string_view ns) const;  // by vendor, of the quotas that are about all pods
  bool HasMoreThan(const std::vector<Limits>& before, std::string_view ns) const;
  Namespace& At(std::string_view ns);
  void DropIfEmpty(std::string_view ns);

  const device::Vendors& vendors_;
  std::map<std::string, Namespace, std::less<>> namespaces_;
};

}  // namespace hami::sched
