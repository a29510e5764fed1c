// SPDX-License-Identifier: Apache-2.0
//
// Amounts as people write them into variables. What is plain is understood, as `hami run` understands it; what is not
// is called invalid, and the caller says what that means. Nothing here allocates.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

struct ParsedSize {
  uint64_t bytes = 0;    // 0 = no limit
  bool warn = false;     // understood, but HAMi would have read something else
  bool invalid = false;  // not understood; empty text is 0 bytes, and valid
};

// "3g", "512M", "1.5g", "1GiB", "15360MB", "0x40000000", "1073741824", with blanks (also ends of lines) around it and
// before the unit. Multiples are of 1024, as HAMi's. A fraction is rounded down to bytes, but never to none.
ParsedSize ParseSize(const char* text);

struct ParsedPercent {
  uint64_t value = 0;
  bool invalid = false;
};

// A whole number, with or without a percent sign: "30", "30%", "0x1e", "". It may be above 100.
ParsedPercent ParsePercent(const char* text);

// "true", "1", "t", "yes", "on" in any case, and their opposites; `otherwise` for anything else.
bool ParseBool(const char* text, bool otherwise);

// A whole number from 0 to `most` and nothing else; -1 for anything else.
int NumberUpTo(int most, const char* text);

// Of two limits, where 0 is none.
constexpr uint64_t LowerLimit(uint64_t a, uint64_t b) { return a == 0 ? b : b == 0 || a < b ? a : b; }

}  // namespace hami::vgpu
