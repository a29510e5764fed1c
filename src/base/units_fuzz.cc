// SPDX-License-Identifier: Apache-2.0
//
// Whatever the text, a size is either refused or survives being written down in bytes and read again.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/units.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = hami::base::ParseBytes(text)) {
    const auto again = hami::base::ParseBytes(std::to_string(hami::base::Count(*bytes)));
    if (!again || *again != *bytes || hami::base::Count(*bytes) == 0) std::abort();
  }
  if (const auto percent = hami::base::ParsePercent(text); percent && (*percent < 1 || *percent > 100)) std::abort();
  return 0;
}
