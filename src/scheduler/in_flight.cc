// SPDX-License-Identifier: Apache-2.0

#include "scheduler/in_flight.h"

#include <algorithm>
#include <string_view>

#include "device/lists.h"

namespace hami::scheduler {
namespace {

// Of the container at that place of the grant: init containers first.
std::string TermsOf(const device::Pod& pod, std::size_t place) {
  const std::size_t inits = pod.init_containers.size();
  if (place >= inits + pod.containers.size()) return {};
  const device::Container& container =
      place < inits ? static_cast<const device::Container&>(pod.init_containers[place]) : pod.containers[place - inits];
  std::string text = place < inits ? "init," : "";
  // Whether control may be switched off is a matter of the namespace.
  if (device::Find(container.terms, "CUDA_DISABLE_CONTROL") != nullptr) text += "in " + pod.ns + ",";
  // A value may be any text, also one that goes on like the next term: its length keeps the two apart.
  for (const auto& [name, value] : container.terms)
    text += name + "=" + std::to_string(value.size()) + ":" + value + ",";
  return text;
}

}  // namespace

GrantShape ShapeOf(const device::Allocation& allocation, const device::Pod& pod) {
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
      if (shares.empty()) continue;
      shape.sizes.push_back(static_cast<int>(shares.size()));
      shape.text += TermsOf(pod, container);
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
