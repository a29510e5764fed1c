// SPDX-License-Identifier: Apache-2.0

#include "scheduler/in_flight.h"

#include <algorithm>
#include <string_view>

namespace hami::scheduler {

GrantShape ShapeOf(const device::Allocation& allocation) {
  GrantShape shape;
  for (const auto& [vendor, grant] : allocation.grants) {
    shape.text += "v" + std::to_string(vendor);
    for (std::size_t container = 0; container < grant.size(); ++container) {
      std::vector<std::string> shares;
      for (std::size_t device = 0; device < grant[container].size(); ++device) {
        const device::Share& share = grant[container][device];
        std::string text = share.type + ":" + std::to_string(share.memory) + ":" + std::to_string(share.cores);
        for (const device::MigReservation& one : allocation.reservations) {
          const bool same = one.container == static_cast<int>(container) && one.device == static_cast<int>(device);
          if (same) text += ":" + one.profile;
        }
        shares.push_back(std::move(text));
      }
      // Which card comes first is nothing that a container could notice.
      std::sort(shares.begin(), shares.end());
      shape.text += ";";
      for (const std::string& share : shares) shape.text += share + ",";
      if (!shares.empty()) shape.sizes.push_back(static_cast<int>(shares.size()));
    }
  }
  return shape;
}

bool MayBeTogether(const GrantShape& a, const GrantShape& b) {
  if (a.text == b.text) return true;
  return std::none_of(a.sizes.begin(), a.sizes.end(),
                      [&](int size) { return std::find(b.sizes.begin(), b.sizes.end(), size) != b.sizes.end(); });
}

}  // namespace hami::scheduler
