// SPDX-License-Identifier: Apache-2.0
//
// Quantities and amounts: memory is never more than was written, nor than there can be.

#include <cstdint>
#include <cstdlib>

#include "device/amount.h"
#include "device/quantity.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami::device;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto quantity = ParseQuantity(text);
  const auto memory = ReadMemory(text, 1, kMostOfCard);
  if (!memory) return 0;
  if (!quantity || quantity->value < 0 || memory->mib < 0 || memory->mib > kMostOfCard) std::abort();
  if (memory->from_bytes ? memory->mib > quantity->value >> 20 : memory->mib != quantity->value) std::abort();
  return 0;
}
