// SPDX-License-Identifier: Apache-2.0
//
// What of the time that a long launch took was its own, where containers tell each other what they have of the GPU
// (region/common_area.h), and the processes of one do (region/gpu_time.h): pure arithmetic, no clock, no driver. A GPU
// that is shared gives equal turns to all that have work. A launch of many turns shared them with the long launches of
// others that were under way, and all of those with the short ones, whose time is known. It is looked at a few ms
// apart; what begins or ends in between is somewhere in the middle.
#pragma once

#include <stdint.h>

#include "region/common_area.h"

namespace hami::vgpu {

// From one look to the next.
inline constexpr int64_t kMostTold = 100'000'000;  // ns beyond the time that passed

struct SharedTime {
  int64_t looked_at = 0;
  int64_t passed = 0;  // ns under way, up to the last look,
  int64_t own = 0;     // of which the GPU worked for this one
  int64_t owed = 0;    // what others with short launches were charged, and can not have had yet
  region::CommonUsed seen;
  bool told = false;  // other containers said what they did, at every look
};

// ns
constexpr int64_t ToldBetween(const region::CommonUsed& before, const region::CommonUsed& after) {
  return region::CommonUsedBetween(before.gpu, after.gpu) * (int64_t{1} << region::kCommonUnit);
}

constexpr SharedTime SharedFrom(const region::CommonUsed& seen, int64_t now) {
  return {now, 0, 0, 0, seen, !seen.silent};
}

// With `begun` it was at work since the last look; else nothing of it was.
constexpr void LookAround(SharedTime* s, const region::CommonUsed& seen, bool begun, int64_t now) {
  const int64_t span = now - s->looked_at;
  if (begun && span > 0) {
    // Corrections go down. Who leaves takes along all that he ever had, and brings it when he comes back: nobody has so
    // much in between.
    const int64_t told = ToldBetween(s->seen, seen);
    if (told > -kMostTold && told < span + kMostTold) s->owed += told;
    const int64_t longs = seen.longs + seen.siblings + s->seen.longs + s->seen.siblings;
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

// ns of what took `measured` from its beginning to its end, `beside` other containers or not; 0: nobody can say.
constexpr int64_t OwnOf(const SharedTime& s, int64_t measured, bool beside) {
  if ((beside && !s.told) || s.passed <= 0 || s.passed < measured / 2) return 0;
  // As in what was looked at, so in the few ms after the last look. The product of two times of some seconds is more
  // than fits.
  return static_cast<int64_t>(static_cast<double>(s.own) / static_cast<double>(s.passed) *
                              static_cast<double>(measured));
}

}  // namespace hami::vgpu
