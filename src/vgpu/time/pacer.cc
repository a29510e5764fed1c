// SPDX-License-Identifier: Apache-2.0
#include "vgpu/time/pacer.h"

#include <time.h>

#include <atomic>

#include "region/keep_errno.h"
#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/runtime/contexts.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/time/runtime.h"

namespace hami::vgpu {
namespace time {
void WhenThreadEnds(void (*give_back)(void* lease), Lease* lease);
}  // namespace time

constinit time::CostBook g_book{};
constinit thread_local Lease t_lease{};

namespace {

using time::DeviceOf;
using time::DeviceTime;

constexpr int64_t kNoteInterval = 100'000'000;  // ns; the monitor wants to know of launches, twice a second would do
constexpr int64_t kBlockedPoll = 5'000'000;
constexpr int64_t kScale = 1024;
// ns that the end of a context waits for what was launched there, and between two looks.
constexpr int64_t kLongestEnd = 1'000'000'000;
constexpr int64_t kEndPoll = 100'000;

constinit std::atomic<uint32_t> g_epoch{1};
constinit std::atomic<int64_t> g_noted_at{0};
constinit std::atomic<int> g_devices{0};  // of the driver; 0 = not asked yet

void NoteLaunch(int64_t now) {
  if (now - g_noted_at.load(std::memory_order_relaxed) < kNoteInterval) return;
  g_noted_at.store(now, std::memory_order_relaxed);
  if (region::Attachment* const a = attachment(); a != nullptr) {
    timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    region::NoteLaunch(a, static_cast<uint64_t>(wall.tv_sec));
  }
}

bool OnlyDevice() {
  int devices = g_devices.load(std::memory_order_relaxed);
  if (devices == 0) {
    if (real::cuDeviceGetCount(&devices) != CUDA_SUCCESS) return false;
    g_devices.store(devices, std::memory_order_relaxed);
  }
  return devices == 1;
}

// The fast path does not look whether a launch is captured.
void PublishEpoch() {
  const bool fast = time::g_captures.load() == 0;
  __atomic_store_n(&g_words.lease_epoch, fast ? g_epoch.load() : 0, __ATOMIC_RELEASE);
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
void FlushLease(Lease* lease, time::Gate* gate) {
  for (Lease::Spent& s : lease->spent) {
    if (s.launches == 0) continue;
    time::Meter* const meter = gate->FindMeter(s.context);
    if (meter != nullptr) {
      meter->Spent(RefOf(s.stream), s.kind, {s.cost * lease->scale / kScale, s.cost}, s.launches);
    }
    s.launches = 0;
    s.cost = 0;
  }
}

// Collects what was measured on all devices. True while something is under way in the context that a limit holds for.
bool Collect(const void* context) {
  bool pending = false;
  const int64_t now = region::MonotonicNanos();
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    if (device == nullptr) continue;
    const Locked locked(device->lock);
    const time::Terms terms = time::TermsOf(i, device->file.area != nullptr);
    device->gate.Poll(terms, now, false);
    const time::Meter* const meter = device->gate.FindMeter(context);
    pending |= terms.Limited() && meter != nullptr && meter->Pending();
  }
  return pending;
}

// What is left of a lease for another device, or of another epoch, goes back where it came from.
void ReturnLease(Lease* lease, int64_t now) {
  DeviceTime* const device = DeviceOf(lease->device, false);
  if (device != nullptr) {
    const Locked locked(device->lock);
    FlushLease(lease, &device->gate);
    lease->Close();
    if (lease->credit > 0) {
      device->gate.GiveBack(time::TermsOf(lease->device, true), lease->credit * lease->scale / kScale, now);
    }
  }
  lease->credit = 0;
}

// What the one thread of a fork's child has, before it did anything itself, is its parent's.
void ReturnLastLease(void* lease) {
  if (__atomic_load_n(&g_words.phase, __ATOMIC_ACQUIRE) != 0) {
    ReturnLease(static_cast<Lease*>(lease), region::MonotonicNanos());
  }
  *static_cast<Lease*>(lease) = {};
}

void WaitWhileBlocked() {
  while (time::Blocked()) {
    time::WasBlocked();
    region::SleepNanos(kBlockedPoll);
  }
}

// Sleeps until then, or until the turn changes hands.
void Sleep(const time::Turns& turns, const time::Turns::Verdict& verdict, int64_t now) {
  const int64_t span = verdict.until - now;
  if (span <= 0) return;
  if (verdict.seen == 0 || turns.table().word == nullptr) {
    region::SleepNanos(span);
  } else {
    region::FutexWait(reinterpret_cast<const uint32_t*>(turns.table().word), static_cast<uint32_t>(verdict.seen), span);
  }
}

void WakeOthers(const time::Turns& turns) {
  if (turns.table().word == nullptr) return;
  const region::KeepErrno keep;
  region::FutexWake(reinterpret_cast<const uint32_t*>(turns.table().word), INT32_MAX);
}

struct Asked {
  DeviceTime* device;
  int index;
  time::Terms terms;
  bool gated;
  bool held;
  int64_t now;
};

struct Where {
  CUcontext context;  // nullptr: nothing is to be recorded there
  CUstream stream;
  bool per_thread;
};

time::Event Record(const Where& where) {
  time::Event const event = time::TakeEvent(where.context);
  if (event == nullptr || time::RecordEvent(event, where.stream, where.per_thread)) return event;
  time::kDriver.release(nullptr, event);
  return nullptr;
}

bool MarkOneTail(DeviceTime* device, CUcontext context) {
  time::StreamRef stream;
  {
    const Locked locked(device->lock);
    if (time::g_captures.load() > 0) return false;
    time::Meter* const meter = device->gate.MeterOf(context);
    if (meter == nullptr || !meter->WantsTail(&t_lease, &stream, region::MonotonicNanos())) return false;
  }
  time::Event const event = Record({context, static_cast<CUstream>(const_cast<void*>(stream.stream)), false});
  if (event == nullptr) return false;
  const Locked locked(device->lock);
  time::Meter* const meter = device->gate.MeterOf(context);
  meter != nullptr ? meter->Tail(stream, event, region::MonotonicNanos()) : time::kDriver.release(nullptr, event);
  return true;
}

// The thread is held: what was launched is measured as far as it goes, on all streams. None of them may end meanwhile,
// but others may launch, as the driver waits where its queue is full. Where another thread is at it, it is for all.
void MarkTails(DeviceTime* device, CUcontext context) {
  if (!device->tails.TryAcquire()) return;
  for (int i = 0; i < time::Meter::kStreams && MarkOneTail(device, context); ++i) continue;
  device->tails.Release();
}

// Waits until a launch of `name` may go. Comes back with the lock held when it is gated.
Asked Await(int index, const LaunchName& name, const Where& where) {
  const time::StreamRef stream = RefOf(StreamOf(where.stream, where.per_thread));
  Asked asked{DeviceOf(index, true), index, {}, false, false, 0};
  if (asked.device == nullptr) return asked;
  time::Gate::Wait wait;
  const int64_t began = region::MonotonicNanos();
  for (;;) {
    WaitWhileBlocked();
    asked.now = region::MonotonicNanos();
    asked.device->lock.Acquire();
    const bool in_area = time::Meet(asked.device, index, asked.now);
    asked.terms = time::TermsOf(index, in_area);
    asked.gated = asked.terms.Limited() || asked.terms.gives_way || !asked.device->gate.Alone(asked.terms, asked.now);
    if (!asked.gated) {
      asked.device->gate.turns().Rests(asked.now);
      asked.device->lock.Release();
      return asked;
    }
    time::Meter* const meter = where.context == nullptr ? nullptr : asked.device->gate.MeterOf(where.context);
    if (!asked.held && t_lease.device == index) FlushLease(&t_lease, &asked.device->gate);
    const int64_t known = g_book.Expected(name.kind, name.handle);
    const time::Turns::Verdict verdict =
        asked.device->gate.Ask(asked.terms, stream, known != 0 ? known : time::kFlight, &wait, asked.now);
    if (verdict.go) break;
    const bool marks = !asked.held && meter != nullptr;
    asked.held = true;
    asked.device->lock.Release();
    if (marks) MarkTails(asked.device, where.context);
    if (verdict.passed) WakeOthers(asked.device->gate.turns());
    Sleep(asked.device->gate.turns(), verdict, asked.now);
    time::KeepHelperAwake(false);
  }
  if (asked.now - began > time::kHandover) {
    region::NoteThrottled(attachment(), static_cast<uint32_t>(index), static_cast<uint64_t>(asked.now - began));
  }
  return asked;
}

// Lets launches pass without a look, until the helper closes the gate again. A limit that came in between closes it.
void OpenGate(int index) {
  __atomic_store_n(&g_words.launches_open, 1u, __ATOMIC_SEQ_CST);
  time::KeepHelperAwake(false);
  bool any = time::Blocked();
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    const time::Terms terms = time::TermsOf(i, device != nullptr && device->file.area != nullptr);
    any |= terms.Limited();
    if (i == index || device == nullptr) continue;
    const Locked locked(device->lock);
    any |= terms.gives_way || !device->gate.Alone(terms, region::MonotonicNanos());
  }
  if (any) __atomic_store_n(&g_words.launches_open, 0u, __ATOMIC_RELEASE);
}

}  // namespace

namespace time {

void VoidLeases() {
  g_epoch.fetch_add(1);
  PublishEpoch();
}
void CloseGate() { __atomic_store_n(&g_words.launches_open, 0u, __ATOMIC_SEQ_CST); }

}  // namespace time

bool GoesToDeviceOf(const Lease& lease, CUstream stream) { return lease.places.Has(PlaceOf(stream), HandleEpoch()); }

void BeginLaunch(const LaunchName& name, CUstream stream, bool per_thread, Ticket* ticket) {
  if (!Active()) {
    __atomic_store_n(&g_words.launches_open, 1u, __ATOMIC_RELEASE);
    return;
  }
  if (time::g_captures.load(std::memory_order_relaxed) > 0 && time::Capturing(stream, per_thread)) return;
  const uint32_t handles = HandleEpoch();
  const OnContextOf there(stream);
  ContextRef place;
  CUcontext context = nullptr;
  if (!CurrentContext(&place) || real::cuCtxGetCurrent(&context) != CUDA_SUCCESS) return;
  const int index = place.device;
  NoteLaunch(region::MonotonicNanos());
  const Asked asked = Await(index, name, {context, stream, per_thread});
  if (asked.device == nullptr || !asked.gated) {
    if (asked.device == nullptr) WaitWhileBlocked();
    OpenGate(index);
    return;
  }
  if (time::Capturing(stream, per_thread)) {
    asked.device->lock.Release();
    return;
  }
  Lease& lease = t_lease;
  const uint32_t epoch = g_epoch.load(std::memory_order_relaxed);
  asked.device->ordinal = place.ordinal;
  time::Meter* const meter = asked.device->gate.MeterOf(context);
  if (lease.epoch != epoch || lease.device != index) {
    asked.device->lock.Release();
    if (lease.epoch == 0) time::WhenThreadEnds(&ReturnLastLease, &lease);
    ReturnLease(&lease, asked.now);
    lease.device = index;
    lease.epoch = epoch;
    lease.only_device = OnlyDevice();
    lease.places.Clear();
    PublishEpoch();
    asked.device->lock.Acquire();
  }
  if (asked.held) lease.Close();
  lease.Open(StreamOf(stream, per_thread), context);
  if (!lease.only_device && there.there()) {
    if (const void* const seen = PlaceOf(stream); seen != nullptr) lease.places.Add(seen, handles);
  }
  const int64_t known = g_book.Expected(name.kind, name.handle);
  const int64_t cost = known != 0 ? known : time::kFlight;
  const time::Gate::Paid paid = asked.device->gate.Pay(asked.terms, cost, lease.credit, asked.now);
  lease.credit = paid.lease;
  lease.scale = meter != nullptr ? meter->scale() : kScale;
  ticket->charged = paid.charged;
  ticket->launch = {RefOf(StreamOf(stream, per_thread)), name.kind, name.handle, cost};
  ticket->stream = stream;
  ticket->device = index;
  ticket->per_thread = per_thread;
  ticket->elsewhere = there.elsewhere();
  ticket->context = context;
  if (meter != nullptr) {
    ticket->plan =
        meter->Before(ticket->launch, paid.charged, asked.device->gate.Spacing(asked.terms, asked.now), asked.now);
  }
  asked.device->lock.Release();
  time::KeepHelperAwake(paid.watch);
  if (ticket->plan.empty) ticket->empty = Record({context, stream, per_thread});
  // Before the event, or a host that goes away in between is taken for the GPU's work.
  ticket->began_at = ticket->plan.begin ? region::MonotonicNanos() : 0;
  if (ticket->plan.begin) ticket->begin = Record({context, stream, per_thread});
}

void AwaitLaunch(const LaunchName& name, CUstream stream) {
  const OnContextOf there(Active() ? stream : nullptr);
  ContextRef place;
  if (!Active() || !CurrentContext(&place) || place.device < 0 || time::Capturing(stream, false)) return;
  const Asked asked = Await(place.device, name, {nullptr, stream, false});
  if (asked.device != nullptr && asked.gated) asked.device->lock.Release();
}

void EndLaunch(Ticket* ticket, CUresult result) {
  if (ticket->device < 0) return;
  DeviceTime* const device = DeviceOf(ticket->device, false);
  if (device == nullptr) return;
  const bool launched = result == CUDA_SUCCESS;
  const time::Meter::Plan& plan = ticket->plan;
  // A launch that did not take place is not paid for.
  if (!launched) {
    const Locked locked(device->lock);
    device->gate.GiveBack(time::TermsOf(ticket->device, true), ticket->charged, region::MonotonicNanos());
    time::Meter* const meter = device->gate.MeterOf(ticket->context);
    if (meter != nullptr) meter->Failed(ticket->launch, plan, ticket->empty, ticket->begin);
    return;
  }
  if (!plan.begin && !plan.end) return;
  const OnContextOf there(ticket->elsewhere ? ticket->stream : nullptr);
  const int64_t took = plan.begin ? region::MonotonicNanos() - ticket->began_at : 0;
  const Where where{static_cast<CUcontext>(const_cast<void*>(ticket->context)), ticket->stream, ticket->per_thread};
  time::Event const end = plan.end ? Record(where) : nullptr;
  const Locked locked(device->lock);
  time::Meter* const meter = device->gate.MeterOf(ticket->context);
  if (meter == nullptr) return;
  meter->After(ticket->launch, plan, ticket->empty, ticket->begin, end, took, region::MonotonicNanos());
}

void CaptureBegan() {
  time::g_captures.fetch_add(1);
  PublishEpoch();
}

void CaptureEnded() {
  if (time::g_captures.fetch_sub(1) <= 0) time::g_captures.fetch_add(1);
  PublishEpoch();
}

void GraphChanged(CUgraphExec exec) {
  const ExecutableGraph graph{exec};
  g_book.Changed(graph.Kind(), graph.Name().handle);
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    if (device == nullptr) continue;
    const Locked locked(device->lock);
    device->gate.Changed(graph.Kind());
  }
}
void ForgetGraph(CUgraphExec exec) {
  g_book.Forget(ExecutableGraph{exec}.Kind());
  g_book.ForgetHandle(ExecutableGraph{exec}.Name().handle);
}
void ForgetGuesses() { g_book.Reset(); }

namespace time {

// The child of a fork that did nothing itself has nothing to settle: what it sees is its parent's.
void SettleAtExit() {
  if (__atomic_load_n(&g_words.phase, __ATOMIC_ACQUIRE) == 0) return;
  ReturnLease(&t_lease, region::MonotonicNanos());
  Collect(nullptr);
}

}  // namespace time

void PacerEnterContext(int index) {
  DeviceTime* const device = DeviceOf(index, true);
  if (device == nullptr) return;
  const Locked locked(device->lock);
  const int64_t now = region::MonotonicNanos();
  const bool in_area = time::Meet(device, index, now);
  const time::Terms terms = time::TermsOf(index, in_area);
  if (in_area) device->gate.turns().Publish({.rank = terms.rank, .rate = terms.limit, .zero_at = now}, now);
}

// What is under way in a context that ends is waited for, as the driver does at its end, or nobody would measure it.
void PacerLeaveContext(CUcontext context) {
  const int64_t begin = region::MonotonicNanos();
  while (Collect(context) && region::MonotonicNanos() - begin < kLongestEnd) region::SleepNanos(kEndPoll);
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    if (device == nullptr) continue;
    const Locked recording(device->tails);
    const Locked locked(device->lock);
    device->gate.DropContext(context);
  }
  time::DropEvents(context);
}

void PacerLeavePrimary(CUdevice ordinal) {
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (real::cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active == 0) return;
  if (real::cuDevicePrimaryCtxRetain(&context, ordinal) != CUDA_SUCCESS) return;
  real::cuDevicePrimaryCtxRelease_v2(ordinal);
  PacerLeaveContext(context);
}

void PacerLeaveStream(CUstream stream) {
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    DeviceTime* const device = DeviceOf(i, false);
    if (device == nullptr) continue;
    const Locked recording(device->tails);
    const Locked locked(device->lock);
    device->gate.DropStream(stream);
  }
}

void ResetPacer() {
  g_epoch.fetch_add(1);
  g_noted_at.store(0);
  t_lease = {};
  g_book.Reset();
  time::ResetDevices();
  time::ResetTerms();
  time::ResetEvents();
  time::ResetHelper();
}

}  // namespace hami::vgpu
