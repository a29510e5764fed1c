// SPDX-License-Identifier: Apache-2.0
//
// New limits for containers that run, asked for by the pod annotation hami-cpp/resize, a JSON object by container:
//
//   {"train": {"memory": "6Gi", "cores": 40}}             every GPU of the container
//   {"train": [{"memory": "6Gi"}, {"memory": "3Gi"}]}     one entry per GPU, in the order of the grant
//
// memory is read as in nvidia.com/gpumem: a number is MiB, `6Gi` are bytes; cores is a percentage from 1 to 100; what
// is left out stays as it was granted. The grant (hami.io/vgpu-devices-allocated) is what the scheduler has set aside,
// so it is the ceiling: nobody gets more than the books hold, however it is asked for. Pure; refuses in whole
// sentences.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"
#include "monitor/region_view.h"

namespace hami::monitor {

inline constexpr std::string_view kResizeAnnotation = "hami-cpp/resize";

struct Wish {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<unsigned> cores;
  bool operator==(const Wish&) const = default;
};

struct ContainerWish {
  bool for_all = true;       // then one wish, else one per share of the grant
  std::vector<Wish> wishes;  // never empty
  bool operator==(const ContainerWish&) const = default;
};

using Wishes = std::map<std::string, ContainerWish, std::less<>>;

base::Result<Wishes> ParseResize(std::string_view text);

struct Limit {
  std::uint32_t device = 0;  // of the region
  std::uint64_t memory_bytes = 0;
  std::uint64_t sm_limit = 0;
  bool operator==(const Limit&) const = default;
};

enum class ResizeState { kApplied, kWaiting, kRefused };
const char* ResizeStateName(ResizeState state);

// What WISH (absent: back to the grant) comes to.
struct ResizePlan {
  ResizeState state = ResizeState::kApplied;
  std::string reason;         // why refused or waiting; a remark when applied
  std::vector<Limit> limits;  // all that the region is to hold, changed or not; empty unless applied
};
ResizePlan PlanResize(const std::optional<ContainerWish>& wish, const device::ContainerGrant& grant,
                      const RegionView& region);

}  // namespace hami::monitor
