// SPDX-License-Identifier: Apache-2.0
//
// Waiting: threads that wait for a stream sleep until something is due and then bring the simulation forward
// themselves; the engine's own thread does the same for work that nobody waits for, and runs host functions.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

#include "simgpu/driver/engine_state.h"
#include "simgpu/machine/real_clock.h"

namespace simgpu {
namespace {

constexpr Nanos kSpin = 60'000;          // a sleep this long before the time is exact only by yielding
constexpr Nanos kPollInterval = 20'000;  // a value in memory is looked at this often
constexpr Nanos kLinger = 1'000'000'000;
constexpr Nanos kReapInterval = 50'000'000;  // how long a dead rival may keep its turn

timespec SpecOf(Nanos t) { return {static_cast<time_t>(t / 1'000'000'000), static_cast<long>(t % 1'000'000'000)}; }

void* EnterThread(void* sched) {
  static_cast<Scheduler*>(sched)->ThreadMain();
  return nullptr;
}

}  // namespace

bool Scheduler::Contended() const {
  return std::any_of(shares.begin(), shares.end(), [](const Share* share) {
    if (share->pending.empty()) {
      return false;
    }
    ArbiterLock arbiter(*share);
    return arbiter->Rivals(share->arbiter) > 0;
  });
}

Nanos Scheduler::DueOf(Stream* awaited, std::uint64_t seq) {
  Nanos due = NextTimed();
  for (Share* share : shares) {
    if (share->running.empty()) {
      continue;
    }
    std::int64_t v = share->pending.size() > 1 ? share->published : kNever;
    if (unplanned > 0) {
      for (const Stream* s : share->pending) {
        // Behind the planned part is something for which this process has to be awake.
        if (s->counted_unplanned && s->planned > s->completed) {
          v = std::min(v, s->plan_end);
        }
        // Another context may wait for this stream.
        for (Stream* w = s->waiters; w != nullptr; w = w->next_waiter) {
          if (w->engine->share != share) {
            v = std::min(v, s->planned > s->completed ? const_cast<Stream*>(s)->At(s->completed + 1).bound : share->v);
          }
        }
      }
    }
    if (awaited != nullptr && awaited->engine->share == share && awaited->planned >= seq) {
      v = std::min(v, awaited->At(seq).bound);
    }
    if (v == kNever) {
      continue;
    }
    if (v <= share->v) {
      v = NextFinish(*share);
    }
    ArbiterLock arbiter(*share);
    due = std::min(due, arbiter->Predict(share->arbiter, v));
  }
  return due;
}

void Scheduler::SleepVirtual(Nanos due) {
  if (host_running > 0 || host_next < host_calls.size()) {
    pthread_cond_wait(&progress, &lock);  // time stands still while a host function runs
  } else if (due == kNever) {
    // Only somebody else can help: another thread, another process, a value in memory.
    const timespec until = SpecOf(RealNow() + kPollInterval * 10);
    pthread_cond_timedwait(&progress, &lock, &until);
  } else {
    pthread_mutex_unlock(&lock);
    Machine::Get().SleepUntil(due);
    pthread_mutex_lock(&lock);
  }
}

void Scheduler::SleepReal(Nanos now, Nanos due) {
  if (!polling.empty()) {
    due = std::min(due, now + kPollInterval);
  }
  const Nanos longest = std::min(kReapInterval, heartbeat);
  if (due == kNever || due - now > longest) {
    due = now + longest;
  }
  if (due - now > kSpin) {
    const timespec until = SpecOf(due - kSpin);
    if (pthread_cond_timedwait(&progress, &lock, &until) == 0) {
      return;  // something changed: look again
    }
  }
  pthread_mutex_unlock(&lock);
  while (RealNow() < due) {
    sched_yield();
  }
  pthread_mutex_lock(&lock);
}

bool Scheduler::Stuck(Nanos due) const {
  return due == kNever && bytes_to_do == 0 && host_running == 0 && host_next == host_calls.size() &&
         std::none_of(timed.begin(), timed.end(), [](const Stream* s) { return s->bytes == Transfer::kMoving; });
}

bool Scheduler::WaitSeq(Stream& s, std::uint64_t seq, Patience patience, Nanos* ended) {
  ++waiting;
  Nanos looked = Machine::Get().Now();
  for (;;) {
    const Nanos now = Machine::Get().Now();
    Commit(now);
    if (s.completed >= seq) {
      break;
    }
    if (MoveBytes(&s)) {
      continue;
    }
    const Nanos due = DueOf(&s, seq);
    if (patience == Patience::kWhileItMoves && Stuck(due)) {
      break;
    }
    if (ended != nullptr) {
      *ended = due != kNever ? due : now;
    }
    if (virtual_clock) {
      SleepVirtual(due);
      continue;
    }
    if (due > now) {
      SleepReal(now, due);
    }
    if (now - looked >= kReapInterval && Contended()) {
      looked = now;
      pthread_mutex_unlock(&lock);
      Machine::Get().Reap();
      pthread_mutex_lock(&lock);
    }
  }
  --waiting;
  if (waiting == 0 && (unplanned > 0 || !timed.empty())) {
    WakeThread(0);
  }
  return s.completed >= seq;
}

void Scheduler::WaitForRoom(Stream& s) {
  while (s.submitted - s.completed >= kQueueDepth) {
    WaitSeq(s, s.submitted - kQueueDepth + 1);
  }
}

bool Scheduler::MoveBytes(Stream* only) {
  if (bytes_to_do == 0) {
    return false;
  }
  const auto found = std::find_if(timed.begin(), timed.end(), [only](const Stream* s) {
    return s->bytes == Transfer::kToDo && (only == nullptr || s == only);
  });
  if (found == timed.end()) {
    return false;
  }
  Stream& s = **found;
  s.bytes = Transfer::kMoving;
  --bytes_to_do;
  const Op op = s.At(s.completed + 1);
  pthread_mutex_unlock(&lock);
  op.kind == OpKind::kCopy ? CopyNow(op.payload->copy) : FillNow(op.payload->fill);
  pthread_mutex_lock(&lock);
  s.bytes = Transfer::kNone;
  s.head_end = std::max(s.head_end, Machine::Get().Now());
  pthread_cond_broadcast(&progress);
  return true;
}

void Scheduler::StartThread() {
  thread_started = true;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  thread_started = pthread_create(&thread, &attributes, EnterThread, this) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Scheduler::WakeThread(Nanos due) {
  if (virtual_clock && host_next == host_calls.size()) {
    return;  // time moves only with those who wait
  }
  if (!thread_started) {
    StartThread();
  } else if (thread_asleep || due < thread_due) {
    thread_due = -1;
    pthread_cond_signal(&thread_wake);
  }
}

// Runs the oldest host function, without the lock.
void Scheduler::RunHostCall() {
  const HostCall call = host_calls[host_next++];
  if (host_next == host_calls.size()) {
    host_calls.clear();
    host_next = 0;
  }
  if (call.fn == nullptr) {
    return;
  }
  ++host_running;
  pthread_mutex_unlock(&lock);
  call.fn(call.arg);
  pthread_mutex_lock(&lock);
  --host_running;
  const Nanos t = virtual_clock ? std::max(call.due, committed) : Machine::Get().Now();
  if (!virtual_clock) {
    Commit(t);
  }
  if (call.stream != nullptr) {
    Complete(*call.stream, t);
  }
  Settle();
  for (Share* share : shares) {
    Publish(*share, std::max(t, committed));
  }
  pthread_cond_broadcast(&progress);
}

void Scheduler::CallOnThread(void (*fn)(void*), void* arg) {
  host_calls.push_back({nullptr, fn, arg, committed});
  WakeThread(0);
}

void Scheduler::ThreadMain() {
  prctl(PR_SET_NAME, "simgpu");
  prctl(PR_SET_TIMERSLACK, 1);
  Machine& machine = Machine::Get();
  pthread_mutex_lock(&lock);
  Nanos active = machine.Now();
  Nanos looked = active;
  for (;;) {
    thread_asleep = false;
    thread_due = -1;
    if (host_next < host_calls.size()) {
      RunHostCall();
      continue;
    }
    if (virtual_clock) {
      thread_asleep = true;
      pthread_cond_wait(&thread_wake, &lock);
      continue;
    }
    const Nanos now = machine.Now();
    Commit(now);
    if (MoveBytes(nullptr) || host_next < host_calls.size()) {
      continue;
    }
    if (std::any_of(shares.begin(), shares.end(), [](const Share* share) { return !share->pending.empty(); })) {
      active = now;
    }
    Nanos due = waiting > 0 ? kNever : DueOf(nullptr, 0);
    if (!polling.empty()) {
      due = std::min(due, now + kPollInterval);
    }
    if (now - active < kLinger) {
      due = std::min(due, now + heartbeat);
    }
    if (now - looked >= kReapInterval && Contended()) {
      looked = now;
      pthread_mutex_unlock(&lock);
      machine.Reap();
      pthread_mutex_lock(&lock);
      continue;
    }
    if (due == kNever) {
      thread_asleep = true;
      pthread_cond_wait(&thread_wake, &lock);
    } else if (due > now) {
      thread_due = due;
      const timespec until = SpecOf(due);
      pthread_cond_timedwait(&thread_wake, &lock, &until);
    }
  }
}

}  // namespace simgpu
