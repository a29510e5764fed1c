// SPDX-License-Identifier: Apache-2.0
//
// The queues of the engine: what is appended, planned, started and finished, in stream order.
#include <algorithm>
#include <cstring>

#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/event.h"
#include "simgpu/driver/stream_memop.h"

namespace simgpu {
namespace {

constexpr std::size_t kFirstRing = 16;
// Copies up to this many bytes are performed while the lock is held.
constexpr std::size_t kSmallCopy = 64 * 1024;

enum CopyEngine : std::uint8_t { kToDevice, kToHost, kOnDevice };

CopyEngine EngineOf(const CopyOp& op) {
  switch (op.route) {
    case Route::kHostToDevice:
      return kToDevice;
    case Route::kDeviceToHost:
      return kToHost;
    default:
      return kOnDevice;
  }
}

std::int64_t DivideUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// What a kernel takes this time: lengths scatter, and the clock is higher while the GPU rests. At rest for a quarter of
// the time a GPU at its power limit ran 14 % faster, and 21 % at rest for 70 %: 0.56 of the rest, up to the clock's
// end.
std::int64_t AsItRuns(Scheduler& sched, const Share& share, std::int64_t length, Nanos now) {
  constexpr std::int64_t kMillion = 1'000'000;
  const Profile& profile = share.profile;
  if (profile.kernel_jitter_permille > 0) {
    sched.jitter = sched.jitter * 6364136223846793005u + 1442695040888963407u;
    const auto scatter = static_cast<std::int64_t>(sched.jitter >> 40) % 2001 - 1000;
    length += length / kMillion * scatter * profile.kernel_jitter_permille;
  }
  if (profile.boost_percent > 0) {
    {
      ArbiterLock arbiter(share);
      arbiter->Advance(share.partition, now);
    }
    const std::int64_t rest = kMillion - share.table->partitions[share.partition].load.load(std::memory_order_relaxed);
    const std::int64_t faster = std::min(rest * 56 / 100, std::int64_t{profile.boost_percent} * (kMillion / 100));
    length = static_cast<std::int64_t>(static_cast<double>(length) * kMillion / static_cast<double>(kMillion + faster));
  }
  return length;
}

bool RunsWithoutClock(OpKind kind) {
  return kind == OpKind::kKernel || kind == OpKind::kRecord || kind == OpKind::kCall;
}

// What is submitted now is behind work that is planned and not done yet, without a look at how far that is.
bool BusyForSure(const Stream& s, Nanos now) { return s.planned == s.submitted && !s.Empty() && now < s.busy_for_sure; }

// Behind what is planned of the stream, as a kernel that has its context alone.
void PlanKernel(Stream& s, const Op& op) {
  s.plan_end += op.lead + DivideUp(op.length, std::min<std::int64_t>(op.width, s.engine->sm_limit));
  s.engine->share->work += op.length;
}

}  // namespace

Op& Scheduler::Append(Stream& s) {
  const std::uint64_t pending = s.submitted - s.completed;
  if (pending >= s.ring.size()) {
    std::vector<Op> larger(std::max(kFirstRing, s.ring.size() * 2));
    for (std::uint64_t seq = s.completed + 1; seq <= s.submitted; ++seq) {
      larger[seq & (larger.size() - 1)] = s.At(seq);
    }
    s.ring.swap(larger);
  }
  if (pending == 0) {
    Share& share = *s.engine->share;
    s.pending_index = static_cast<int>(share.pending.size());
    share.pending.push_back(&s);
  }
  ++s.submitted;
  return s.At(s.submitted);
}

void Scheduler::CountUnplanned(Stream& s) {
  const bool is = s.planned < s.submitted;
  if (is != s.counted_unplanned) {
    s.counted_unplanned = is;
    unplanned += is ? 1 : -1;
  }
}

void Scheduler::Plan(Stream& s) {
  Share& share = *s.engine->share;
  if (s.planned < s.completed) {
    s.planned = s.completed;
  }
  s.plan_end = std::max(s.plan_end, share.v);
  for (; s.planned < s.submitted; ++s.planned) {
    Op& op = s.At(s.planned + 1);
    if (op.kind == OpKind::kKernel) {
      PlanKernel(s, op);
    } else if (op.kind == OpKind::kRecord) {
      s.plan_end += op.lead;
    } else if (op.kind == OpKind::kWait) {
      Stream& target = *op.wait.stream;
      if (target.completed < op.wait.seq) {
        if (target.engine == nullptr || target.engine->share != &share || target.planned < op.wait.seq) {
          break;
        }
        s.plan_end = std::max(s.plan_end, target.At(op.wait.seq).bound);
      }
    } else if (!RunsWithoutClock(op.kind)) {
      break;
    }
    op.bound = s.plan_end;
  }
  share.plan_max = std::max(share.plan_max, s.plan_end);
  CountUnplanned(s);
}

void Scheduler::DropPending(Stream& s) {
  std::vector<Stream*>& pending = s.engine->share->pending;
  pending.back()->pending_index = s.pending_index;
  pending[static_cast<std::size_t>(s.pending_index)] = pending.back();
  pending.pop_back();
  s.pending_index = -1;
}

void Scheduler::StartTimed(Stream& s, const Op& op, Nanos t) {
  Nanos start = t;
  s.bytes = Transfer::kNone;
  if (op.kind != OpKind::kDelay) {
    ArbiterLock arbiter(*s.engine->share);
    start = arbiter->ReserveCopy(op.engine, t, op.length);
    const std::size_t size = op.kind == OpKind::kCopy ? op.payload->copy.bytes() : op.payload->fill.bytes();
    s.bytes = virtual_clock || size <= kSmallCopy ? Transfer::kAtEnd : Transfer::kToDo;
  }
  s.head = Head::kTimed;
  s.head_end = start + op.length;
  timed.push_back(&s);
  if (s.bytes == Transfer::kToDo) {
    ++bytes_to_do;
    WakeThread(0);
  }
}

// Starts the operation at the head of the queue at time t. True when it is done at once.
bool Scheduler::StartHead(Stream& s, Op& op, Nanos t) {
  Share& share = *s.engine->share;
  switch (op.kind) {
    case OpKind::kKernel:
    case OpKind::kRecord: {
      s.left = op.length;
      s.lead = op.lead;
      if (s.left == 0 && s.lead == 0) {
        if (op.kind == OpKind::kRecord) RecordReached(*this, *op.event.object, op.event.serial, t);
        return true;
      }
      s.head = Head::kRunning;
      s.start_order = share.next_order++;
      const auto after = [](const Stream* a, const Stream* b) {
        return a->priority != b->priority ? a->priority < b->priority : a->start_order < b->start_order;
      };
      share.running.insert(std::upper_bound(share.running.begin(), share.running.end(), &s, after), &s);
      share.allocation_stale = true;
      return false;
    }
    case OpKind::kCopy:
    case OpKind::kFill:
    case OpKind::kDelay:
      StartTimed(s, op, t);
      return false;
    case OpKind::kCall:
      op.call.fn(op.call.arg);
      return true;
    case OpKind::kHost:
      s.head = Head::kHost;
      host_calls.push_back({&s, op.call.fn, op.call.arg, t});
      WakeThread(0);
      return false;
    case OpKind::kWait:
      if (op.wait.stream->completed >= op.wait.seq) {
        return true;
      }
      s.head = Head::kWait;
      s.waits_on = op.wait.stream;
      s.next_waiter = op.wait.stream->waiters;
      op.wait.stream->waiters = &s;
      return false;
    case OpKind::kWriteValue:
      StoreValue(op.memop, op.wide);
      return true;
    case OpKind::kRaiseValue:
      RaiseValue(op.memop);
      return true;
    case OpKind::kWaitValue:
      if (ValueReached(op.memop, op.wide, op.compare)) {
        return true;
      }
      s.head = Head::kPoll;
      polling.push_back(&s);
      return false;
  }
  return true;
}

void Scheduler::Pump(Stream& s, Nanos t) {
  while (s.head == Head::kNone && s.completed < s.submitted && StartHead(s, s.At(s.completed + 1), t)) {
    ++s.completed;
  }
  // Waiters are pumped by Settle, so that long chains of streams do not nest.
  for (Stream** link = &s.waiters; *link != nullptr;) {
    Stream* waiter = *link;
    if (waiter->At(waiter->completed + 1).wait.seq <= s.completed) {
      *link = waiter->next_waiter;
      waiter->next_waiter = nullptr;
      waiter->waits_on = nullptr;
      Complete(*waiter, t);
    } else {
      link = &waiter->next_waiter;
    }
  }
}

void Scheduler::Settle() {
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const auto [s, t] = ready[i];
    Pump(*s, t);
    Plan(*s);
    if (s->Empty() && s->pending_index >= 0) {
      DropPending(*s);
      ReleaseIfDone(*s);
    }
  }
  ready.clear();
}

void Scheduler::Complete(Stream& s, Nanos t) {
  s.head = Head::kNone;
  ++s.completed;
  ++moves;
  ready.emplace_back(&s, t);
}

void Scheduler::FinishTimed(Stream& s, Nanos t) {
  const Op& op = s.At(s.completed + 1);
  if (op.kind != OpKind::kDelay) {
    if (s.bytes == Transfer::kAtEnd) {
      op.kind == OpKind::kCopy ? CopyNow(op.payload->copy) : FillNow(op.payload->fill);
    }
    GivePayload(op.payload);
    Machine::Get().AddBusy(s.engine->share->machine, s.head_end - op.length, s.head_end, Busy::kMemory);
  }
  s.bytes = Transfer::kNone;
  Complete(s, t);
}

Payload* Scheduler::TakePayload() {
  if (free_payloads == nullptr) {
    constexpr int kChunk = 32;
    Payload* chunk = new Payload[kChunk];  // kept for ever: payloads are reused
    for (int i = 0; i < kChunk; ++i) {
      GivePayload(chunk + i);
    }
  }
  Payload* payload = free_payloads;
  free_payloads = payload->next;
  return payload;
}

void Scheduler::GivePayload(Payload* payload) {
  payload->staged.reset();
  payload->next = free_payloads;
  free_payloads = payload;
}

void Scheduler::ReleaseIfDone(Stream& s) {
  if (s.destroyed && s.Empty()) {
    GiveStream(*this, s);
  }
}

void Scheduler::Cancel(Stream& s) {
  while (s.bytes == Transfer::kMoving || (s.head == Head::kHost && host_running > 0)) {
    pthread_cond_wait(&progress, &lock);
  }
  Share& share = *s.engine->share;
  std::erase(share.running, &s);
  std::erase(timed, &s);
  std::erase(polling, &s);
  std::erase_if(ready, [&](const auto& entry) { return entry.first == &s; });
  for (std::size_t i = host_next; i < host_calls.size(); ++i) {
    if (host_calls[i].stream == &s) {
      host_calls[i].fn = nullptr;
    }
  }
  if (s.waits_on != nullptr) {
    Stream** link = &s.waits_on->waiters;
    while (*link != &s) {
      link = &(*link)->next_waiter;
    }
    *link = s.next_waiter;
    s.next_waiter = s.waits_on = nullptr;
  }
  bytes_to_do -= s.bytes == Transfer::kToDo ? 1 : 0;
  share.allocation_stale = true;
  for (std::uint64_t seq = s.completed + 1; seq <= s.submitted; ++seq) {
    Op& op = s.At(seq);
    if (op.kind == OpKind::kKernel && seq <= s.planned) {
      share.work -= seq == s.completed + 1 && s.head == Head::kRunning ? s.left : op.length;
    } else if (op.kind == OpKind::kCopy || op.kind == OpKind::kFill) {
      GivePayload(op.payload);
    } else if (op.kind == OpKind::kCall) {
      op.call.fn(op.call.arg);
    } else if (op.kind == OpKind::kRaiseValue) {
      RaiseValue(op.memop);
    } else if (op.kind == OpKind::kRecord) {
      RecordReached(*this, *op.event.object, op.event.serial, committed);
    }
  }
  s.head = Head::kNone;
  s.bytes = Transfer::kNone;
  s.completed = s.planned = s.submitted;
  s.busy_for_sure = 0;
  CountUnplanned(s);
  if (s.pending_index >= 0) {
    DropPending(s);
  }
  share.plan_max = share.v;
  for (const Stream* other : share.pending) {
    share.plan_max = std::max(share.plan_max, other->plan_end);
  }
  if (!share.idle) {
    Withdraw(share, committed);
  }
  ready.emplace_back(&s, committed);  // whoever waits for it goes on
  Settle();
  Publish(share, committed);
}

void EnterQueue(Scheduler& sched, Stream& s) {
  if (s.submitted - s.completed >= kQueueDepth) {
    sched.WaitForRoom(s);
  }
  OrderQueue(sched, s);
}

void OrderQueue(Scheduler& sched, Stream& s) {
  Engine& engine = *s.engine;
  if (s.kind == StreamKind::kLegacy) {
    for (Stream* other : engine.streams) {
      if (other != &s && other->blocking() && !other->Empty()) {
        EnqueueWait(sched, s, *other, other->submitted, Machine::Get().Now());
      }
    }
  } else if (s.blocking() && engine.legacy != nullptr && s.legacy_seen < engine.legacy->submitted) {
    s.legacy_seen = engine.legacy->submitted;
    if (!engine.legacy->Empty()) {
      EnqueueWait(sched, s, *engine.legacy, s.legacy_seen, Machine::Get().Now());
    }
  }
}

void Enqueue(Scheduler& sched, Stream& s, const Op& op, Nanos now) {
  if (RunsWithoutClock(op.kind) && BusyForSure(s, now)) {
    const std::int64_t before = s.plan_end;
    sched.Append(s) = op;
    sched.Plan(s);
    s.busy_for_sure += s.plan_end - before;
    return;
  }
  sched.Commit(now);
  const bool was_empty = s.Empty();
  const auto latency = static_cast<Nanos>(s.engine->share->profile.launch_ns);
  if (was_empty && op.kind == OpKind::kKernel && latency > 0) {
    Op delay;
    delay.length = latency;
    sched.Append(s) = delay;
    sched.Pump(s, now);
  }
  sched.Append(s) = op;
  if (s.head == Head::kNone) {
    sched.ready.emplace_back(&s, std::max(now, sched.committed));
    sched.Settle();
  } else {
    sched.Plan(s);
  }
  s.busy_for_sure = s.planned == s.submitted ? now + (s.plan_end - s.engine->share->v) : 0;
}

void EnqueueWait(Scheduler& sched, Stream& s, Stream& target, std::uint64_t seq, Nanos now) {
  if (&s == &target || target.completed >= seq) {
    return;
  }
  Op op;
  op.kind = OpKind::kWait;
  op.wait = {&target, seq};
  Enqueue(sched, s, op, now);
}

void EnqueueKernel(Scheduler& sched, Stream& s, std::uint64_t sm_nanos, std::uint32_t width, std::uint64_t gap,
                   Nanos now) {
  Op op;
  op.kind = OpKind::kKernel;
  op.length = AsItRuns(sched, *s.engine->share, static_cast<std::int64_t>(std::min(sm_nanos, kMostSmNanos)), now);
  op.lead = static_cast<std::int64_t>(gap);
  op.width = std::max<std::uint32_t>(width, 1);
  if (!BusyForSure(s, now)) return Enqueue(sched, s, op, now);
  // As Enqueue does it, for this kind alone: a graph submits many at once.
  Share& share = *s.engine->share;
  const std::int64_t before = s.plan_end;
  s.plan_end = std::max(before, share.v);
  PlanKernel(s, op);
  s.busy_for_sure += s.plan_end - before;
  share.plan_max = std::max(share.plan_max, s.plan_end);
  op.bound = s.plan_end;
  sched.Append(s) = op;
  ++s.planned;
}

void EnqueueCopy(Scheduler& sched, Stream& s, const CopyOp& copy, Nanos now) {
  Op op;
  op.kind = OpKind::kCopy;
  op.engine = EngineOf(copy);
  op.length = CopyNanos(copy);
  op.payload = sched.TakePayload();
  op.payload->copy = copy;
  if (copy.staged) {
    op.payload->staged = std::make_unique<std::byte[]>(copy.width);
    std::memcpy(op.payload->staged.get(), copy.src, copy.width);
    op.payload->copy.src = op.payload->staged.get();
  }
  Enqueue(sched, s, op, now);
}

void EnqueueFill(Scheduler& sched, Stream& s, const FillOp& fill, Nanos now) {
  Op op;
  op.kind = OpKind::kFill;
  op.engine = kOnDevice;
  op.length = FillNanos(fill);
  op.payload = sched.TakePayload();
  op.payload->fill = fill;
  Enqueue(sched, s, op, now);
}

void LeaveQueue(Scheduler& sched, Stream& s, Nanos now) {
  sched.Publish(*s.engine->share, std::max(now, sched.committed));
  if (sched.unplanned == 0 && s.engine->share->pending.size() < 2) {
    if (sched.thread_asleep) {
      sched.WakeThread(now);
    }
    return;
  }
  // Something of this process has to happen on time while the caller may be elsewhere.
  const Nanos due =
      s.head == Head::kTimed ? s.head_end : now + std::max<std::int64_t>(s.plan_end - s.engine->share->v, 0);
  sched.WakeThread(due);
}

}  // namespace simgpu
