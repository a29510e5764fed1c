// SPDX-License-Identifier: Apache-2.0
//
// An area of any content can be joined and looked at: what comes out is within bounds, and nobody waits for ever.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "region/common_area.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hami::region;
  const auto area = std::make_unique<CommonArea>();
  std::memcpy(static_cast<void*>(area.get()), data, size < sizeof(CommonArea) ? size : sizeof(CommonArea));
  constexpr int64_t kNow = 1'000'000'000'000;
  for (const uint64_t gpu : {uint64_t{1}, area->members[0].gpu}) {
    const int line = CommonJoin(area.get(), 1, gpu, kNow);
    if (line < -1 || line >= static_cast<int>(kCommonMembers)) std::abort();
    const CommonView view = CommonLook(*area, line, gpu, 1, kNow);
    if (view.higher_until >= kNow + kCommonReach || view.active_until >= kNow + kCommonReach) std::abort();
    CommonUse(&area->members[1], -3);
    CommonSetLongs(&area->members[1], 2, kNow);
    if (CommonLongs(area->members[1].used, kNow) != 2) std::abort();
    const CommonUsed used = CommonLookAtUse(*area, line, gpu, kNow);
    if (used.longs < 0 || used.shorts < 0 || used.shorts > int64_t{kCommonMembers}) std::abort();
    if (used.longs > int64_t{UINT8_MAX} * kCommonMembers) std::abort();
    if (view.wanted < 0 || view.wanted > int64_t{10'000} * kCommonMembers) std::abort();
    const int64_t conceded = CommonConcession(view, 3000, 0, 400);
    if (view.lag < 0 || conceded < 0 || conceded > 400) std::abort();
    const uint32_t rate = CommonBurstRate(3000, 8000, view.wanted);
    if (rate < 3000 || rate > 8000) std::abort();
  }
  return 0;
}
