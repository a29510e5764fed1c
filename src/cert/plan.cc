// SPDX-License-Identifier: Apache-2.0

#include "cert/plan.h"

#include <algorithm>

namespace hami::cert {
namespace {

// The one that serves, and two before it: a renewal that was interrupted and begun anew leaves one that never served.
constexpr std::size_t kMostInBundle = 3;

}  // namespace

base::Result<WallTime> Keep(const Found& found, const Wanted& wanted, WallTime now) {
  auto end = Judge(found.serving, found.authority, wanted.names, now);
  if (end && *end - now < wanted.renew_before) {
    const auto days = std::chrono::duration_cast<std::chrono::hours>(*end - now).count() / 24;
    return base::Fail("it ends in " + std::to_string(days) + " days");
  }
  return end;
}

std::optional<std::string> NextBundle(const std::string& bundle, const std::string& authority, WallTime now) {
  const std::vector<std::string> own = ReadAuthorities(authority, now);
  std::vector<std::string> next = own;
  for (std::string& one : ReadAuthorities(bundle, now)) {
    if (std::find(own.begin(), own.end(), one) == own.end()) next.push_back(std::move(one));
  }
  if (next.size() > std::max(kMostInBundle, own.size())) next.resize(std::max(kMostInBundle, own.size()));
  std::string text;
  for (const std::string& one : next) text += one;
  if (text == bundle) return std::nullopt;
  return text;
}

}  // namespace hami::cert
