// SPDX-License-Identifier: Apache-2.0
//
// An area of any content can be joined: the line is one of the area's, and nobody waits for ever.
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
  const CommonLines lines = CommonLinesOf(area.get());
  for (const uint64_t gpu : {uint64_t{1}, area->members[0].gpu}) {
    const int line = lines.Join(static_cast<int>(area->members[0].word % 512) - 1, 1, gpu, kNow);
    if (line < -1 || line >= lines.room || (line >= 0 && !lines.Has(line, 1, gpu))) std::abort();
    for (const int64_t others : {int64_t{0}, int64_t{area->members[1].rate}, int64_t{10'000} * kCommonMembers}) {
      const uint32_t rate = CommonBurstRate(3000, 8000, others);
      if (rate < 3000 || rate > 8000) std::abort();
    }
  }
  return 0;
}
