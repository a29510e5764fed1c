// SPDX-License-Identifier: Apache-2.0
//
// Which process has the turn on a GPU. Each process has a line in a table that all of them map, and one word of it
// names the line that has the turn, and since when. One turn at a time, so that the driver has no two contexts to
// switch between.
//
// A turn goes to the more important first, then to the one whose share is owed for the longest. It ends when its holder
// has nothing in flight while others wait, after kTurn when another waits, after kLeastTurn when one comes that is owed
// and did not wait before; at once for a more important one. Beside a launch that is longer than that the others go on
// as the driver lets them, and so does what the GPU may be waiting for. Nobody has to give it back: a line says until
// when its work is expected to last, and a turn whose holder is past that is anybody's.
//
// Everything in the table is advice. A line that says nonsense costs time: no limit is decided here.
#pragma once

#include <stdint.h>

#include <algorithm>

#include "region/common_area.h"
#include "vgpu/time/constants.h"

namespace hami::vgpu::time {

using TurnLine = region::CommonMember;
inline constexpr uint16_t kOwed = 1;                            // its balance is above zero
inline constexpr uint16_t kFresh = 2;                           // it did not have to wait before
inline constexpr uint16_t kLong = 4;                            // one of its launches is longer than a turn
inline constexpr uint16_t kLooks = 8;                           // it waits awake for the turn
inline constexpr uint16_t kRests = 16;                          // its container's account was overdrawn
inline constexpr uint64_t kTurnItself = 0x6e72'7554'0000'0001;  // the process of the line that has the turn's word

struct TurnTable {
  TurnLine* lines = nullptr;
  int count = 0;  // that were ever used
  uint64_t gpu = 0;
  uint64_t* word = nullptr;  // nullptr: there is no table
};

// Of the others on this GPU.
struct TurnView {
  int present = 0;           // seen within kCommonPresent
  int hungry = 0;            // launched, or waited to, within kWants
  int at_work = 0;           // have work that is expected to last
  int64_t worked_until = 0;  // the last of them; now, while one has
  // One of the same container goes on; one waits for their account; and this one had far less than another of them.
  bool sibling = false, rests = false, behind = false;
  uint32_t siblings = 0;               // so many of the same container are hungry
  int before = 0;                      // so many of them had less
  int64_t most = 0;                    // that one of the same container had, ns
  bool beside = false;                 // one of them has a launch that is longer than a turn
  bool higher = false, lower = false;  // one that is present is more important, or less
  int best = -1;                       // of those that wait
  int64_t least_lag = INT64_MAX;       // ns of wall time, of those that are hungry and have a limit
  int64_t had = 0;                     // GPU time of those and of this process, ns
  int64_t limited = 0;                 // rates of those of other containers that are hungry and have a limit,
  int64_t unlimited = 0;               // and how many have none
};

class Turns {
 public:
  struct Verdict {
    bool go = true;
    int64_t until = 0;  // else: ask again then, or when the word has changed from `seen`
    uint64_t seen = 0;
    bool passed = false;  // the turn went to another, who may sleep
    bool soon = false;    // `until` is looked for, as a thread that sleeps would wake too late

    void Wait(bool looks, int64_t ns, int64_t now) {
      go = false;
      soon = looks && ns > 0 && ns <= kFlightUnder;
      until = now + std::max(looks && !soon ? ns - kFlightUnder : ns, kHandover / 4);
    }
  };
  struct State {
    int32_t rank = 0;
    uint32_t rate = 0;
    bool owed = false, long_launch = false;
    int64_t zero_at = 0;
    bool free = false;  // needs no turn: the GPU may wait for it, or it ends before others of this process
    int64_t in_flight = 0, next = 0;  // ns under way, and of the launch itself
  };

  void Join(const TurnTable& table, int line) {
    table_ = table;
    line_ = line;
  }
  bool joined() const { return table_.word != nullptr && line_ >= 0; }
  const TurnTable& table() const { return table_; }

  TurnView Look(int32_t rank, int64_t now) const;
  // A launch is about to go.
  Verdict Ask(const TurnView& view, const State& state, int64_t now);
  // It has the turn and gives it up, so nothing more goes of what it has to launch.
  bool Leaves(const TurnView& view, const State& state, int64_t now) const;
  // It went: `work` ns are under way; `holds`: until it is seen to have ended, kPatience at most.
  void Went(int64_t work, bool holds, int64_t now) {
    if (joined()) region::Store(mine()->work_until, now + std::max(work, holds ? kPatience : 0));
  }
  // Nothing of this process is under way any more. True when others may be waiting for that.
  bool Ended(int64_t now) {
    if (!joined() || region::Load(mine()->work_until) <= now) return false;
    region::Store(mine()->work_until, now);
    return true;
  }
  // It has no use for the turn now. `overdrawn`: its container's account is, so the others are to stop, too.
  void Rests(bool overdrawn, int64_t now);
  void Publish(const State& state, int64_t now);
  // It has use for the GPU. Of what it missed while it had none it makes up for kBank at most.
  void Wants(const TurnView& view, int64_t now);
  // It had so much of the GPU, and its account is as it is then.
  void Had(int64_t ns, int64_t zero_at);

 private:
  TurnLine* mine() const { return &table_.lines[line_]; }
  Verdict Go(Verdict verdict);
  // The turn goes to that line, if nobody took it since.
  bool Pass(uint64_t word, int line, int64_t now);
  bool Better(int a, int b) const;

  TurnTable table_;
  int line_ = -1;
  int64_t waits_since_ = 0;              // for the one that has the turn
  bool leaves_ = false, looks_ = false;  // has said that it leaves; looks for the moment at which the turn is free
  int64_t ends_at_ = 0;                  // of the holder's work, as it was when it last looked
  bool refused_ = false;                 // it had to wait since it last had nothing to do
};

}  // namespace hami::vgpu::time
