// SPDX-License-Identifier: Apache-2.0
//
// Whatever stands in a share's record, it is refused or comes out valid: a harmless name, grants within their bounds,
// and the same again when it is written and read once more.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cli/share.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace cli = hami::cli;
  const auto record = cli::DecodeRecord({reinterpret_cast<const char*>(data), size});
  if (!record) return 0;
  if (!cli::CheckShareName(record->name) || record->grants.empty() || record->grants.size() > 16) std::abort();
  for (const cli::Grant& grant : record->grants) {
    if (grant.reserved_bytes > grant.limit_bytes || grant.cores > 100) std::abort();
  }
  const std::string text = cli::EncodeRecord(*record);
  const auto again = cli::DecodeRecord(text);
  if (!again || cli::EncodeRecord(*again) != text) std::abort();
  return 0;
}
