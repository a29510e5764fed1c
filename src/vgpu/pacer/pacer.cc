// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacer/pacer.h"

#include <sched.h>
#include <time.h>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/pacer/shell.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/runtime.h"
#include "vgpu/runtime/threads.h"

namespace hami::vgpu {

constinit time::CostBook g_book{};
constinit thread_local Lease t_lease{};

namespace {

using pacer::DeviceOf;
using pacer::DeviceTime;
using pacer::ForEachDevice;
using pacer::g_shell;
using region::MonotonicNanos;

constexpr int64_t kNoteInterval = 100'000'000;  // ns; the monitor wants to know of launches, twice a second would do
constexpr int64_t kBlockedPoll = 5'000'000;     // ns
constexpr int64_t kLongestEnd = 1'000'000'000;  // ns that the end of a context waits for what was launched there
constexpr int64_t kEndPoll = 100'000;           // ns between two looks at that
constexpr int64_t kLongestAsk = 20'000'000;     // ns that a process that ends waits for its helper to leave NVML

uint32_t CurrentEpoch() { return g_shell.voided.load() * 2 + 1; }

// The fast path does not look whether a launch is captured.
void PublishEpoch() { __atomic_store_n(&g_words.lease_epoch, AnyCapture() ? 0 : CurrentEpoch(), __ATOMIC_RELEASE); }

void NoteLaunch(int64_t now) {
  if (now - g_shell.noted_at.load(std::memory_order_relaxed) < kNoteInterval) return;
  g_shell.noted_at.store(now, std::memory_order_relaxed);
  if (region::Attachment* const a = attachment(); a != nullptr) {
    timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    region::NoteLaunch(a, static_cast<uint64_t>(wall.tv_sec));
  }
}

const void* PlaceOf(CUstream stream) {
  if (!OfCurrentContext(stream)) return stream;
  CUcontext current = nullptr;
  return real::cuCtxGetCurrent(&current) == CUDA_SUCCESS ? current : nullptr;
}

time::StreamRef RefOf(CUstream stream) {
  return {stream, stream == CU_STREAM_PER_THREAD ? static_cast<const void*>(&t_lease) : nullptr};
}

// Tells the meters what was paid from the lease. With the device's lock held.
void FlushLease(Lease* lease, time::Gate* gate, int64_t now) {
  for (Lease::Spent& s : lease->spent) {
    if (s.launches == 0) continue;
    if (time::Meter* const meter = gate->MeterOf(s.context, false); meter != nullptr) {
      meter->Spent({.stream = RefOf(s.stream), .kind = s.kind, .cost = s.cost, .scale = lease->scale}, s.launches, now);
    }
    s.launches = 0;
    s.cost = 0;
  }
}

// Collects what was measured on all devices. True while something is under way in the context that a limit holds for.
bool Collect(CUcontext context) {
  bool pending = false;
  ForEachDevice([&](int i, DeviceTime* device) {
    const Locked locked(device->lock);
    const time::Terms terms = pacer::TermsOf(i, device);
    const int64_t now = MonotonicNanos();
    device->gate.Look(terms, now);
    device->gate.Poll(terms, now);
    const time::Meter* const meter = device->gate.MeterOf(context, false);
    pending |= terms.Limited() && meter != nullptr && meter->Pending();
  });
  return pending;
}

// What is left of the lease goes back where it came from.
void ReturnLease(Lease* lease) {
  if (DeviceTime* const device = DeviceOf(lease->device, false); device != nullptr) {
    const Locked locked(device->lock);
    FlushLease(lease, &device->gate, MonotonicNanos());
    lease->Close();
    const int64_t charged = lease->credit * lease->scale / time::Launch::kWhole;
    if (charged > 0) device->gate.GiveBack(pacer::TermsOf(lease->device, device), charged, MonotonicNanos());
  }
  lease->credit = 0;
}

// What the one thread of a fork's child has, before it did anything itself, is its parent's.
void ReturnLastLease(void* what) {
  auto* const lease = static_cast<Lease*>(what);
  if (__atomic_load_n(&g_words.phase, __ATOMIC_ACQUIRE) != 0) ReturnLease(lease);
  *lease = {};
}

// Of another device, or of before all became void, it goes back.
void RenewLease(Lease* lease, int index) {
  const uint32_t epoch = CurrentEpoch();
  if (lease->epoch == epoch && lease->device == index) return;
  if (lease->epoch == 0) WhenThreadEnds(&ReturnLastLease, lease);
  ReturnLease(lease);
  lease->device = static_cast<int16_t>(index);
  lease->epoch = epoch;
  lease->sole_epoch = ContextsOnlyOn(index) ? epoch : Lease::kNoEpoch;
  lease->places.Clear();
  PublishEpoch();
}

void WaitWhileBlocked() {
  while (pacer::Blocked()) {
    g_shell.was_blocked.store(true, std::memory_order_relaxed);
    region::SleepNanos(kBlockedPoll);
  }
}

// Sleeps until then, or until the turn changes hands.
void Sleep(const time::Turns& turns, const time::Turns::Verdict& verdict, int64_t now) {
  const int64_t span = verdict.until - now;
  const uint64_t* const word = verdict.seen == 0 ? nullptr : turns.table().word;
  if (span <= 0) return;
  if (verdict.soon) {
    const auto changed = [&] { return word != nullptr && region::Load(*word) != verdict.seen; };
    while (MonotonicNanos() < verdict.until && !changed()) sched_yield();  // others may want this processor
  } else if (word == nullptr) {
    region::SleepNanos(span);
  } else {
    region::FutexWait(reinterpret_cast<const uint32_t*>(word), static_cast<uint32_t>(verdict.seen), span);
  }
}

// Where a launch goes. `context`: nullptr: nothing is to be recorded there.
struct Where {
  int index;
  CUcontext context;
  CUstream stream;
  bool per_thread;

  time::Event Record() const { return RecordTimedEvent(context, stream, per_thread); }
};

bool MarkOneTail(DeviceTime* device, CUcontext context, int64_t until) {
  time::StreamRef stream;
  {
    const Locked locked(device->lock);
    time::Meter* const meter = AnyCapture() ? nullptr : device->gate.MeterOf(context);
    if (meter == nullptr || !meter->WantsTail(&t_lease, &stream, until, MonotonicNanos())) return false;
  }
  time::Event const event = RecordTimedEvent(context, static_cast<CUstream>(const_cast<void*>(stream.stream)), false);
  if (event == nullptr) return false;
  const Locked locked(device->lock);
  time::Meter* const meter = device->gate.MeterOf(context);
  meter != nullptr ? meter->Tail(stream, event, MonotonicNanos()) : pacer::kDriver.release(nullptr, event);
  return true;
}

// The thread is held until then: what may be done before is measured as far as it goes, on all streams. None of them
// may end meanwhile, but others may launch, as the driver waits where its queue is full. Where another thread is at it,
// it is for all.
void MarkTails(DeviceTime* device, CUcontext context, int64_t until) {
  if (!device->tails.TryAcquire()) return;
  for (int i = 0; i < time::Meter::kStreams && MarkOneTail(device, context, until); ++i) continue;
  device->tails.Release();
}

// A launch that may go. `device`: nullptr without a limit and others; else its lock is held.
struct Admitted {
  DeviceTime* device = nullptr;
  time::Launch launch;
  time::Terms terms;
  bool held = false;
  int64_t now = 0;
};

// Waits until a launch of `name` may go.
Admitted Await(const LaunchName& name, const Where& where) {
  DeviceTime* const device = DeviceOf(where.index, true);
  const time::StreamRef stream = RefOf(StreamOf(where.stream, where.per_thread));
  Admitted a;
  time::Gate::Wait wait;
  int64_t began = 0;
  for (;;) {
    WaitWhileBlocked();
    a.now = MonotonicNanos();
    if (device == nullptr) return a;
    if (began == 0) began = a.now;
    device->lock.Acquire();
    pacer::Meet(device, where.index, a.now);
    a.terms = pacer::TermsOf(where.index, device);
    const bool others = device->gate.Look(a.terms, a.now);
    if (!pacer::Binds(a.terms, others)) {
      device->gate.turns().Rests(false, a.now);
      device->lock.Release();
      return a;
    }
    const time::Meter* const meter = where.context == nullptr ? nullptr : device->gate.MeterOf(where.context);
    if (!a.held && t_lease.device == where.index) FlushLease(&t_lease, &device->gate, a.now);
    a.launch = device->gate.Expect(stream, name.kind, name.handle, meter);
    const time::Turns::Verdict verdict = device->gate.Ask(a.terms, a.launch, &wait, a.now);
    if (verdict.go) break;
    device->lock.Release();
    if (meter != nullptr) MarkTails(device, where.context, verdict.until);
    a.held = true;
    if (verdict.passed) pacer::WakeOthers(device->gate.turns());
    Sleep(device->gate.turns(), verdict, a.now);
    pacer::KeepHelperAwake(false);
  }
  if (a.now - began > time::kHandover) {
    region::NoteThrottled(attachment(), static_cast<uint32_t>(where.index), static_cast<uint64_t>(a.now - began));
  }
  a.device = device;
  return a;
}

// Lets launches pass without a look, until the helper closes the gate again. A limit that came in between closes it.
void OpenGate(int index) {
  __atomic_store_n(&g_words.launches_open, 1u, __ATOMIC_SEQ_CST);
  pacer::KeepHelperAwake(false);
  bool any = pacer::Blocked();
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    const time::Terms terms = pacer::TermsOf(i, device);
    any |= terms.Limited();
    if (i == index || device == nullptr) continue;
    const Locked locked(device->lock);
    any |= pacer::Binds(terms, device->gate.Look(terms, MonotonicNanos()));
  }
  if (any) __atomic_store_n(&g_words.launches_open, 0u, __ATOMIC_RELEASE);
}

int64_t Reached(void*, time::Event of, time::Event reference, int64_t* since) {
  const auto* const event = static_cast<const TimedEvent*>(of);
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  if (reference != nullptr) {
    // One question instead of two.
    result = Elapsed(static_cast<const TimedEvent*>(reference), event, since);
    if (result != CUDA_SUCCESS) *since = time::kUnknownTime;
  }
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) result = QueryTimedEvent(event);
  return result == CUDA_SUCCESS ? MonotonicNanos() : result == CUDA_ERROR_NOT_READY ? 0 : -1;
}

bool IsBusy(void*, const void* of, const time::StreamRef& ref) {
  const auto stream = static_cast<CUstream>(const_cast<void*>(ref.stream));
  const auto context = static_cast<CUcontext>(const_cast<void*>(of));
  if (ref.thread != nullptr && ref.thread != &t_lease) return false;
  if (AnyCapture()) return false;  // to ask about a stream that is captured would spoil that
  CUcontext current = nullptr;
  const bool there =
      !OfCurrentContext(stream) || (real::cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context);
  if (there) return StreamIsBusy(stream);
  if (real::cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return false;
  const bool busy = StreamIsBusy(stream);
  real::cuCtxPopCurrent_v2(&current);
  return busy;
}

}  // namespace

namespace pacer {

constinit const time::DriverPort kDriver{
    nullptr, &Reached, [](void*, time::Event event) { ReleaseTimedEvent(static_cast<TimedEvent*>(event)); }, &IsBusy};

void CloseGate() {
  __atomic_store_n(&g_words.launches_open, 0u, __ATOMIC_SEQ_CST);
  g_shell.voided.fetch_add(1);
  PublishEpoch();
}

// The child of a fork that did nothing itself has nothing to settle: what it sees is its parent's.
void SettleAtExit() {
  if (__atomic_load_n(&g_words.phase, __ATOMIC_ACQUIRE) == 0) return;
  ReturnLease(&t_lease);
  Collect(nullptr);
  g_shell.left.store(true);  // or the helper would come back for what is left of the process
  const int64_t left_at = MonotonicNanos();
  while (g_shell.helper.asks.load() && MonotonicNanos() - left_at < kLongestAsk) region::SleepNanos(kEndPoll);
  ForEachDevice([](int i, DeviceTime* device) {
    const Locked locked(device->lock);
    pacer::Leave(device, i, MonotonicNanos());
  });
}

}  // namespace pacer

bool GoesToDeviceOf(const Lease& lease, CUstream stream) { return lease.places.Has(PlaceOf(stream), HandleEpoch()); }

void BeginLaunch(const LaunchName& name, CUstream stream, bool per_thread, Ticket* ticket) {
  if (!Active()) {
    __atomic_store_n(&g_words.launches_open, 1u, __ATOMIC_RELEASE);
    return;
  }
  if (AnyCapture() && Capturing(stream, per_thread)) return;
  const uint32_t handles = HandleEpoch();
  const OnContextOf there(stream);
  ContextRef place;
  CUcontext context = nullptr;
  if (!CurrentContext(&place) || real::cuCtxGetCurrent(&context) != CUDA_SUCCESS) return;
  Lease& lease = t_lease;
  if (place.device >= 0) RenewLease(&lease, place.device);
  const Where where{place.device, context, stream, per_thread};
  const Admitted a = Await(name, where);
  NoteLaunch(a.now);
  if (a.device == nullptr) return OpenGate(place.device);
  if (Capturing(stream, per_thread)) return a.device->lock.Release();
  if (a.held) lease.Close();
  lease.Open(StreamOf(stream, per_thread), context);
  if (lease.sole_epoch != lease.epoch && there.there()) {
    if (const void* const seen = PlaceOf(stream); seen != nullptr) lease.places.Add(seen, handles);
  }
  time::Gate& gate = a.device->gate;
  lease.credit = gate.Pay(a.terms, a.launch, lease.credit, a.now);
  lease.scale = a.launch.scale;
  ticket->launch = a.launch;
  ticket->stream = stream;
  ticket->device = place.device;
  ticket->per_thread = per_thread;
  ticket->elsewhere = there.elsewhere();
  ticket->context = context;
  if (time::Meter* const meter = gate.MeterOf(context); meter != nullptr) {
    ticket->plan = meter->Before(a.launch, gate.Spacing(a.terms), a.now);
    if (ticket->plan.again) lease.Close();
  }
  const bool watched = gate.Watched();
  a.device->lock.Release();
  pacer::KeepHelperAwake(watched);
  if (ticket->plan.empty) ticket->empty = where.Record();
  if (!ticket->plan.begin) return;
  // Before the event, or a host that goes away in between is taken for the GPU's work.
  ticket->began_at = MonotonicNanos();
  ticket->begin = where.Record();
}

void AwaitLaunch(const LaunchName& name, CUstream stream) {
  const OnContextOf there(Active() ? stream : nullptr);
  ContextRef place;
  if (!Active() || !CurrentContext(&place) || place.device < 0 || Capturing(stream, false)) return;
  const Admitted a = Await(name, {place.device, nullptr, stream, false});
  if (a.device != nullptr) a.device->lock.Release();
}

void EndLaunch(Ticket* ticket, CUresult result) {
  DeviceTime* const device = DeviceOf(ticket->device, false);
  if (device == nullptr) return;
  const time::Meter::Plan& plan = ticket->plan;
  // A launch that did not take place is not paid for.
  if (result != CUDA_SUCCESS) {
    const Locked locked(device->lock);
    device->gate.GiveBack(pacer::TermsOf(ticket->device, device), ticket->launch.Charged(), MonotonicNanos());
    time::Meter* const meter = device->gate.MeterOf(ticket->context);
    if (meter != nullptr) meter->Failed(ticket->launch, plan, ticket->empty, ticket->begin);
    return;
  }
  if (!plan.begin && !plan.end) return;
  const OnContextOf there(ticket->elsewhere ? ticket->stream : nullptr);
  const int64_t took = plan.begin ? MonotonicNanos() - ticket->began_at : 0;
  const Where where{ticket->device, ticket->context, ticket->stream, ticket->per_thread};
  time::Event const end = plan.end ? where.Record() : nullptr;
  const Locked locked(device->lock);
  time::Meter* const meter = device->gate.MeterOf(ticket->context);
  if (meter == nullptr) return;
  meter->After(ticket->launch, plan, ticket->empty, ticket->begin, end, took, MonotonicNanos());
}

void CaptureBegan() {
  g_runtime.events.captures.fetch_add(1);
  PublishEpoch();
  // A thread that asks whether a stream is busy has done so.
  ForEachDevice([](int, DeviceTime* device) { const Locked asked(device->lock); });
}

void CaptureEnded() {
  if (g_runtime.events.captures.fetch_sub(1) <= 0) g_runtime.events.captures.fetch_add(1);
  PublishEpoch();
}

void GraphChanged(CUgraphExec exec) {
  const LaunchName name = ExecutableGraph{exec}.Name();
  g_book.Changed(name.kind, name.handle);
  ForEachDevice([&](int, DeviceTime* device) {
    const Locked locked(device->lock);
    device->gate.Changed(name.kind);
  });
}
void ForgetGraph(CUgraphExec exec) {
  g_book.Forget(ExecutableGraph{exec}.Kind());
  g_book.ForgetHandle(ExecutableGraph{exec}.Name().handle);
}
void ForgetGuesses() { g_book.Reset(); }

void PacerEnterContext(int index) {
  if (!ContextsOnlyOn(index)) pacer::CloseGate();  // leases for whatever is launched hold no more
  DeviceTime* const device = DeviceOf(index, true);
  if (device == nullptr) return;
  const Locked locked(device->lock);
  const int64_t now = MonotonicNanos();
  pacer::Meet(device, index, now);
  if (!device->meeting.in_area()) return;
  const time::Terms terms = pacer::TermsOf(index, device);
  device->gate.turns().Publish({.rank = terms.rank, .rate = terms.limit, .zero_at = now}, now);
}

// What is under way in a context that ends is waited for, as the driver does at its end, or nobody would measure it.
void PacerLeaveContext(CUcontext context) {
  const int64_t begin = MonotonicNanos();
  while (Collect(context) && MonotonicNanos() - begin < kLongestEnd) region::SleepNanos(kEndPoll);
  ForEachDevice([&](int, DeviceTime* device) {
    const Locked recording(device->tails);
    const Locked locked(device->lock);
    device->gate.DropContext(context);
  });
  DropTimedEvents(context);
}

void PacerLeaveStream(CUstream stream) {
  ForEachDevice([&](int, DeviceTime* device) {
    const Locked recording(device->tails);
    const Locked locked(device->lock);
    device->gate.DropStream(stream);
  });
}

void ResetPacer() {
  g_shell.voided.fetch_add(1);
  g_shell.noted_at.store(0);
  g_shell.was_blocked.store(false);
  g_shell.left.store(false);
  g_shell.helper.state = pacer::Helper::kNone;
  g_shell.helper.watches.store(false);
  g_shell.helper.asks.store(false);
  t_lease = {};
  g_book.Reset();
  pacer::ResetDevices();
  ResetTimedEvents();
}

}  // namespace hami::vgpu
