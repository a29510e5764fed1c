// SPDX-License-Identifier: Apache-2.0
//
// What launches are expected to cost, and how that is learnt: pure arithmetic, no clock, no driver. Two things are
// measured, and both can only be inflated by what others do on the GPU, never deflated. So both trackers follow low
// values fast, values in a band around the estimate evenly, and high values slowly and only when they persist.
#pragma once

#include <stdint.h>

namespace hami::vgpu {

// The cost of one kind of launch (a kernel with its shape, or an executable graph) when it has the GPU to itself.
struct Estimate {
  int64_t cost = 0;      // ns, 0 = never measured
  int64_t high_min = 0;  // the least of the samples above the band
  int64_t doubtful = 0;  // charged before the first sample alone, for so many:
  int64_t spread = 0;    // how far below the cost samples were, at most
  uint32_t doubted = 0;
  uint32_t high_run = 0;     // samples in a row above the band,
  bool high_beside = false;  // taken while others used the GPU
  uint8_t samples = 0;       // saturates
  uint8_t alone = 0;         // of them taken while nobody else used the GPU; saturates
  bool gapless = false;      // the cost rests on measurements without a gap
  bool each = false;         // every launch is to be timed
  uint16_t near_run = 0;     // samples above the band by less than a slice of others, since one in it
  bool varies = false;       // by more than gaps do
  uint8_t drawn_out = 0;     // first measurements that were the host's time
  uint16_t rare = 0;         // so many more are to be timed, for one was out of all proportion
  int64_t last = 0;          // of those taken alone
  int64_t lately = 0;        // by how much the last few were above the cost, in the mean
};

// How a launch was measured. A pair of events around a launch also holds what the GPU waited for the launch, unless it
// had work ahead of it.
enum class Gap : uint8_t { kUnsure, kNone, kCertain };
struct Circumstances {
  Gap gap = Gap::kUnsure;
  int64_t host_gap = 0;       // ns that the host took between event and launch
  int64_t host_span = 0;      // and for all of it; what was not measured longer may have ended before the second event
  bool contended = false;     // others use the GPU
  bool suspected = false;     // that they do only follows from what this container was charged
  bool siblings = false;      // other processes of this container do, whose time is charged to them
  bool alone = false;         // nobody does, for certain
  bool told = false;          // others do, and what they had is not in it (pacer_shared.h)
  int64_t spare = INT64_MAX;  // ns that the limit leaves the GPU idle after a launch of this kind
  int64_t sharers = 1;        // beside others: of so many, each is to pay for a part of what was measured
  int64_t own = 100;          // per cent of what is measured that is this launch's, where streams overlap
};

inline constexpr uint32_t kConfident = 8;
inline constexpr uint32_t kDrawnOut = 3;       // so many first measurements may be the host's time
inline constexpr uint32_t kNeverGapless = 16;  // samples until that is believed of a kind, for a while
inline constexpr uint32_t kSettled = 64;
inline constexpr uint32_t kEnoughAlone = 3;
inline constexpr uint32_t kManyAlone = 64;           // of what varies, for a mean,
inline constexpr uint32_t kMean = 128;               // and so many make the mean of what is much alike
inline constexpr int64_t kAloneAtMost = 64'000'000;  // unless they take longer than that
inline constexpr uint32_t kPersistent = 16;
inline constexpr uint32_t kPersistentPhases = 3;
inline constexpr uint32_t kPersistentContended = 512;
inline constexpr uint32_t kPersistentNear = 64;
inline constexpr uint16_t kRare = 4096;
inline constexpr int64_t kRareFrom = 100'000;
inline constexpr int64_t kNear = 1'000'000;           // half a slice of a GPU that is shared by turns
inline constexpr int64_t kGap = 20'000;               // as long as gaps get
inline constexpr int64_t kLeastGap = 2'000;           // as short as the gap of an idle GPU gets
inline constexpr int64_t kInterrupted = 1'000'000;    // a host that took so long was loading code, or not running
inline constexpr int64_t kSeek = 5'000'000;           // for so long work ahead is looked for, of what varies
inline constexpr int64_t kWorthQuiet = 300'000;       // launches as long as this are to be measured alone
inline constexpr int64_t kGapless = 500'000;          // costs from here on: no gap matters
inline constexpr int64_t kWorthTiming = 800'000;      // launches as long as this are all timed,
inline constexpr int64_t kVaryWorthTiming = 300'000;  // and of a kind that varies these,
inline constexpr int64_t kOwnWorthTiming = 60'000;    // unless most of it is what other streams did

// Whether a short launch is to be timed only where the stream has work ahead. Of a kind for which that never was so it
// is tried again one time in eight: it may be that the host was slow just then. What varies by more than gaps do does
// not wait long for it: few measurements say less of its mean than many that hold a gap.
constexpr bool SeeksGapless(const Estimate& e, int64_t now, int64_t sampled_at) {
  if (e.gapless) return true;
  if (e.varies && now - sampled_at > kSeek) return false;
  return e.samples < kNeverGapless || (now >> 26) % 8 == 0;
}

// What is left of a measurement with a gap for certain: an idle GPU does at once what it is told, so the gap is as long
// as the host took. Never nothing: a short kernel can not be told from none.
constexpr int64_t WithoutGap(int64_t measured, int64_t host_gap) {
  const int64_t gap = kLeastGap + (host_gap < kGap ? host_gap : kGap);
  return measured - gap > measured / 16 ? measured - gap : measured / 16;
}

// By more than gaps do; what is as short as a gap can not be told from one.
constexpr bool Varies(const Estimate& e) { return e.cost > kGap / 2 && e.spread > kLeastGap && e.spread > e.cost / 16; }

constexpr int64_t BandTop(int64_t cost) { return cost + cost / 4 + 500; }

// One kernel with one grid may take four times as long with other arguments. Others that nobody knows of yet come in
// slices.
constexpr int64_t BandTopAlone(int64_t cost) { return BandTop(cost) > cost + kNear ? BandTop(cost) : cost + kNear; }

// How many measurements alone tell what it costs: of what varies as many as make a mean.
constexpr uint32_t EnoughAlone(const Estimate& e) {
  const uint32_t wanted = e.spread > e.cost / 32 ? kManyAlone : kConfident;
  const int64_t affordable = kAloneAtMost / (e.cost + 1);
  if (affordable >= wanted) return wanted;
  return affordable < kEnoughAlone ? kEnoughAlone : static_cast<uint32_t>(affordable);
}

constexpr bool WantsQuiet(const Estimate& e) {
  return e.alone < EnoughAlone(e) && (e.samples == 0 || e.cost >= kWorthQuiet);
}

// How far single ones are from the mean, of what was measured alone.
constexpr int64_t Reach(const Estimate& e) { return e.spread + e.spread / 4 + kGap; }

// The same while others use the GPU. Whoever varies little alone does not vary more then: what is above is theirs, and
// taken in often enough it would raise the band again.
constexpr int64_t BandTopBesideOthers(const Estimate& e) {
  return e.cost + (e.alone < kEnoughAlone ? e.cost / 8 + kGap : Reach(e));
}

// Nobody makes a launch shorter; by how much some were shorter, others may be longer.
constexpr void Widen(Estimate* e, int64_t off) {
  e->spread -= e->spread / 256;  // what was seen once is forgotten
  if (off > e->spread) e->spread = off;
}

// Among processes that take turns nobody tells which measurement is alone. How far few of them reach down says little
// of how far others reach up, and what is refused keeps the cost where it is.
constexpr int64_t BandTopInTurn(const Estimate& e) {
  const int64_t top = BandTopBesideOthers(e);
  const int64_t wide = e.cost + e.cost / 8 + kGap;
  return e.samples < kSettled && top < wide ? wide : top;
}

// A measurement above all that is likely: somebody else's time, until it persists.
constexpr int64_t LearnHigh(Estimate* e, int64_t measured, const Circumstances& at) {
  const bool contended = at.contended;
  if (contended != e->high_beside) e->high_run = 0;  // how many are theirs says nothing of those that are not
  e->high_beside = contended;
  if (e->high_run == 0 || measured < e->high_min) e->high_min = measured;
  const bool persistent = ++e->high_run > (contended ? kPersistentContended : kPersistent);
  if (persistent && contended && e->alone != 0 && e->cost >= kWorthQuiet) {
    // Others are always in the way, or it became dearer: one more alone will tell.
    if (e->alone >= kEnoughAlone) e->alone = kEnoughAlone - 1;
    e->high_run = 0;
  } else if (persistent) {
    const int64_t step = e->cost / (contended ? 64 : 8) + 1;
    e->cost = e->high_min - e->cost < step ? e->high_min : e->cost + step;
  }
  // Costs that are too low look like others at work, whose time is not believed: a circle. Slices come and go, and are
  // longer; what is always too much by less, but for those, is the launch's own.
  const bool near = at.suspected && measured - e->cost < kNear;
  if (!at.suspected) e->near_run = 0;
  if (near) ++e->near_run;
  if (near && e->near_run > kPersistentNear)
    e->cost += e->cost / 8 < measured - e->cost ? e->cost / 8 : measured - e->cost;
  if (contended || at.siblings) return e->cost;
  return measured < BandTop(e->cost) ? measured : BandTop(e->cost);
}

// The end of what others did may be in the first ones. When two in a row are alike and less, it was.
constexpr bool TwoAreLess(const Estimate& e, int64_t measured) {
  const int64_t apart = measured < e.last ? e.last - measured : measured - e.last;
  return e.cost >= kWorthQuiet && measured < e.cost - e.cost / 16 && apart < measured / 64;
}

// Whether it is the first that was taken alone, as far as that is known by now. What came out shorter alone by a slice
// of others than what was taken alone before shows that that was not. Likewise where it may have been a gap; and the
// first launch of all takes longer than the others.
constexpr bool FirstAlone(const Estimate& e, int64_t measured, const Circumstances& at) {
  if (at.contended || e.alone == 0) return !at.contended;
  const bool other = e.cost - measured >= kNear || e.cost <= kGap || e.alone == 1;
  return e.alone < kConfident && ((measured < e.cost - e.cost / 8 && other) || TwoAreLess(e, measured));
}

// A launch is let go when the one before is paid for, `spare` ns after that is expected to end. One of another process,
// which varies as this one does, ends later now and then; so long that makes it wait in the mean. A great spread may
// only come from the first ones, which waited.
constexpr int64_t WaitInTurn(const Estimate& e, int64_t spare) {
  const int64_t spread = e.spread < e.cost / 8 ? e.spread : e.cost / 8;
  return spare < spread ? (spread - spare) * (spread - spare) / (4 * spread) : 0;
}

// A measurement that may hold a wait for a turn among processes of this container, for any time. One behind others of
// its stream does less often.
constexpr int64_t LearnInTurn(Estimate* e, int64_t measured, const Circumstances& at, uint32_t seen) {
  const bool behind = at.gap == Gap::kNone;
  const int64_t share = seen < kSettled ? seen - kConfident / 2 : behind ? 16 : 128;
  e->cost += (measured - (behind ? 0 : WaitInTurn(*e, at.spare)) - e->cost) / share;
  return e->cost;
}

// Of launches that are much alike, but for some per cent, as many as are at hand make the mean: a few hundred a second
// of which the last eight count are off by a per cent now and then. When the last few are off by more than chance does,
// it became another launch.
constexpr int64_t LearnAlike(Estimate* e, int64_t measured) {
  e->lately += (measured - e->cost - e->lately) / 8;
  const int64_t some = e->cost / 16;
  const int64_t chance = (e->spread / 2 < some ? e->spread / 2 : some) + e->cost / 256;
  int64_t step = (measured - e->cost) / e->alone;
  if (e->lately > chance || e->lately < -chance) {
    step = e->lately;
    e->alone = kConfident;
  }
  e->cost += step;
  e->lately -= step;
  return measured;
}

// A measurement in which no gap matters: up and down alike, so that kernels that vary are charged their mean; what
// others did to the first ones goes soon, and what a slow host did counts little.
constexpr int64_t LearnEvenly(Estimate* e, int64_t measured, const Circumstances& at, uint32_t seen) {
  // By what is expected, and not by what was measured: else what is long counts less than what is short.
  const bool exact = at.host_span < e->cost / 8;
  // A mean that sways lets pass more than it holds back.
  const int64_t most = Varies(*e) && (seen == kSettled || (exact && e->alone > kConfident)) ? 32 : 8;
  int64_t share = at.contended && measured < e->cost - e->cost / 5 ? 2 : most;
  if (!at.contended && exact && e->alone < most) share = e->alone;
  // Behind others of its stream a launch waits for whole slices of others, or not at all.
  const bool others = at.gap != Gap::kNone || e->cost - measured >= kNear;
  if (others && !at.contended && e->alone < kConfident && measured < e->cost) {
    share = measured < e->cost / 2 ? 1 : e->alone;
  }
  if (exact && share == 8 && e->alone >= kConfident && !at.contended && !at.siblings) return LearnAlike(e, measured);
  e->cost += (measured - e->cost) / share;
  return measured;
}

// A measurement that may hold a gap: a small excess is more likely that than the kernel, and what was measured without
// one is better known.
constexpr int64_t LearnWithGap(Estimate* e, int64_t measured, bool in_company, uint32_t seen) {
  const bool far_below =
      measured < e->cost - e->cost / 5 && (in_company || seen < kConfident || e->cost <= kGap / 2 || e->rare != 0);
  if (e->gapless && !far_below) return e->cost;
  const bool gap = measured > e->cost && measured - e->cost < kGap;
  int64_t share = seen < kConfident ? 2 : 8;
  if (gap) share = 32;
  if (far_below) share = measured < e->cost / 2 ? 1 : 2;
  e->cost += (measured - e->cost) / share;
  if (e->cost < 1) e->cost = 1;
  return gap ? e->cost : measured;
}

// A gap is no longer than what the host took. Of what varies a mean needs many measurements, and such a gap does less
// to it than to have few.
constexpr bool GapMatters(const Estimate& e, const Circumstances& at) {
  const bool little = e.gapless && Varies(e) && e.rare == 0 && at.host_span + kLeastGap < e.cost / 8;
  return at.gap != Gap::kNone && !little;
}

// Of a short launch that is known without a gap, a measurement that may hold one tells two bounds: it took no longer
// than that, and no less than that without all of the host's time and the longest gap. Between them what is known
// stays; below, it is believed; above, again and again, it is another launch by now.
constexpr bool KnownBetter(const Estimate& e, const Circumstances& at) {
  return e.samples != 0 && e.gapless && GapMatters(e, at) && e.cost < kWorthQuiet;
}

constexpr bool WithinBounds(Estimate* e, int64_t measured, const Circumstances& at) {
  if (FirstAlone(*e, measured, at)) return false;
  const bool below = measured < e->cost - e->cost / 5;
  if (below && (!Varies(*e) || e->rare != 0)) return false;
  // Of what varies some are below; were those believed and the ones above not, they would be all that counts.
  e->near_run = below ? e->near_run + 1 : 0;
  if (e->near_run > kPersistentNear) e->gapless = false;
  const bool longer = measured - at.host_span > e->cost + kGap && !at.contended && !at.siblings;
  e->high_run = longer ? e->high_run + 1 : 0;
  if (e->high_run > kPersistent) e->gapless = false;
  return true;
}

// Beside others what is launched into an idle stream waits for its turn first, for any time up to all of theirs. Taken
// in where that is short, it would raise the cost, and with it what is thought to be short.
constexpr bool WaitsForTurn(const Estimate& e, int64_t measured, const Circumstances& at) {
  return at.contended && at.gap == Gap::kCertain && e.cost >= kWorthQuiet && e.alone >= kEnoughAlone &&
         measured >= e.cost - Reach(e);
}

// Out of all proportion, and nobody else's time: an argument makes it another launch. A mean says nothing of such
// kinds, so each is timed from then on, however short most of them are.
constexpr bool OutOfProportion(const Estimate& e, int64_t measured, const Circumstances& at) {
  if (!at.alone || at.siblings) return false;
  const int64_t certain = at.gap == Gap::kNone ? measured : measured - at.host_span;
  return certain > e.cost + kRareFrom && (e.rare != 0 || certain > 4 * e.cost);
}

// Takes one measurement into the estimate and returns how much of it is to be charged.
constexpr int64_t TakeIn(Estimate* e, int64_t measured, const Circumstances& at) {
  const bool known_better = KnownBetter(*e, at);
  const uint32_t seen = e->samples;
  if (seen < kSettled) ++e->samples;
  if (seen != 0 && OutOfProportion(*e, measured, at)) {
    e->varies = true;
    e->rare = kRare;
    e->cost += (measured - e->cost) / (Varies(*e) && seen == kSettled ? 32 : 8);
    return measured;
  }
  if (known_better && WithinBounds(e, measured, at)) return e->cost;
  const bool exact = measured > at.host_span;
  if (at.gap == Gap::kCertain && !known_better) measured = WithoutGap(measured, at.host_gap);
  if (measured < 1) measured = 1;
  const bool taking_turns = at.siblings && !at.contended && e->cost >= kGapless;
  const bool beside = at.contended || taking_turns;
  const bool its_own = exact && !at.siblings;
  const bool high = !at.told && measured > (taking_turns ? BandTopInTurn(*e)
                                            : beside     ? BandTopBesideOthers(*e)
                                            : its_own    ? BandTopAlone(e->cost)
                                                         : BandTop(e->cost));
  const bool first_alone = FirstAlone(*e, measured, at);
  if (first_alone) e->spread = e->alone = 0;
  if (!at.contended) e->last = measured;
  const bool far = measured > e->cost + kGap || measured < e->cost - kGap;
  e->varies = seen != 0 && !first_alone && (e->varies || (far && its_own && !beside));
  if (!at.contended && (first_alone || !high) && e->alone < kMean) ++e->alone;
  const bool waits = !first_alone && WaitsForTurn(*e, measured, at);
  if (!first_alone && !waits && e->alone != 0 && measured < e->cost) Widen(e, e->cost - measured);
  if (seen == 0 || first_alone || (at.gap == Gap::kNone && !e->gapless && !e->each && !high)) {
    e->cost = measured;
    e->lately = 0;
    e->samples = 1;
    if (!at.contended) e->alone = 1;  // a mean begins anew
    e->gapless = at.gap == Gap::kNone;
    e->high_run = 0;
    return measured;
  }
  if (high) return LearnHigh(e, measured, at);
  e->high_run = e->near_run = 0;
  if (waits) return e->cost;
  if (taking_turns && seen >= kConfident && measured > e->cost - e->cost / 5) {
    return LearnInTurn(e, measured, at, seen);
  }
  const bool even =
      e->cost >= kGapless || !GapMatters(*e, at) || (at.gap == Gap::kCertain && !e->gapless && Varies(*e));
  if (even) return LearnEvenly(e, measured, at, seen);
  return LearnWithGap(e, measured, beside || at.siblings, seen);
}

// Whether a first measurement is mostly the host's: a driver loads code at the first launch of a kernel, for as long as
// a hundred ms, or the thread was not running between launch and event. It says next to nothing, so the next one is to
// be the first. Where the host always takes that long, that is soon believed.
constexpr bool DrawnOut(const Estimate& e, int64_t measured, const Circumstances& at) {
  return e.samples == 0 && e.drawn_out < kDrawnOut && at.gap != Gap::kNone && at.host_span >= kInterrupted &&
         measured - at.host_span < measured / 2;
}

// Takes one measurement and returns how much of it is to be charged: all, unless it looks inflated. While others are
// known to use the GPU, whatever is above the estimate counts as theirs, until that goes on for long; what was charged
// before the first one taken alone comes back as far as that was less.
constexpr int64_t Learn(Estimate* e, int64_t measured, Circumstances at = {}) {
  if (DrawnOut(*e, measured, at)) {
    ++e->drawn_out;
    return measured > at.host_span ? measured - at.host_span : 0;
  }
  const bool first = e->samples == 0;
  int64_t accepted = TakeIn(e, measured, at);
  // Were each timed only while its cost is thought high, low costs would last longer than high ones.
  const int64_t worth = Varies(*e) ? kVaryWorthTiming : kWorthTiming;
  if (e->cost >= worth) e->each = true;
  if (e->cost < worth / 2 || e->cost / 100 * at.own < kOwnWorthTiming) e->each = false;
  if (e->rare > 0) e->each = --e->rare > 0;
  if (at.contended) {
    accepted /= at.sharers;
    if (e->alone != 0 || first) return accepted;
    e->doubtful += accepted;
    ++e->doubted;
    return accepted;
  }
  const int64_t excess = e->doubtful - int64_t{e->doubted} * accepted;
  e->doubtful = 0;
  e->doubted = 0;
  return excess > 0 ? accepted - excess : accepted;
}

// A launch that is paid for as its time passes: of a kind that is not known, or a long one that takes longer than it
// was expected to.
struct Running {
  int64_t expected = 0;  // was charged when it was launched
  int64_t passed = 0;    // up to now,
  int64_t paid = 0;      // of it was charged beyond what was expected,
  int64_t room = 0;      // and no more than this before it has ended
};

// What a kind that is not known is charged before it has ended. It may be waiting for what is launched next, by this
// thread or another, so what is launched next must not wait for its end. Each further launch of a kind that is not
// known doubles it, or a program could launch any number before it has one measured.
inline constexpr int64_t kRoom = 20'000'000;
inline constexpr int64_t kLong = kRoom;
inline constexpr int64_t kToldAsLong = kLong / 2;  // what may come to be long beside others is not told as short

// Of one that is known, what is above a quarter more is likely somebody else's time; it may also be waiting.
constexpr Running RunningOf(int64_t cost) { return {cost, 0, 0, cost == 0 ? kRoom : cost >= kLong ? cost / 4 : 0}; }

// What is to be charged when that much more time has passed.
constexpr int64_t PayFor(Running* r, int64_t time) {
  r->passed += time;
  const int64_t beyond = r->passed - r->expected;
  const int64_t charge = (beyond < r->room ? beyond : r->room) - r->paid;
  if (charge <= 0) return 0;
  r->paid += charge;
  return charge;
}

constexpr void MakeRoom(Running* r) {
  if (r->room < 2 * r->passed) r->room = 2 * r->passed;
}

// What is launched behind such a one on the very same stream is nothing that it can be waiting for. So it is held for
// longer than by what is charged, though not for ever: the thread that is held may be the one to launch the other thing
// afterwards. After a time in vain nobody is held so for a while, and the time in vain makes no room.
inline constexpr int64_t kPatience = 1'000'000'000;
inline constexpr int64_t kImpatience = 16 * kPatience;
constexpr void HeldInVain(Running* r) {
  if (r->passed > r->room) r->passed = r->room;
}

// How long to sleep until the end is looked for again, of what has been at work for so long.
constexpr int64_t EndPoll(int64_t at_work) {
  const int64_t poll = at_work / 32;
  return poll < 20'000 ? 20'000 : poll < 500'000 ? poll : 500'000;
}

// Whether other processes of this container are at work, from what all but this one were charged so far.
struct Siblings {
  int64_t charged = 0;
  int64_t until = 0;  // by then they are through with what they were charged
  bool known = false;
};
constexpr void LookAt(Siblings* s, int64_t charged, int64_t now) {
  if (s->known && charged > s->charged) s->until = (s->until > now ? s->until : now) + charged - s->charged;
  s->charged = charged;
  s->known = true;
}

// Whether others are at work, from how busy the device was and what this container was charged in the same second or
// so, in percent. A long kernel is charged where it begins and may run in the next second, so one look says little.
struct Suspicion {
  int64_t excess = 0;  // 1/1000 percent, of the last looks
  uint32_t skip = 0;   // so many more looks say nothing
};
inline constexpr int64_t kLooks = 8;
inline constexpr int64_t kOthersFrom = 8'000;  // below that it is rounding and lag
constexpr bool Suspect(Suspicion* s, int64_t charged, int64_t busy) {
  if (s->skip > 0) {
    --s->skip;
    return s->excess > kOthersFrom;
  }
  s->excess += ((busy - charged) * 1000 - s->excess) / kLooks;
  return s->excess > kOthersFrom;
}

// Limits changed. What ran without one was charged to nobody, and NVML tells of it a second later still.
constexpr void SkipLooks(Suspicion* s) { s->skip = 2; }

// A name for a kind of launch, well mixed; never 0.
constexpr uint64_t LaunchId(uint64_t handle, uint64_t a, uint64_t b, uint64_t c) {
  constexpr uint64_t kMultiplier = 0x9e37'79b9'7f4a'7c15;
  uint64_t h = (handle ^ a) * kMultiplier;
  h = (h ^ h >> 29 ^ b) * kMultiplier;
  h = (h ^ h >> 31 ^ c) * kMultiplier;
  return (h ^ h >> 32) | 1;
}

// What is launched: the name of its kind; and the kernel or executable graph, of which other kinds may be known, with
// the threads of the grid, 1 for a graph.
struct LaunchName {
  uint64_t kind = 0;
  uint64_t handle = 0;
  uint64_t threads = 0;
};

}  // namespace hami::vgpu
