// SPDX-License-Identifier: Apache-2.0

#include "device/reasons.h"

#include <algorithm>
#include <vector>

#include "base/strings.h"

namespace hami::device {

const char* Word(Reason reason) {
  switch (reason) {
    case Reason::kCardNotHealth:
      return "CardNotHealth";
    case Reason::kCardCordoned:
      return "CardCordoned";
    case Reason::kCardTypeMismatch:
      return "CardTypeMismatch";
    case Reason::kCardUuidMismatch:
      return "CardUuidMismatch";
    case Reason::kCardTimeSlicingExhausted:
      return "CardTimeSlicingExhausted";
    case Reason::kExclusiveDeviceAllocateConflict:
      return "ExclusiveDeviceAllocateConflict";
    case Reason::kResourceQuotaNotFit:
      return "ResourceQuotaNotFit";
    case Reason::kCardInsufficientMemory:
      return "CardInsufficientMemory";
    case Reason::kCardInsufficientCore:
      return "CardInsufficientCore";
    case Reason::kCardComputeUnitsExhausted:
      return "CardComputeUnitsExhausted";
    case Reason::kCardMigTopologyInfeasible:
      return "CardMigTopologyInfeasible";
    case Reason::kNumaNotFit:
      return "NumaNotFit";
    case Reason::kCardNotFoundCustomFilterRule:
      return "CardNotFoundCustomFilterRule";
    case Reason::kModeNotFit:
      return "ModeNotFit";
    case Reason::kCardQosPolicyMismatch:
      return "CardQosPolicyMismatch";
    case Reason::kCardAppClassMismatch:
      return "CardAppClassMismatch";
    case Reason::kCardUnhealthy:
      return "CardUnhealthy";
    case Reason::kAllocatedCardsInsufficientRequest:
      return "AllocatedCardsInsufficientRequest";
    case Reason::kCount:
      break;
  }
  return "";
}

std::string Reasons::Text(std::size_t cards) const {
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    entries.push_back(
        base::Concat({std::to_string(counts_[i]), "/", std::to_string(cards), " ", Word(static_cast<Reason>(i))}));
  }
  std::sort(entries.begin(), entries.end());
  return base::Join(entries, ", ");
}

}  // namespace hami::device
