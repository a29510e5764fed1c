// SPDX-License-Identifier: Apache-2.0
//
// Streams side by side take less together than one by one: the factor by which they do, learnt from phases that are
// measured as a whole. Pure arithmetic on ns of GPU time, no clock, no driver.
#pragma once

#include <stdint.h>

#include "vgpu/pacing/pacer_model.h"

namespace hami::vgpu {

// So many launches of each of several streams side by side go together after a wait, so that they overlap.
inline constexpr int64_t kSideBySide = 80;

// How much of the sum of its launches' costs a process really keeps the GPU busy: less than all when its streams run
// side by side. In 1/65536.
struct Overlap {
  static constexpr int64_t kOne = 65536;
  static constexpr int64_t kLeast = kOne / 256;

  int64_t factor = kOne;
  int64_t weight = 0;     // ns; how much was measured for it, less with each further phase
  int64_t high_min = 0;   // the least of the phases that were far above it,
  uint32_t high_run = 0;  // so many in a row
  uint32_t samples = 0;
  uint32_t alone = 0;  // long phases measured while nobody else used the GPU, since others came out shorter; saturates
  int streams = 1;     // in the last phase
};

constexpr int64_t Scale(int64_t cost, const Overlap& o) {
  // Two steps, so that hours do not overflow.
  return cost / Overlap::kOne * o.factor + cost % Overlap::kOne * o.factor / Overlap::kOne;
}

// An on-phase: it kept the GPU for `busy`, its launches cost `sum` by the estimates.
struct OnPhase {
  int64_t busy = 0;
  int64_t sum = 0;
  int streams = 0;
  bool long_enough = false;  // where it began and ended matters little
  bool contended = false;    // others used the GPU
  bool suspected = false;    // that they did only follows from what this container was charged
  bool quiet = false;        // they were asked not to, and did not as far as they know
};

// Each stream does one thing at a time; a shorter phase only had its beginning counted with the one before. Of a long
// one it is the estimates that are too high. They are as often too low, and what is cut off on one side is a bias.
constexpr int64_t LeastRatio(const OnPhase& phase) {
  const int64_t least = phase.streams < 256 ? Overlap::kOne / phase.streams : Overlap::kLeast;
  return phase.long_enough ? least - least / 4 : least;
}

// While streams overlap a single measurement holds what the others did meanwhile, now more, now less. So where the cost
// of a kind moves, that has `share` of all launches, what all of them are charged together stays until a phase tells.
// Not below what so few streams can have: a launch may have become longer, too.
inline constexpr int64_t kAllThereIs = 256;
constexpr void CostMoves(Overlap* o, int64_t from, int64_t to, int64_t share) {
  if (o->factor >= Overlap::kOne || from <= 0 || to <= 0) return;
  const int64_t before = from * kAllThereIs;
  const int64_t after = before + (to - from) * share;
  const int64_t factor = (o->factor * before + after / 2) / after;
  const int64_t least = LeastRatio({.streams = o->streams, .long_enough = true});
  const int64_t floor = least < o->factor ? least : o->factor;
  o->factor = factor > Overlap::kOne ? Overlap::kOne : factor < floor ? floor : factor;
}

constexpr int64_t RatioOf(const OnPhase& phase) {
  return phase.busy >= phase.sum ? Overlap::kOne : phase.busy * Overlap::kOne / phase.sum;
}

// Beside others a phase is always longer, by what nobody knows. Once some had the GPU alone, only one that is clearly
// shorter, or a factor that is impossible, says anything: then it became another program's.
constexpr bool TellsSomething(const Overlap& o, const OnPhase& phase) {
  if (phase.sum <= 0 || phase.busy <= 0 || phase.streams <= 0) return false;
  if (!phase.contended || phase.suspected || o.alone == 0) return true;
  return (phase.long_enough && RatioOf(phase) < o.factor - o.factor / 8) || o.factor < LeastRatio(phase);
}

// While others have their turns, work for the streams piles up, and overlaps as well as it can. In a phase in which
// they are quiet the GPU is as fast as the host, which leaves gaps now and then that there are none of else.
constexpr int64_t WithoutGaps(int64_t ratio, const Overlap& o) {
  const bool somewhat = ratio > o.factor && ratio < o.factor + o.factor / 8;
  return somewhat ? o.factor + (ratio - o.factor) / 3 : ratio;
}

// Takes one phase into the factor. Returns what it is to be charged beyond what the factor said, less than nothing
// mostly.
constexpr int64_t Learn(Overlap* o, const OnPhase& phase) {
  if (!TellsSomething(*o, phase)) return 0;
  if (phase.contended && o->alone >= kEnoughAlone) o->alone = kEnoughAlone - 1;
  o->streams = phase.streams;
  const int64_t before = o->factor;
  int64_t ratio = RatioOf(phase);
  const int64_t least = LeastRatio(phase);
  const bool possible = ratio >= least;
  if (!possible) ratio = least;
  if (!phase.contended && phase.long_enough) {
    // What there was had others in it, or was little; and what others did to the first phases goes with one shorter.
    if (phase.quiet && o->alone < kConfident && ratio < before - before / 8) o->alone = 0;
    if (o->alone == 0) o->weight = 0;
    if (o->alone < kConfident) ++o->alone;
  }
  if (phase.quiet) ratio = WithoutGaps(ratio, *o);
  // A host that feeds streams by fits and starts makes phases that differ by half, and their mean is what counts.
  const int64_t top = phase.contended ? before + before / 4 : 2 * before;
  int64_t share = 0;  // 0: by its length, beside that of those before
  bool persistent = false;
  if ((ratio < before / 2 && phase.long_enough && possible) || (ratio < before && o->samples == 0)) {
    share = 1;  // nothing makes a phase shorter than it was, but that its beginning counted with the one before
  }
  if (ratio <= top) {
    o->high_run = 0;
  } else if (possible) {
    if (o->high_run == 0 || ratio < o->high_min) o->high_min = ratio;
    // A factor that is too low looks like others at work, too: it must not be what keeps it low.
    persistent =
        ++o->high_run > (phase.suspected ? kPersistent : kPersistentPhases) && (phase.suspected || !phase.contended);
  }
  if (ratio > top) {
    ratio = persistent ? o->high_min : top;
    share = persistent ? 2 : 8;
  }
  if (phase.contended && ratio > before && !persistent) {
    share = before < least ? 8 : 64;
    if (before < least) ratio = least;  // whatever others did, so few streams can not have taken less
  }
  if (o->samples < kConfident) ++o->samples;
  o->factor += share != 0 ? (ratio - before) / share : (ratio - before) * phase.sum / (o->weight + phase.sum);
  o->weight = (o->weight + phase.sum) / 4 * 3;
  if (ratio > before && (phase.contended || share != 0)) return 0;
  return (ratio - before) * (phase.sum / Overlap::kOne);
}

}  // namespace hami::vgpu
