// SPDX-License-Identifier: Apache-2.0
//
// Sizes and shares as people write them: `3g`, `512MiB`, `1.5 GB`, `30%`. Every unit is a power of 1024, as in the
// limits of HAMi, whichever way it is spelled. Refuses what is not wholly understood (trailing characters, signs,
// values that overflow or are not a whole number of bytes) instead of guessing.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace hami::base {

enum class Bytes : std::uint64_t {};

constexpr std::uint64_t Count(Bytes bytes) { return static_cast<std::uint64_t>(bytes); }

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// "3g", "3G", "3GB", "3GiB", "1.5g", "4096" (bytes), "0x1000". Never zero: an absent limit is written by leaving it
// out.
Result<Bytes> ParseBytes(std::string_view text);

// "30" or "30%": a whole number from 1 to 100.
Result<unsigned> ParsePercent(std::string_view text);

// A part of something: an amount, or a percentage of the whole.
struct Percent {
  unsigned value = 0;
};
using Portion = std::variant<Bytes, Percent>;
Result<Portion> ParsePortion(std::string_view text);

// The shortest exact-looking form with at most one decimal: "3 GiB", "1.5 GiB", "512 MiB", "17 B". Rounds down, so that
// a figure shown as used never exceeds the limit that it is held against.
std::string FormatBytes(std::uint64_t bytes);

// "12s", "3m05s", "2h10m", "4d03h".
std::string FormatAge(std::int64_t seconds);

}  // namespace hami::base
