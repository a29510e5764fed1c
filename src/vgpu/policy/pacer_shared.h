// SPDX-License-Identifier: Apache-2.0
//
// What of the time that a long launch took was its own, where containers tell each other what they have of the GPU
// (region/common_area.h): pure arithmetic, no clock, no driver. A GPU that is shared gives equal turns to all that have
// work. A launch of many turns shared them with the long launches of others that were under way, and all of those with
// the short ones, whose time is known. It is looked at a few ms apart; what begins or ends in between is somewhere in
// the middle.
#pragma once

#include <stdint.h>

#include "region/common_area.h"

namespace hami::vgpu {

// From one look to the next.
inline constexpr int64_t kMostTold = 100'000'000;

struct SharedTime {
  int64_t looked_at = 0;
  int64_t passed = 0;  // ns under way, up to the last look,
  int64_t own = 0;     // of which the GPU worked for this one
  int64_t owed = 0;    // what others with short launches were charged, and can not have had yet
  region::CommonUsed seen;
  bool told = false;  // others said what they did, at every look
};

constexpr SharedTime SharedFrom(const region::CommonUsed& seen, int64_t now) {
  return {now, 0, 0, 0, seen, !seen.silent};
}

// With `begun` it was at work since the last look; else nothing of it was.
constexpr void LookAround(SharedTime* s, const region::CommonUsed& seen, bool begun, int64_t now) {
  const int64_t span = now - s->looked_at;
  if (begun && span > 0) {
    // Corrections go down; with who leaves all that he ever had goes. Nobody is charged for so long beforehand.
    const auto told = static_cast<int64_t>(seen.gpu - s->seen.gpu);
    if (told > -kMostTold) s->owed += told < kMostTold ? told : kMostTold;
    const int64_t longs = seen.longs + s->seen.longs;
    const int64_t least = span * 2 / (2 + longs + seen.shorts + s->seen.shorts);
    // What they were charged beforehand, and can not have had yet, they have later.
    const int64_t most = span - (2 + longs) * least / 2;
    const int64_t others = s->owed < 0 ? 0 : s->owed < most ? s->owed : most;
    s->owed -= others;
    s->passed += span;
    s->own += (span - others) * 2 / (2 + longs);
  }
  s->looked_at = now;
  s->seen = seen;
  s->told = s->told && !seen.silent;
}

// ns of what took `measured` from its beginning to its end; 0: nobody can say.
constexpr int64_t OwnOf(const SharedTime& s, int64_t measured) {
  if (!s.told || s.passed < measured / 2) return 0;
  const int64_t rest = measured > s.passed ? (measured - s.passed) / (1 + s.seen.longs) : 0;
  const int64_t own = s.own + rest;
  return s.passed > measured ? own * measured / s.passed : own;
}

}  // namespace hami::vgpu
