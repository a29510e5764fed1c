// SPDX-License-Identifier: Apache-2.0

#include "plugin/preferred.h"

#include <algorithm>
#include <tuple>

#include "plugin/slots.h"

namespace hami::plugin {
namespace {

// "GPU-x-2" before "GPU-x-10".
bool LowerSlot(const std::string& a, const std::string& b) {
  return std::forward_as_tuple(CardOfSlot(a), a.size(), a) < std::forward_as_tuple(CardOfSlot(b), b.size(), b);
}

bool Take(std::vector<std::string>& from, std::string_view card, std::string* taken) {
  const auto found =
      std::find_if(from.begin(), from.end(), [&](const std::string& slot) { return CardOfSlot(slot) == card; });
  if (found == from.end()) return false;
  if (taken != nullptr) *taken = *found;
  from.erase(found);
  return true;
}

}  // namespace

std::vector<std::string> PreferSlots(std::vector<std::string> available, const std::vector<std::string>& must_include,
                                     std::size_t size, const device::ContainerGrant& grant) {
  std::vector<std::string> chosen = must_include;
  if (grant.size() != size || chosen.size() > size) return must_include;
  std::erase_if(available, [&](const std::string& slot) {
    return std::find(must_include.begin(), must_include.end(), slot) != must_include.end();
  });
  std::sort(available.begin(), available.end(), LowerSlot);
  std::vector<std::string> uncovered = must_include;
  for (const device::Share& share : grant) {
    if (Take(uncovered, share.uuid, nullptr)) continue;
    std::string slot;
    if (chosen.size() == size || !Take(available, share.uuid, &slot)) return must_include;
    chosen.push_back(std::move(slot));
  }
  return chosen.size() == size ? chosen : must_include;
}

}  // namespace hami::plugin
