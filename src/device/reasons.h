// SPDX-License-Identifier: Apache-2.0
//
// Why cards were passed over: one counter per reason word, and the sentence made of them. The words are read by users
// in events and by tools; they do not change.

#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace hami::device {

enum class Reason {
  kCardNotHealth,
  kCardCordoned,
  kCardTypeMismatch,
  kCardUuidMismatch,
  kCardTimeSlicingExhausted,
  kExclusiveDeviceAllocateConflict,
  kResourceQuotaNotFit,
  kCardInsufficientMemory,
  kCardInsufficientCore,
  kCardComputeUnitsExhausted,
  kCardMigTopologyInfeasible,
  kNumaNotFit,
  kCardNotFoundCustomFilterRule,
  kModeNotFit,
  kCardQosPolicyMismatch,
  kCardAppClassMismatch,
  kCardUnhealthy,  // as one vendor words it
  kAllocatedCardsInsufficientRequest,
  kCount,
};

const char* Word(Reason reason);

// Node-level answers: no cards were looked at.
inline constexpr const char* kNodeInsufficientDevice = "NodeInsufficientDevice";
inline constexpr const char* kNodeUnregistered = "node unregistered";
inline constexpr const char* kNodeUsageUnavailable = "node usage unavailable";

class Reasons {
 public:
  void Add(Reason reason, int cards = 1) { counts_[static_cast<std::size_t>(reason)] += cards; }
  int count(Reason reason) const { return counts_[static_cast<std::size_t>(reason)]; }
  // `3/8 CardInsufficientMemory, 5/8 CardTypeMismatch`: whole entries in text order.
  std::string Text(std::size_t cards) const;

 private:
  std::array<int, static_cast<std::size_t>(Reason::kCount)> counts_ = {};
};

}  // namespace hami::device
