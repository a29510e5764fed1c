// SPDX-License-Identifier: Apache-2.0
//
// Every text that a node or a pod may carry, read by every reader. What is read back from what was written is the same.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "device/allocation_codec.h"
#include "device/handshake.h"
#include "device/lists.h"
#include "device/register_codec.h"

namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami::device;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto devices = DecodeRegisterJson(text))
    Check(*DecodeRegisterJson(EncodeRegisterJson(*devices)) == *devices);
  if (const auto devices = DecodeRegisterLegacy(text)) {
    if (!devices->empty()) Check(*DecodeRegisterLegacy(EncodeRegisterLegacy(*devices)) == *devices);
  }
  if (const auto scores = DecodePairScores(text)) Check(*DecodePairScores(EncodePairScores(*scores)) == *scores);
  if (const auto grant = DecodeGrant(text)) Check(*DecodeGrant(EncodeGrant(*grant)) == *grant);
  if (const auto list = DecodeReservations(text)) Check(*DecodeReservations(EncodeReservations(*list)) == *list);
  (void)ParseRequesting(text, 3600);
  (void)ParseScoringWeights(text);
  (void)SplitList(text);
  return 0;
}
