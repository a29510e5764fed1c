// SPDX-License-Identifier: Apache-2.0
//
// What the number in a resource, a quota or an annotation counts; one rule for all of them.
//
//   memory, plain       MiB, times the configured memory factor. `3k` is how the API server writes `3000`: suffixes
//                       from k to E and exponents say no unit
//   memory, `16Gi`      bytes: a binary suffix is never the API server's. Rounded down to whole MiB, without the factor
//   everything else     pieces: GPUs, percent
//
// What is not understood, or cannot be meant, is an error that names the remedy: never nothing, never a guess.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "device/types.h"

namespace hami::device {

// 16 TiB: more than any card has, several times oversubscribed.
inline constexpr MiB kMostOfCard = (1LL << 24) - 1;
// More than 12,000 cards of 80 GiB, in one namespace: `1G` and more were meant as bytes.
inline constexpr MiB kMostOfNamespace = 999'999'999;

struct Memory {
  MiB mib = 0;
  bool from_bytes = false;
};

// MOST: beyond that a plain number is refused, as one of bytes that lacks its unit.
base::Result<Memory> ReadMemory(std::string_view text, std::int64_t factor, MiB most);

// A whole number from 0 to MOST.
base::Result<std::int64_t> ReadCount(std::string_view text, std::int64_t most);

}  // namespace hami::device
