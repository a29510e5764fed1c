// SPDX-License-Identifier: Apache-2.0
//
// The annotation and label keys that no single vendor owns, and the words of one. Verbatim: they are the protocol with
// the device plugins and with whatever ran before.

#pragma once

#include <string_view>

namespace hami::device {

inline constexpr const char* kAssignedNode = "hami.io/vgpu-node";  // also a label
inline constexpr const char* kAssignedTime = "hami.io/vgpu-time";
inline constexpr const char* kBindTime = "hami.io/bind-time";
inline constexpr const char* kBindPhase = "hami.io/bind-phase";
// Its words: bound and not yet handed out by the plugin; handed out; refused by the plugin.
inline constexpr const char* kPhaseAllocating = "allocating";
inline constexpr const char* kPhaseSuccess = "success";
inline constexpr const char* kPhaseFailed = "failed";
inline constexpr const char* kMigAllocations = "hami.io/vgpu-mig-allocations";
inline constexpr const char* kNodePolicy = "hami.io/node-scheduler-policy";
inline constexpr const char* kDevicePolicy = "hami.io/gpu-scheduler-policy";
inline constexpr const char* kScoringWeights = "hami.io/device-scoring-weights";
inline constexpr const char* kDeviceCordon = "hami.io/device-cordon";
inline constexpr const char* kNodeLock = "hami.io/mutex.lock";

// Kunlun's whole cards are the one exception of the next.
inline constexpr std::string_view kKunlunAllocated = "hami.io/kunlun-allocated";
// What one vendor's scheduler granted, of whatever vendor: `hami.io/<word>-devices-allocated`.
constexpr bool IsAllocatedKey(std::string_view key) {
  constexpr std::string_view kPrefix = "hami.io/";
  constexpr std::string_view kSuffix = "-devices-allocated";
  return key == kKunlunAllocated ||
         (key.size() > kPrefix.size() + kSuffix.size() && key.substr(0, kPrefix.size()) == kPrefix &&
          key.substr(key.size() - kSuffix.size()) == kSuffix);
}

}  // namespace hami::device
