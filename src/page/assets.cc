// SPDX-License-Identifier: Apache-2.0

#include "page/assets.h"

#include <algorithm>

namespace hami::page {

const Asset* FindAsset(std::string_view path) {
  const std::span<const Asset> all = Assets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Asset& asset) { return asset.path == path; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace hami::page
