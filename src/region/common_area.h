// SPDX-License-Identifier: Apache-2.0
//
// What containers that share a GPU tell each other about its time: one small file, a line for each container and GPU.
// A container says until when it expects to be at work there, how much it may have, and how important it is; it
// asks who else is at work. All of it is advice: nobody's limit is ever raised above what its own settings allow,
// though what others say that they had of a long launch's time is not charged for it, and a line that nobody renews is
// as good as gone. Time is always a parameter (CLOCK_MONOTONIC ns).
//
// Any content is survived: times out of reach count as long ago, numbers are clamped, and a line whose owner changes
// under its user is joined anew. A file that is too short is refused; one that shrinks later is left alone.
//
// The path is that of the file, which is for one user, as whoever may write it may cut it short under the others; or
// that of a socket at which somebody hands it out, sealed so that nobody can: that is for users who do not trust each
// other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "region/layout.h"

namespace hami::region {

inline constexpr uint64_t kCommonMagic = 0x316d'6d63'494d'4148;  // "HAMIcmm1", little endian
inline constexpr uint32_t kCommonMembers = 255;

struct alignas(64) CommonMember {
  uint64_t container;    // 0 = free
  uint64_t gpu;          // a hash of its UUID
  int64_t seen_at;       // the last launch, or wait for one
  int64_t active_until;  // when what was launched is expected to end
  uint16_t rate;         // 1/10000 of the GPU's time; 0 = no limit, 10000 = what those who have one leave
  uint16_t lag;          // what it is due and could not have as others were at work, in kCommonLagUnit ns
  int32_t priority;      // as CUDA_TASK_PRIORITY: lower is more important
  int64_t quiet_until;   // until then it measures, and asks the others to let it have the GPU alone
  int64_t idle_since;    // it holds its launches, and nothing is under way since then; 0: not known
  uint64_t used;         // see CommonUse
};
static_assert(sizeof(CommonMember) == 64);

struct CommonArea {
  uint64_t magic;
  uint32_t used;  // lines from here on were never used
  uint32_t reserved[13];
  CommonMember members[kCommonMembers];
};
static_assert(sizeof(CommonArea) == 16384);

inline constexpr int64_t kCommonPresent = 2'000'000'000;   // not seen for so long is gone
inline constexpr int64_t kCommonReach = 1'000'000'000;     // nobody says anything about times beyond
inline constexpr int64_t kCommonQuiet = 50'000'000;        // nobody may ask for more
inline constexpr int64_t kCommonQuietAgain = 200'000'000;  // of which nobody waits longer than that for all who ask
inline constexpr uint32_t kCommonAll = 10'000;             // of the GPU's time, as a rate
inline constexpr int64_t kCommonWants = 20'000'000;        // seen within that: it has use for GPU time
inline constexpr int64_t kCommonLagUnit = 16'384;          // ns, of what lags

inline bool CommonSeenWithin(const CommonMember& m, int64_t now, int64_t span) {
  const int64_t seen = Load(m.seen_at);
  return seen > now - span && seen < now + span;
}

// The line of a container on a GPU, -1 when there is no room.
inline int CommonJoin(CommonArea* area, uint64_t container, uint64_t gpu, int64_t now) {
  const uint32_t used = Load(area->used);
  const uint32_t known = used < kCommonMembers ? used : kCommonMembers;
  for (uint32_t i = 0; i < known; ++i) {
    if (Load(area->members[i].container) == container && Load(area->members[i].gpu) == gpu) return static_cast<int>(i);
  }
  for (uint32_t i = 0; i < kCommonMembers; ++i) {
    CommonMember& m = area->members[i];
    uint64_t owner = Load(m.container);
    if (owner != 0 && CommonSeenWithin(m, now, kCommonPresent)) continue;
    if (!__atomic_compare_exchange_n(&m.container, &owner, container, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      continue;
    }
    Store(m.gpu, gpu);
    Store(m.active_until, int64_t{0});
    Store(m.quiet_until, int64_t{0});
    Store(m.idle_since, int64_t{0});
    Store(m.lag, uint16_t{0});
    Store(m.used, uint64_t{0});
    Store(m.seen_at, now);
    for (uint32_t seen = Load(area->used); seen < i + 1 || seen > kCommonMembers;) {
      if (__atomic_compare_exchange_n(&area->used, &seen, i + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
    }
    return static_cast<int>(i);
  }
  return -1;
}

inline bool CommonIsMine(const CommonArea& area, int line, uint64_t container, uint64_t gpu) {
  return line >= 0 && line < static_cast<int>(kCommonMembers) && Load(area.members[line].container) == container &&
         Load(area.members[line].gpu) == gpu;
}

// What is to be known of the others on a GPU.
struct CommonView {
  int64_t active_until = 0;  // the latest of all others
  int64_t under_way = 0;     // the same, without those that tell that nothing of theirs is
  int64_t active = 0;        // how many of them are at work,
  int64_t held = 0;          // hold their launches for somebody who measures,
  int64_t present = 0;       // or were lately
  int64_t quiet_until = 0;   // of those that are at least as important
  int64_t higher_until = 0;  // of those that are more important
  int64_t lower_until = 0;   // of those that are less important
  bool higher_present = false;
  bool lower_present = false;
  int64_t wanted = 0;  // the rates of those that have use for GPU time; one without a limit wants all
  bool limited_present = false;
  int64_t limited_until = 0;   // of those that have a limit
  int64_t limited_wanted = 0;  // their rates, of those that have use for GPU time,
  int64_t unlimited = 0;       // and how many others have
  int64_t lag = 0;             // ns, the largest of those that are at work and at least as important
};

// Whether any of the others was at work then or later. Who told while the GPU was his alone, and shares it since, ends
// later than he said, by as much as he has in flight; only who says that he is done is believed.
inline constexpr int64_t kCommonOverrun = 8'000'000;
constexpr bool CommonAtWorkSince(const CommonView& others, int64_t since) {
  return others.active_until >= since || others.under_way + kCommonOverrun >= since;
}

// The lines of those who are there, but for this one.
template <typename See>
inline void CommonForOthers(const CommonArea& area, int line, uint64_t gpu, int64_t now, See see) {
  const uint32_t used = Load(area.used);
  const int lines = static_cast<int>(used < kCommonMembers ? used : kCommonMembers);
  for (int i = 0; i < lines; ++i) {
    const CommonMember& m = area.members[i];
    const bool there = Load(m.container) != 0 && Load(m.gpu) == gpu && CommonSeenWithin(m, now, kCommonPresent);
    if (i != line && there) see(m);
  }
}

inline CommonView CommonLook(const CommonArea& area, int line, uint64_t gpu, int32_t priority, int64_t now) {
  CommonView view;
  CommonForOthers(area, line, gpu, now, [&](const CommonMember& m) {
    const int64_t until = Load(m.active_until);
    const int64_t sane_until = until < now + kCommonReach ? until : 0;
    view.active += sane_until > now ? 1 : 0;
    ++view.present;
    if (sane_until > view.active_until) view.active_until = sane_until;
    if (sane_until > view.under_way && Load(m.idle_since) == 0) view.under_way = sane_until;
    const int64_t quiet = Load(m.quiet_until);
    const int32_t other = Load(m.priority);
    if (other <= priority && quiet <= now + kCommonQuiet && quiet > view.quiet_until) view.quiet_until = quiet;
    if (other > priority) {
      view.lower_present = true;
      if (sane_until > view.lower_until) view.lower_until = sane_until;
    }
    if (other >= 0 && other < priority) {  // below 0 is no priority: nobody can go before those of 0
      view.higher_present = true;
      if (sane_until > view.higher_until) view.higher_until = sane_until;
    }
    const uint32_t rate = Load(m.rate);
    const bool limited = rate != 0 && rate < kCommonAll;
    view.limited_present |= limited;
    const int64_t held_at = Load(m.idle_since);  // for somebody who measures: it goes on afterwards
    const bool held = sane_until <= now && held_at > now - kCommonQuiet && held_at <= now;
    const int64_t lag = Load(m.lag) * kCommonLagUnit;
    if (limited && other <= priority && (sane_until > now || held) && lag > view.lag) view.lag = lag;
    view.held += held ? 1 : 0;
    const int64_t limited_until = held ? held_at + kCommonQuiet : sane_until;
    if (limited && limited_until > view.limited_until) view.limited_until = limited_until;
    if (sane_until > now || held || CommonSeenWithin(m, now, kCommonWants)) {
      view.wanted += limited ? rate : kCommonAll;
      (limited ? view.limited_wanted : view.unlimited) += limited ? rate : 1;
    }
  });
  return view;
}

// What a container has of the GPU, for those who share it and want to know what a long launch of theirs took without
// that. What short launches are charged counts upwards, in 1024 ns, in the upper 40 bits; a long one takes as many
// turns as everybody else while it is under way, and says so again and again: when it last did, in ms, is in the
// lower 16, and before that how many processes have one. So who was killed says nothing any more.
inline constexpr int kCommonUnit = 10;          // bits of ns
inline constexpr int kCommonStamp = 16;         // bits of ms; 0: nothing long
inline constexpr int kCommonLongs = 8;          // bits of how many
inline constexpr int64_t kCommonLongSeen = 50;  // ms
inline constexpr uint64_t kCommonStampMask = (uint64_t{1} << kCommonStamp) - 1;
inline constexpr uint64_t kCommonLongMask = (uint64_t{1} << (kCommonStamp + kCommonLongs)) - 1;

// `units` may be below zero: charges are corrected.
inline void CommonUse(CommonMember* m, int64_t units) {
  __atomic_fetch_add(&m->used, static_cast<uint64_t>(units) << (kCommonStamp + kCommonLongs), __ATOMIC_RELAXED);
}
// What the sum of all units grew by.
constexpr int64_t CommonUsedBetween(uint64_t before, uint64_t after) {
  constexpr int kAbove = kCommonStamp + kCommonLongs;
  return static_cast<int64_t>((after - before) << kAbove) >> kAbove;
}
inline uint64_t CommonStampOf(int64_t now) {
  const uint64_t stamp = static_cast<uint64_t>(now / 1'000'000) & kCommonStampMask;
  return stamp == 0 ? 1 : stamp;
}
// So many processes have one under way.
inline void CommonSetLongs(CommonMember* m, int64_t longs, int64_t now) {
  const auto count = static_cast<uint64_t>(longs < UINT8_MAX ? longs : UINT8_MAX);
  const uint64_t told = longs <= 0 ? 0 : count << kCommonStamp | CommonStampOf(now);
  for (uint64_t used = Load(m->used); (used & kCommonLongMask) != told;) {
    const uint64_t next = (used & ~kCommonLongMask) | told;
    if (__atomic_compare_exchange_n(&m->used, &used, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
  }
}
inline int64_t CommonLongs(uint64_t used, int64_t now) {
  const uint64_t stamp = used & kCommonStampMask;
  // The clocks of two threads that read them one after the other are a ms apart at most.
  const uint64_t age = (CommonStampOf(now) + 1 - stamp) & kCommonStampMask;
  return stamp != 0 && age <= kCommonLongSeen ? static_cast<int64_t>((used & kCommonLongMask) >> kCommonStamp) : 0;
}

struct CommonUsed {
  uint64_t gpu = 0;      // in units, of all others; only CommonUsedBetween says something
  int64_t longs = 0;     // so many processes of others have a long launch under way,
  int64_t siblings = 0;  // and so many others of this container;
  int64_t shorts = 0;    // and so many others are at work, or were just now
  bool silent = false;   // somebody is at work who has no limit, and so tells nothing of this
};

inline CommonUsed CommonLookAtUse(const CommonArea& area, int line, uint64_t gpu, int64_t now) {
  CommonUsed all;
  CommonForOthers(area, line, gpu, now, [&](const CommonMember& m) {
    const uint64_t his = Load(m.used);
    all.gpu += his >> (kCommonStamp + kCommonLongs);
    const int64_t until = Load(m.active_until);
    const bool at_work = until > now && until < now + kCommonReach;
    const int64_t longs = CommonLongs(his, now);
    all.longs += longs;
    all.shorts += longs == 0 && (at_work || CommonSeenWithin(m, now, kCommonWants)) ? 1 : 0;
    if (at_work && Load(m.rate) == 0) all.silent = true;
  });
  return all;
}

// For how long launches are held from now on for those who measure, when that began at `since`. All hear of a request
// at the same time, so who asks knows what the others have left.
inline int64_t CommonQuietLeft(int64_t since, int64_t now) {
  const int64_t passed = now - since;
  if (passed > kCommonQuietAgain) return kCommonQuiet;
  return passed < kCommonQuiet ? kCommonQuiet - passed : 0;
}

// The rate of a container that may use idle time up to `ceiling`: its part by weight of what those who want it want.
inline uint32_t CommonBurstRate(uint32_t rate, uint32_t ceiling, int64_t others) {
  if (rate == 0 || ceiling <= rate) return rate;
  const int64_t part = int64_t{10'000} * rate / (rate + others);
  return part <= rate ? rate : part < ceiling ? static_cast<uint32_t>(part) : ceiling;
}

// The rate of a container without a limit while one that has a limit is at work: an equal part of what all of those
// leave, and `least`, so that nobody comes to a halt.
constexpr uint32_t CommonSpareRate(const CommonView& others, uint32_t least) {
  const int64_t left = (kCommonAll - others.limited_wanted) / (1 + others.unlimited);
  return left > least ? static_cast<uint32_t>(left) : least;
}

inline void CommonSetLag(CommonMember* m, int64_t lag) {
  const int64_t units = lag < 0 ? 0 : lag / kCommonLagUnit;
  const auto told = static_cast<uint16_t>(units < UINT16_MAX ? units : UINT16_MAX);
  if (Load(m->lag) != told) Store(m->lag, told);
}

// What each leaves to whoever lags further behind, in 1/10000 of its time, `most` at most. A GPU that is full loses
// some time between its containers, and one of them would lag by all of that. Where more was promised than there is,
// all lag.
inline constexpr int64_t kCommonLagSpan = 1'000'000'000;  // is made up for within about so long
constexpr int64_t CommonConcession(const CommonView& others, uint32_t rate, int64_t own_lag, int64_t most) {
  if (others.lag <= own_lag || others.limited_wanted + rate > kCommonAll) return 0;
  const int64_t part = (others.lag - own_lag) * kCommonAll / kCommonLagSpan;
  return part < most ? part : most;
}

// Makes the file if it is not there. errno tells why not.
bool CreateCommonArea(const char* path);

struct CommonFile {
  CommonArea* area = nullptr;
  uint64_t device = 0, inode = 0;  // of the file, or of the socket
  bool sealed = false;             // from a socket
};
// `area` stays null when there is none that can be used. Whoever hands it out is waited for 20 ms at most.
CommonFile OpenCommonArea(const char* path);
// Whether the path still leads to what was opened, in its full length. A socket that is gone or silent changes nothing.
bool CommonIsWhole(const CommonFile& file, const char* path);

}  // namespace hami::region
