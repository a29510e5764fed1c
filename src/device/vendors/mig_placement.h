// SPDX-License-Identifier: Apache-2.0
//
// Where a new MIG instance goes on one card: the smallest profile that holds the memory and still has a free place.

#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "device/types.h"

namespace hami::device {

struct MigChoice {
  int profile = 0;  // position in the card's list
  MigPlacement placement;
};

// Profiles by memory, then slices; small profiles (1g, 3g) are placed from the high end and the others from the low
// end, which keeps the middle open for the large ones.
std::optional<MigChoice> ChooseMig(const std::vector<MigProfile>& profiles, MiB memory,
                                   std::span<const MigPlacement> taken);

// HAMi before 2.10 wrote an instance as "GPU-…[template-slot]": the GPU's part; nothing for any other text.
std::optional<std::string_view> GpuOfOldInstance(std::string_view uuid);

}  // namespace hami::device
