// SPDX-License-Identifier: Apache-2.0
//
// Which kinds of MIG instance a GPU offers to the scheduler, and where. Pure. Profiles go by the driver's names, so
// that "1g.10gb" and "1g.10gb+me" are two. Refuses to offer a place where an instance lives that is not ours, and more
// places of a profile than may live at once: the scheduler knows places, and no such number.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/config.h"
#include "device/types.h"
#include "nvml/nvml.h"

namespace hami::plugin {

struct MigOffer {
  std::vector<device::MigProfile> profiles;
  int count = 0;        // how many instances may live at once
  std::string trouble;  // why there is none
  bool operator==(const MigOffer&) const = default;
};

// Of a GPU by the name that the driver gives it. FOREIGN are places that are taken for good.
MigOffer OfferOf(const nvml::MigLayout& layout, std::string_view model, device::MiB memory,
                 const std::vector<device::MigAllowance>& allowlist, const std::vector<nvml::MigPlace>& foreign);

// Whether MODEL of an allow-list, as "H100-SXM5-80GB", means the GPU that the driver calls NAME. Words are compared
// whole, so that H20 is no H200; how the board is built is left aside, for the driver seldom names it.
bool IsModel(std::string_view model, std::string_view name, device::MiB memory);

// Whether LISTED of an allow-list means the driver's profile NAME: the same slices and attributes, and the same size,
// which drivers round differently.
bool IsProfile(std::string_view listed, std::string_view name);

const nvml::MigProfile* FindProfile(const nvml::MigLayout& layout, std::string_view name);

}  // namespace hami::plugin
