// SPDX-License-Identifier: Apache-2.0
//
// Quantities: an integral one has itself as its value.

#include <cstdint>
#include <cstdlib>

#include "device/quantity.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto quantity = hami::device::ParseQuantity({reinterpret_cast<const char*>(data), size});
  if (quantity && quantity->integer && *quantity->integer != quantity->value) std::abort();
  return 0;
}
