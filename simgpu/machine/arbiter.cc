// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/arbiter.h"

#include <algorithm>
#include <array>

namespace simgpu {
namespace {

// One member of the rotation, as Predict plays it forward.
struct Player {
  std::int64_t left;
  int ctx;
  bool interrupted;
};

// The wall time of a rotation that is played forward, and who has the SMs in it.
struct Course {
  const ArbiterTiming& timing;
  std::int64_t wall, slice, loss;
  int resident;  // -1: nobody
  bool cut;

  void Begin(Player& player) {
    if (resident != player.ctx) {
      if (loss == 0 && resident >= 0) loss = cut ? timing.switch_ns : timing.idle_switch_ns;
      resident = player.ctx;
      cut = false;
      if (player.interrupted) {
        const std::int64_t resume = std::min(timing.resume_ns, slice / 2);
        loss += resume;
        slice -= resume;
        player.interrupted = false;
      }
    }
    wall += loss;
    loss = 0;
  }
};

constexpr std::int64_t kLoadWindow = 50'000'000;  // about what a GPU's power control looks back
constexpr std::int64_t kMillion = 1'000'000;

// `length` ns more that somebody had the GPU, or nobody: an exponential average, to the first order.
void Remember(ArbiterPartition& p, std::int64_t length, bool busy) {
  const std::int64_t step = std::min(length, 100 * kLoadWindow);  // what was before then counts for a hundredth
  const std::int64_t load = p.load.load(std::memory_order_relaxed);
  const std::int64_t target = busy ? kMillion : 0;
  p.load.store(static_cast<std::int32_t>(load + (target - load) * step / (kLoadWindow + step)),
               std::memory_order_relaxed);
}

// From -1000 to 1000, the same for the same number.
std::int64_t Scatter(std::int64_t number) {
  auto z = static_cast<std::uint64_t>(number) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::int64_t>((z ^ (z >> 31)) % 2001) - 1000;
}

}  // namespace

ArbiterTiming TimingOf(const Profile& profile) {
  const std::uint64_t idle = profile.idle_switch_ns == kHalfASwitch ? profile.switch_ns / 2 : profile.idle_switch_ns;
  return {static_cast<std::int64_t>(profile.turn_ns), static_cast<std::int64_t>(profile.switch_ns),
          static_cast<std::int64_t>(idle), static_cast<std::int64_t>(profile.resume_ns),
          static_cast<std::int64_t>(profile.turn_jitter_permille)};
}

int ArbiterState::Attach(std::int32_t owner, int partition) {
  int ctx = 0;
  while (ctx < high_water && contexts[ctx].used != 0) {
    ++ctx;
  }
  if (ctx >= kMaxContexts || partition < 0 || partition >= kPartitions) {
    return -1;
  }
  ArbiterContext& c = contexts[ctx];
  c.demand.store(kIdleBit, std::memory_order_release);
  c.granted = 0;
  c.intervals = 0;
  c.owner = owner;
  c.runnable = 0;
  c.interrupted = 0;
  c.partition = static_cast<std::uint8_t>(partition);
  c.percent = 0;
  MarkChanged(ctx);
  c.used = 1;
  high_water = std::max(high_water, static_cast<std::uint16_t>(ctx + 1));
  return ctx;
}

int ArbiterState::LaneFor(std::int32_t owner, int percent) const {
  std::array<int, kLanes> width{};
  std::array<int, kLanes> members{};
  for (int ctx = 0; ctx < high_water; ++ctx) {
    const ArbiterContext& c = contexts[ctx];
    if (c.used == 0 || c.partition < kFirstLane) continue;
    if (c.owner == owner) return c.partition;
    const auto lane = static_cast<std::size_t>(c.partition - kFirstLane);
    width[lane] = std::max(width[lane], int{c.percent});
    ++members[lane];
  }
  int taken = 0;
  int fewest = -1;
  int empty = -1;
  for (std::size_t lane = 0; lane < width.size(); ++lane) {
    taken += width[lane];
    if (members[lane] == 0) {
      empty = empty < 0 ? static_cast<int>(lane) : empty;
    } else if (fewest < 0 || members[lane] < members[static_cast<std::size_t>(fewest)]) {
      fewest = static_cast<int>(lane);
    }
  }
  const bool fits = empty >= 0 && (taken + percent <= 100 || fewest < 0);
  return kFirstLane + (fits ? empty : fewest);
}

int ArbiterState::AttachBeside(std::int32_t owner, int percent) {
  const int lane = LaneFor(owner, percent);
  const int ctx = Attach(owner, lane);
  if (ctx >= 0) contexts[ctx].percent = static_cast<std::uint8_t>(percent);
  return ctx;
}

void ArbiterState::Detach(int ctx) {
  Drop(ctx);
  contexts[ctx].used = 0;
}

void ArbiterState::RemoveOwner(std::int32_t owner) {
  for (int ctx = 0; ctx < high_water; ++ctx) {
    if (contexts[ctx].used != 0 && contexts[ctx].owner == owner) {
      Detach(ctx);
    }
  }
}

void ArbiterState::Repair() {
  high_water = std::min<std::uint16_t>(high_water, kMaxContexts);
  for (ArbiterPartition& p : partitions) {
    p.runnable = 0;
    p.slice_left = 0;
    p.loss_left = 0;
  }
  for (int ctx = 0; ctx < high_water; ++ctx) {
    ArbiterContext& c = contexts[ctx];
    c.runnable = 0;
    if (c.used == 0 || c.partition >= kPartitions) {
      c.used = 0;
      continue;
    }
    const std::int64_t demand = c.demand.load(std::memory_order_acquire);
    if ((demand & kIdleBit) == 0) {
      Link(ctx);
    }
  }
}

void ArbiterState::Link(int ctx) {
  ArbiterContext& c = contexts[ctx];
  ArbiterPartition& p = partitions[c.partition];
  const auto self = static_cast<std::uint16_t>(ctx);
  if (p.runnable == 0) {
    c.next = c.prev = self;
    BeginTurn(p, self);
  } else {
    // Behind everybody else: just before the one whose turn it is.
    ArbiterContext& current = contexts[p.current];
    c.next = p.current;
    c.prev = current.prev;
    contexts[current.prev].next = self;
    current.prev = self;
  }
  c.runnable = 1;
  ++p.runnable;
}

void ArbiterState::Unlink(int ctx) {
  ArbiterContext& c = contexts[ctx];
  ArbiterPartition& p = partitions[c.partition];
  contexts[c.prev].next = c.next;
  contexts[c.next].prev = c.prev;
  if (p.current == ctx) BeginTurn(p, c.next);
  if (p.resident == ctx + 1) p.cut = 0;
  c.interrupted = 0;
  c.runnable = 0;
  --p.runnable;
}

std::int64_t ArbiterState::Jittered(const ArbiterPartition& p, std::int64_t length) const {
  return length + length * timing.jitter_permille / 1000 * Scatter(p.turns) / 1000;
}

void ArbiterState::BeginTurn(ArbiterPartition& p, std::uint16_t ctx) {
  ++p.turns;
  p.current = ctx;
  p.slice_left = Jittered(p, Quantum());
}

// The SMs change to the current context, if they are not its own already.
void ArbiterState::BeginSwitch(ArbiterPartition& p) {
  if (p.resident == p.current + 1) return;
  // A switch that is under way goes on: it is as long to the next one.
  if (p.loss_left == 0 && p.resident != 0) p.loss_left = Jittered(p, SwitchCost(p));
  p.resident = static_cast<std::uint16_t>(p.current + 1);
  p.cut = 0;
  ArbiterContext& c = contexts[p.current];
  if (c.interrupted != 0) {
    c.interrupted = 0;
    const std::int64_t resume = std::min(timing.resume_ns, p.slice_left / 2);
    p.loss_left += resume;
    p.slice_left -= resume;
  }
}

void ArbiterState::Grant(int ctx, std::int64_t wall, std::int64_t length) {
  MarkChanged(ctx);
  ArbiterContext& c = contexts[ctx];
  if (c.intervals > 0) {
    GrantInterval& last = rings[ctx][(c.intervals - 1) % kIntervals];
    if (last.wall + last.length == wall && last.v + last.length == c.granted) {
      last.length += length;
      c.granted += length;
      return;
    }
  }
  rings[ctx][c.intervals % kIntervals] = {wall, c.granted, length};
  ++c.intervals;
  c.granted += length;
}

void ArbiterState::Advance(int partition, std::int64_t now) {
  ArbiterPartition& p = partitions[partition];
  while (p.now < now && p.runnable > 0) {
    const int ctx = p.current;
    ArbiterContext& c = contexts[ctx];
    std::int64_t demand = c.demand.load(std::memory_order_acquire);
    const std::int64_t left = demand - c.granted;
    if (left <= 0) {
      // The owner may raise the demand at this very moment; then it stays.
      if (c.demand.compare_exchange_strong(demand, demand | kIdleBit, std::memory_order_acq_rel)) {
        Unlink(ctx);
      }
      continue;
    }
    BeginSwitch(p);
    if (p.loss_left > 0) {
      const std::int64_t lost = std::min(now - p.now, p.loss_left);
      Remember(p, lost, true);
      p.now += lost;
      p.lost += lost;
      p.loss_left -= lost;
      continue;
    }
    std::int64_t run = std::min(now - p.now, left);
    if (p.runnable > 1) {
      run = std::min(run, p.slice_left);
      p.slice_left -= run;
    } else {
      // Alone: the quantum begins anew each time it ends, without a switch.
      const std::int64_t quantum = Quantum();
      p.slice_left = run < p.slice_left ? p.slice_left - run : quantum - (run - p.slice_left) % quantum;
    }
    Grant(ctx, p.now, run);
    Remember(p, run, true);
    p.now += run;
    p.busy += run;
    if (run == left) {
      continue;  // exhausted: the next turn of the loop takes it out, unless more work came
    }
    if (p.slice_left == 0) {
      if (c.next != ctx) p.cut = c.interrupted = 1;
      BeginTurn(p, c.next);
    }
  }
  // Nobody wants the rest. Those who ran out exactly at `now` are taken out, so that new work meets a clean rotation.
  while (p.runnable > 0) {
    ArbiterContext& c = contexts[p.current];
    std::int64_t demand = c.demand.load(std::memory_order_acquire);
    if (demand > c.granted || !c.demand.compare_exchange_strong(demand, demand | kIdleBit, std::memory_order_acq_rel)) {
      break;
    }
    Unlink(p.current);
  }
  if (p.now < now) {
    Remember(p, now - p.now, false);
    p.loss_left = std::max<std::int64_t>(p.loss_left - (now - p.now), 0);
    p.now = now;
  }
}

void ArbiterState::Raise(int ctx, std::int64_t demand) {
  ArbiterContext& c = contexts[ctx];
  if (demand <= c.granted) {
    return;
  }
  std::int64_t old = c.demand.load(std::memory_order_acquire);
  if ((old & ~kIdleBit) < demand || (old & kIdleBit) != 0) {
    c.demand.store(demand, std::memory_order_release);
  }
  if (c.runnable == 0) {
    Link(ctx);
  }
}

void ArbiterState::Drop(int ctx) {
  ArbiterContext& c = contexts[ctx];
  if (c.runnable != 0) {
    Unlink(ctx);
  }
  c.demand.store(c.granted | kIdleBit, std::memory_order_release);
}

std::int64_t ArbiterState::Predict(int ctx, std::int64_t v) const {
  const ArbiterContext& target = contexts[ctx];
  if (v <= target.granted) {
    return WallOf(ctx, v);
  }
  if (target.runnable == 0 || v > DemandOf(ctx)) {
    return kNever;
  }
  const ArbiterPartition& p = partitions[target.partition];
  Course course{timing, p.now, p.slice_left, p.loss_left, p.resident - 1, p.cut != 0};
  if (p.runnable == 1) {
    Player alone{0, ctx, target.interrupted != 0};
    course.Begin(alone);
    return course.wall + (v - target.granted);
  }
  std::array<Player, kMaxContexts> players;
  std::size_t count = 0;
  for (std::uint16_t i = p.current; count < p.runnable; i = contexts[i].next) {
    players[count++] = {(i == ctx ? v : DemandOf(i)) - contexts[i].granted, i, contexts[i].interrupted != 0};
  }
  const std::int64_t quantum = Quantum();
  for (;;) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Player player = players[i];
      course.Begin(player);
      const std::int64_t run = std::min(std::max<std::int64_t>(player.left, 0), course.slice);
      course.wall += run;
      player.left -= run;
      course.slice = quantum;
      if (player.left > 0) {
        course.cut = player.interrupted = kept + (count - i) > 1;
        players[kept++] = player;
      } else if (player.ctx == ctx) {
        return course.wall;
      }
    }
    count = kept;
    // Rounds in which nobody finishes are alike: skip them at once.
    const std::int64_t progress = count > 1 ? quantum - std::min(timing.resume_ns, quantum / 2) : quantum;
    std::int64_t rounds = kNever;
    for (std::size_t i = 0; i < count; ++i) {
      rounds = std::min(rounds, (players[i].left - 1) / progress);
    }
    for (std::size_t i = 0; i < count; ++i) {
      players[i].left -= rounds * progress;
    }
    course.wall += rounds * (quantum + (count > 1 ? timing.switch_ns : 0)) * static_cast<std::int64_t>(count);
  }
}

std::int64_t ArbiterState::WallOf(int ctx, std::int64_t v) const {
  const ArbiterContext& c = contexts[ctx];
  if (c.intervals == 0) {
    return partitions[c.partition].now;
  }
  // The earliest remembered interval whose end is not before v.
  const std::uint64_t oldest = c.intervals > kIntervals ? c.intervals - kIntervals : 0;
  std::uint64_t low = oldest;
  std::uint64_t high = c.intervals - 1;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const GrantInterval& interval = rings[ctx][middle % kIntervals];
    if (interval.v + interval.length < v) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const GrantInterval& interval = rings[ctx][low % kIntervals];
  return interval.wall + std::clamp<std::int64_t>(v - interval.v, 0, interval.length);
}

int ArbiterState::Rivals(int ctx) const {
  const ArbiterContext& c = contexts[ctx];
  return partitions[c.partition].runnable - (c.runnable != 0 ? 1 : 0);
}

std::int64_t ArbiterState::ReserveCopy(int engine, std::int64_t ready, std::int64_t length) {
  const std::int64_t start = std::max(ready, copy_free[engine]);
  copy_free[engine] = start + length;
  return start;
}

}  // namespace simgpu
