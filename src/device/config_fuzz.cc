// SPDX-License-Identifier: Apache-2.0
//
// device-config.yaml: any text gives a configuration or an error that begins with the file's name; and what programs
// would do with it names the file.

#include <cstdint>
#include <cstdlib>

#include "device/config.h"
#include "device/config_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = hami::device::ParseDeviceConfig({reinterpret_cast<const char*>(data), size}, "f");
  if (!config && !config.error().message.starts_with("f:")) std::abort();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& findings : {hami::device::CheckForOurs(text, "f"), hami::device::CheckForHami(text, "f")}) {
    for (const auto& finding : findings) {
      if (!finding.where.starts_with("f") || finding.message.empty()) std::abort();
    }
  }
  return 0;
}
