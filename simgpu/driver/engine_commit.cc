// SPDX-License-Identifier: Apache-2.0
//
// How simulated time comes forward: from one event of this process to the next, at each of which the arbiter is told
// what the contexts can do from there.
#include <algorithm>

#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/event.h"
#include "simgpu/driver/stream_memop.h"

namespace simgpu {
namespace {

std::int64_t DivideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

// Hands the SMs to the running kernels: by priority, then in the order of their start; later ones get what is left.
void Scheduler::DealSms(Share& share) {
  if (!share.allocation_stale) {
    return;
  }
  share.allocation_stale = false;
  for (Stream* s : share.running) {
    s->engine->granted_sms = 0;
  }
  std::uint32_t free = share.sm_count;
  for (Stream* s : share.running) {
    Engine& engine = *s->engine;
    const std::uint32_t width = s->lead > 0 ? 0 : s->At(s->completed + 1).width;
    s->granted_sms = std::min({width, free, engine.sm_limit - engine.granted_sms});
    engine.granted_sms += s->granted_sms;
    free -= s->granted_sms;
  }
}

std::int64_t Scheduler::NextFinish(Share& share) {
  DealSms(share);
  std::int64_t shortest = kNever;
  for (const Stream* s : share.running) {
    if (s->lead > 0) {
      shortest = std::min(shortest, s->lead);
    } else if (s->left == 0) {
      shortest = 0;
    } else if (s->granted_sms > 0) {
      shortest = std::min(shortest, DivideUp(s->left, s->granted_sms));
    }
  }
  return shortest == kNever ? kNever : share.v + shortest;
}

Nanos Scheduler::WallAt(const Share& share, std::int64_t v) const {
  for (const GrantInterval& interval : share.map) {
    if (v <= interval.v + interval.length) {
      return interval.wall + std::max<std::int64_t>(v - interval.v, 0);
    }
  }
  return share.map.empty() ? committed : share.map.back().wall + share.map.back().length;
}

// Plays the running kernels forward to v = `to`, which the arbiter has granted.
void Scheduler::StepShare(Share& share, std::int64_t to) {
  while (share.v < to && !share.running.empty()) {
    const std::int64_t finish = NextFinish(share);
    const std::int64_t step = std::min(finish, to) - share.v;
    for (Stream* s : share.running) {
      if (s->lead > 0) {
        s->lead -= std::min(s->lead, step);
        share.allocation_stale |= s->lead == 0;
        continue;
      }
      const std::int64_t done = std::min<std::int64_t>(s->left, step * s->granted_sms);
      s->left -= done;
      share.work -= done;
    }
    share.v += step;
    ++moves;
    if (share.v < finish) {
      continue;
    }
    const Nanos t = WallAt(share, share.v);
    const auto finished = std::stable_partition(share.running.begin(), share.running.end(),
                                                [](const Stream* s) { return s->lead > 0 || s->left > 0; });
    for (auto it = finished; it != share.running.end(); ++it) {
      const Op& op = (*it)->At((*it)->completed + 1);
      if (op.kind == OpKind::kRecord) RecordReached(*this, *op.event.object, op.event.serial, t);
      Complete(**it, t);
    }
    share.running.erase(finished, share.running.end());
    share.allocation_stale = true;
    Settle();
  }
  share.v = std::max(share.v, to);
}

void Scheduler::AdvanceShare(Share& share, Nanos t) {
  std::int64_t granted = 0;
  {
    ArbiterLock arbiter(share);
    arbiter->Advance(share.partition, t);
    const ArbiterContext& ctx = arbiter->contexts[share.arbiter];
    granted = ctx.granted;
    share.idle = ctx.runnable == 0;
    share.map.clear();
    if (granted > share.v) {
      std::uint64_t i = ctx.intervals;
      const std::uint64_t oldest = i > kIntervals ? i - kIntervals : 0;
      while (i > oldest && arbiter->rings[share.arbiter][(i - 1) % kIntervals].v >= share.v) {
        --i;
      }
      i -= i > oldest ? 1 : 0;
      for (; i < ctx.intervals; ++i) {
        share.map.push_back(arbiter->rings[share.arbiter][i % kIntervals]);
      }
    }
  }
  StepShare(share, granted);
}

void Scheduler::Publish(Share& share, Nanos t) {
  if (share.pending.empty()) {
    if (!share.idle && share.published > share.v) {
      Withdraw(share, t);
    }
    return;
  }
  std::int64_t demand = std::max(share.plan_max, share.v + share.work / share.sm_count);
  if (!share.running.empty()) {
    demand = std::max(demand, NextFinish(share));
  }
  if (demand <= share.v || (demand <= share.published && !share.idle)) {
    return;  // nothing for the SMs, or nothing new
  }
  ++moves;
  if (!share.idle && ArbiterState::TryRaise(share.table->contexts[share.arbiter], share.published, demand)) {
    share.published = demand;
    return;
  }
  ArbiterLock arbiter(share);
  arbiter->Advance(share.partition, t);
  arbiter->Raise(share.arbiter, demand);
  share.published = demand;
  share.idle = false;
}

// Takes back demand whose work is gone.
void Scheduler::Withdraw(Share& share, Nanos t) {
  ArbiterLock arbiter(share);
  arbiter->Advance(share.partition, t);
  arbiter->Drop(share.arbiter);
  share.v = share.published = arbiter->contexts[share.arbiter].granted;
  share.idle = true;
}

// When the next thing happens in this share that others may depend on.
Nanos Scheduler::PredictNext(Share& share) {
  if (share.running.empty()) {
    return kNever;
  }
  const std::int64_t v = unplanned > 0 || share.pending.size() > 1 ? NextFinish(share) : share.published;
  ArbiterLock arbiter(share);
  return arbiter->Predict(share.arbiter, v);
}

Nanos Scheduler::NextTimed() const {
  Nanos next = kNever;
  for (const Stream* s : timed) {
    if (s->bytes == Transfer::kNone || s->bytes == Transfer::kAtEnd) {
      next = std::min(next, s->head_end);
    }
  }
  return next;
}

void Scheduler::CompleteTimed(Nanos t) {
  for (std::size_t i = 0; i < timed.size();) {
    Stream* s = timed[i];
    if (s->head_end <= t && (s->bytes == Transfer::kNone || s->bytes == Transfer::kAtEnd)) {
      timed[i] = timed.back();
      timed.pop_back();
      FinishTimed(*s, s->head_end);
    } else {
      ++i;
    }
  }
}

void Scheduler::PollValues(Nanos t) {
  for (std::size_t i = 0; i < polling.size();) {
    Stream* s = polling[i];
    const Op& op = s->At(s->completed + 1);
    if (ValueReached(op.memop, op.wide, op.compare)) {
      polling[i] = polling.back();
      polling.pop_back();
      Complete(*s, t);
    } else {
      ++i;
    }
  }
}

void Scheduler::Commit(Nanos now) {
  now = std::max(now, committed);
  if (now == committed && polling.empty() && NextTimed() > now) {
    return;  // that has been done
  }
  std::uint64_t seen = moves - 1;
  for (Nanos last = -1;;) {
    Nanos t = std::min(now, NextTimed());
    for (Share* share : shares) {
      t = std::min(t, PredictNext(*share));
    }
    t = std::max(t, committed);
    if (t == last && moves == seen) {
      t = now;  // nothing came of the last round: a bound was too low to matter
    }
    seen = moves;
    for (Share* share : shares) {
      if (!share->pending.empty()) {
        AdvanceShare(*share, t);
      }
    }
    committed = std::max(committed, t);
    if (!timed.empty()) {
      CompleteTimed(t);
    }
    if (!polling.empty()) {
      PollValues(t);
    }
    Settle();
    for (Share* share : shares) {
      Publish(*share, t);
    }
    if (t >= now) {
      return;
    }
    last = t;
  }
}

}  // namespace simgpu
