// SPDX-License-Identifier: Apache-2.0
//
// ResourceQuotas of device memory and cores, per namespace. Keeps every quota object apart and enforces the smallest
// limit among them, so that removing one never lifts another's. Usage is charged and refunded with the pods. A limit of
// 0 blocks everything; a quantity that is not integral is no limit.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/types.h"
#include "device/vendor.h"

namespace hami::sched {

// What a namespace may still take of one vendor; nothing where there is no limit.
struct QuotaRoom {
  std::optional<std::int64_t> memory;
  std::optional<std::int64_t> cores;
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

  // HARD is spec.hard of the object: only `limits.<a vendor's memory or core resource>` counts. Both: whether the
  // namespace may have more of something than before.
  bool Set(std::string_view ns, std::string_view name, const device::StringMap& hard);
  bool Remove(std::string_view ns, std::string_view name);

  void Charge(std::string_view ns, int vendor, QuotaUse use);
  void Refund(std::string_view ns, int vendor, QuotaUse use);

  QuotaRoom Room(std::string_view ns, int vendor) const;
  // Of every vendor.
  std::vector<QuotaRoom> Rooms(std::string_view ns) const;

  // One line of the metrics: LIMIT as written (before the vendor's memory factor).
  struct Line {
    std::string ns;
    std::string resource;
    std::int64_t used = 0;
    std::optional<std::int64_t> limit;
  };
  std::vector<Line> Lines() const;

 private:
  struct Limits {
    std::optional<std::int64_t> memory;  // scaled
    std::optional<std::int64_t> cores;
  };
  struct PerVendor {
    QuotaUse used;
    std::map<std::string, Limits, std::less<>> limits;  // by quota object
    Limits Smallest() const;
  };
  struct Namespace {
    std::vector<PerVendor> vendors;
  };

  void Erase(std::string_view ns, std::string_view name);
  std::vector<Limits> LimitsOf(std::string_view ns) const;  // by vendor
  bool HasMoreThan(const std::vector<Limits>& before, std::string_view ns) const;
  PerVendor& At(std::string_view ns, int vendor);
  void DropIfEmpty(std::string_view ns);

  const device::Vendors& vendors_;
  std::map<std::string, Namespace, std::less<>> namespaces_;
};

}  // namespace hami::sched
