// SPDX-License-Identifier: Apache-2.0
//
// How a device plugin writes a node's cards into an annotation: the JSON list that most vendors use and the older
// colon-separated string, and the list of pair scores beside them. Decoding is total: hostile text gives an error,
// never a half-read list. Refuses negative sizes and counts, which no card has.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"

namespace hami::device {

// Of one node. A machine has 16 at most, and the table of their pair scores, which grows with the square, stays small;
// more can not be read.
inline constexpr std::size_t kMostCards = 256;

base::Result<std::vector<Device>> DecodeRegisterJson(std::string_view text);
// Keys in the order of HAMi's plugin; zero values are left out, as there.
std::string EncodeRegisterJson(const std::vector<Device>& devices);

// `id,count,memMiB,cores,type,numa,health[,index,mode]:` per card.
base::Result<std::vector<Device>> DecodeRegisterLegacy(std::string_view text);
std::string EncodeRegisterLegacy(const std::vector<Device>& devices);

// UUID → (peer's UUID → score).
using PairScores = std::map<std::string, std::map<std::string, int, std::less<>>, std::less<>>;
base::Result<PairScores> DecodePairScores(std::string_view text);
std::string EncodePairScores(const PairScores& scores);

}  // namespace hami::device
