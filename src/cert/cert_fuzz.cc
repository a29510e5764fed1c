// SPDX-License-Identifier: Apache-2.0
//
// Any text as certificate, key and bundle: judged or refused, and a bundle that was made is right as it is.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "cert/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto now = hami::cert::WallTime(std::chrono::seconds(1'800'000'000));
  const hami::cert::Wanted wanted{{"a.svc"}, std::chrono::hours(24), std::chrono::hours(1)};
  if (hami::cert::Keep({{text, text}, text}, wanted, now) && text.empty()) std::abort();
  const auto next = hami::cert::NextBundle(text, text, now);
  if (next && hami::cert::NextBundle(*next, *next, now)) std::abort();
  return 0;
}
