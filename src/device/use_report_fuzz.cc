// SPDX-License-Identifier: Apache-2.0
//
// Reports of use as a monitor, or what answers in its place, sends them: what is read is within its bounds, and is read
// the same when it is written again.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "device/use_report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami::device;
  const auto read = ReadUse({reinterpret_cast<const char*>(data), size});
  if (!read) return 0;
  if (read->shares.size() > kMostUseShares) std::abort();
  for (const ShareUse& share : read->shares) {
    if (share.used < 0 || share.used > kMostUseMiB || share.limit < 0 || share.limit > kMostUseMiB) std::abort();
    if (share.core_limit < 1 || share.core_limit > 100) std::abort();
  }
  const auto again = ReadUse(WriteUse(*read));
  // What is written may be larger than what was read: escapes.
  if (again && again->shares != read->shares) std::abort();
  return 0;
}
