// SPDX-License-Identifier: Apache-2.0
//
// The files of the page, as the build found them in src/page/web (cmake/embed.cmake makes the source of them).

#pragma once

#include <span>
#include <string_view>

namespace hami::page {

struct Asset {
  std::string_view path;  // begins with a slash
  std::string_view type;  // its media type
  std::string_view text;
};

std::span<const Asset> Assets();
// Null: there is none.
const Asset* FindAsset(std::string_view path);

}  // namespace hami::page
