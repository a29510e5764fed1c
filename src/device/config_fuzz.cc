// SPDX-License-Identifier: Apache-2.0
//
// device-config.yaml: any text gives a configuration or an error that begins with the file's name.

#include <cstdint>
#include <cstdlib>

#include "device/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = hami::device::ParseDeviceConfig({reinterpret_cast<const char*>(data), size}, "f");
  if (!config && !config.error().message.starts_with("f:")) std::abort();
  return 0;
}
