// SPDX-License-Identifier: Apache-2.0
//
// Time, and what of it the GPUs were busy: exact counters for tests, and the coarse, late samples that NVML shows.
#include <bit>
#include <cerrno>
#include <ctime>

#include "simgpu/machine/local.h"
#include "simgpu/machine/state.h"

namespace simgpu {
namespace {

Nanos Monotonic() {
  timespec ts = {};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * 1'000'000'000 + ts.tv_nsec;
}

std::uint64_t PeriodOf(const State& state) {
  return state.options.nvml_period_ns == 0 ? 1 : state.options.nvml_period_ns;
}

std::uint32_t Percent(std::uint64_t busy, std::uint64_t period) {
  const std::uint64_t percent = (busy * 100 + period / 2) / period;
  return static_cast<std::uint32_t>(percent > 100 ? 100 : percent);
}

// Periods are numbered from 1, so that an untouched bucket belongs to none.
std::uint64_t PeriodNumber(Nanos when, std::uint64_t period_ns) {
  return when < 0 ? 1 : static_cast<std::uint64_t>(when) / period_ns + 1;
}

std::uint64_t BusyIn(const Bucket* ring, int count, std::uint64_t number) {
  const Bucket& bucket = ring[number % static_cast<std::uint64_t>(count)];
  return bucket.period == number ? bucket.busy_ns : 0;
}

struct Engines {
  const Bucket* sm;
  const Bucket* memory;
  int count;
};

UtilSample SampleOf(const State& state, const Engines& engines, int dev, std::uint64_t number) {
  const std::uint64_t period = PeriodOf(state);
  const DeviceState& device = state.device[dev];
  UtilSample sample = {};
  sample.when = static_cast<Nanos>(number * period);
  sample.sm = Percent(BusyIn(engines.sm, engines.count, number), period);
  sample.memory = Percent(BusyIn(engines.memory, engines.count, number), period);
  const auto set = [&](Machine::Value value, std::uint32_t* out) {
    const int bit = static_cast<int>(value);
    if ((device.values_set >> bit & 1) != 0) *out = static_cast<std::uint32_t>(device.value[bit]);
  };
  set(Machine::Value::kEncoderUtil, &sample.encoder);
  set(Machine::Value::kDecoderUtil, &sample.decoder);
  return sample;
}

// The newest period that is over and old enough to be shown; 0 when there is none.
std::uint64_t NewestVisible(State& state) {
  const Nanos seen = StateNow(state) - static_cast<Nanos>(state.options.nvml_lag_ns);
  return seen <= 0 ? 0 : PeriodNumber(seen, PeriodOf(state)) - 1;
}

std::size_t History(State& state, const Engines& engines, int dev, Nanos after, UtilSample* out, std::size_t room) {
  const std::uint64_t newest = NewestVisible(state), period = PeriodOf(state);
  const auto kept = static_cast<std::uint64_t>(engines.count) - 1;  // the running period has a bucket too
  std::uint64_t first = newest > kept ? newest - kept + 1 : 1;
  if (after > 0 && static_cast<std::uint64_t>(after) / period + 1 > first) {
    first = static_cast<std::uint64_t>(after) / period + 1;
  }
  if (newest >= first && newest - first + 1 > room) first = newest - room + 1;
  std::size_t stored = 0;
  for (std::uint64_t n = first; n <= newest && stored < room; ++n) out[stored++] = SampleOf(state, engines, dev, n);
  return stored;
}

// Holds the arbiter, with its grants and what is known of them brought up to now.
class FreshArbiter {
 public:
  FreshArbiter(State& state, int dev) : state_(state), dev_(dev) {
    AcquireArbiter(state, dev);
    const Nanos now = StateNow(state);
    ArbiterState& arbiter = state.device[dev].arbiter;
    for (int partition = 0; partition < kPartitions; ++partition) {
      if (arbiter.partitions[partition].runnable > 0) arbiter.Advance(partition, now);
    }
    HarvestLocked(state, dev);
  }
  ~FreshArbiter() { ReleaseArbiter(state_, dev_); }
  FreshArbiter(const FreshArbiter&) = delete;
  FreshArbiter& operator=(const FreshArbiter&) = delete;

 private:
  State& state_;
  int dev_;
};

}  // namespace

Nanos StateNow(State& state) {
  if (state.options.virtual_clock == 0) return Monotonic();
  const auto step = static_cast<std::int64_t>(state.options.virtual_step_ns);
  return step == 0 ? state.clock.load(std::memory_order_acquire) : state.clock.fetch_add(step) + step;
}

Nanos Machine::Now() { return ok() ? StateNow(*state_) : Monotonic(); }

void Machine::SleepUntil(Nanos when) {
  if (ok() && state_->options.virtual_clock != 0) {
    std::int64_t now = state_->clock.load(std::memory_order_acquire);
    while (now < when && !state_->clock.compare_exchange_weak(now, when)) {
    }
    return;
  }
  const timespec ts = {static_cast<time_t>(when / 1'000'000'000), static_cast<long>(when % 1'000'000'000)};
  if (when <= 0) return;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, nullptr) == EINTR) {
  }
}

void Machine::Advance(Nanos by) {
  if (ok() && state_->options.virtual_clock != 0 && by > 0) state_->clock.fetch_add(by);
}

ArbiterState& Machine::arbiter(int dev) {
  static ArbiterState* const kNone = new ArbiterState{};
  return dev >= 0 && dev < device_count() ? state_->device[dev].arbiter : *kNone;
}

void AcquireArbiter(State& state, int dev) {
  if (LockRobust(state, &state.device[dev].arbiter_mutex)) state.device[dev].arbiter.Repair();
}
void ReleaseArbiter(State& state, int dev) { pthread_mutex_unlock(&state.device[dev].arbiter_mutex); }

void Machine::LockArbiter(int dev) {
  if (dev < 0 || dev >= device_count()) return;
  slot();  // attaching takes the books' lock and all arbiters': not something to happen inside
  AcquireArbiter(*state_, dev);
}

void Machine::UnlockArbiter(int dev) {
  if (dev < 0 || dev >= device_count()) return;
  HarvestLocked(*state_, dev);
  ReleaseArbiter(*state_, dev);
}

void AddToBuckets(Bucket* ring, int count, std::uint64_t period_ns, Nanos start, Nanos end) {
  if (start < 0) start = 0;
  if (end <= start) return;
  const auto period = static_cast<Nanos>(period_ns);
  const Nanos keep = period * (count - 1);
  if (end - start > keep) start = end - keep;  // the ring would forget the rest at once
  while (start < end) {
    const std::uint64_t number = PeriodNumber(start, period_ns);
    const Nanos border = static_cast<Nanos>(number) * period;
    const Nanos until = border < end ? border : end;
    Bucket& bucket = ring[number % static_cast<std::uint64_t>(count)];
    if (bucket.period < number) bucket = {number, 0};
    if (bucket.period == number) bucket.busy_ns += static_cast<std::uint64_t>(until - start);
    start = until;
  }
}

namespace {

void Credit(State& state, int dev, int slot, Busy kind, Nanos start, Nanos end) {
  const int k = static_cast<int>(kind);
  const auto length = static_cast<std::uint64_t>(end - start);
  DeviceState& device = state.device[dev];
  device.busy_ns[k] += length;
  AddToBuckets(device.bucket[k], kDeviceBuckets, PeriodOf(state), start, end);
  if (slot < 0 || slot >= Machine::kMaxProcesses || state.process[slot].live == 0) return;
  ProcessDevice& process = state.process[slot].device[dev];
  Touch(process);
  process.busy_ns[k] += length;
  AddToBuckets(process.bucket[k], kProcessBuckets, PeriodOf(state), start, end);
}

// The grants of one context since the last harvest. Where its ring has forgotten some, the rest of v is laid before the
// oldest one it remembers: the exact counters stay exact, only the samples smear.
void HarvestContext(State& state, int dev, int ctx) {
  DeviceState& device = state.device[dev];
  const ArbiterContext& context = device.arbiter.contexts[ctx];
  std::int64_t done = device.harvested_v[ctx];
  if (context.granted < done) device.harvested_v[ctx] = done = 0;  // the place was given to a new context
  if (context.granted == done) return;
  const std::uint64_t kept = context.intervals < kIntervals ? context.intervals : kIntervals;
  std::uint64_t first = context.intervals;
  while (first > context.intervals - kept) {
    const GrantInterval& interval = device.arbiter.rings[ctx][(first - 1) % kIntervals];
    if (interval.v + interval.length <= done) break;
    --first;
  }
  for (std::uint64_t i = first; i < context.intervals; ++i) {
    const GrantInterval& interval = device.arbiter.rings[ctx][i % kIntervals];
    const Nanos end = interval.wall + interval.length;
    const Nanos start = end - (interval.v + interval.length - done);
    Credit(state, dev, context.owner, Busy::kSm, start, end);
    done = interval.v + interval.length;
  }
  device.harvested_v[ctx] = done;
}

}  // namespace

void HarvestLocked(State& state, int dev) {
  for (int word = 0; word < kMaxContexts / 64; ++word) {
    std::uint64_t& changed = state.device[dev].arbiter.changed[word];
    while (changed != 0) {
      HarvestContext(state, dev, 64 * word + std::countr_zero(changed));
      changed &= changed - 1;  // last: who dies in between leaves it to the next
    }
  }
}

void Machine::AddBusy(int dev, Nanos start, Nanos end, Busy kind) {
  if (dev < 0 || dev >= device_count() || end <= start) return;
  const int own = slot();
  AcquireArbiter(*state_, dev);
  Credit(*state_, dev, own, kind, start, end);
  ReleaseArbiter(*state_, dev);
}

std::uint64_t Machine::BusyNanos(int dev, Busy kind, int pid) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  const FreshArbiter fresh(*state_, dev);
  if (pid == 0) return state_->device[dev].busy_ns[static_cast<int>(kind)];
  const int slot = FindSlot(*state_, pid);
  return slot < 0 ? 0 : state_->process[slot].device[dev].busy_ns[static_cast<int>(kind)];
}

UtilSample Machine::DeviceUtil(int dev) {
  if (dev < 0 || dev >= device_count()) return {};
  const FreshArbiter fresh(*state_, dev);
  const DeviceState& device = state_->device[dev];
  return SampleOf(*state_, {device.bucket[0], device.bucket[1], kDeviceBuckets}, dev, NewestVisible(*state_));
}

std::size_t Machine::DeviceUtilHistory(int dev, Nanos after, UtilSample* out, std::size_t room) {
  if (dev < 0 || dev >= device_count()) return 0;
  const FreshArbiter fresh(*state_, dev);
  const DeviceState& device = state_->device[dev];
  return History(*state_, {device.bucket[0], device.bucket[1], kDeviceBuckets}, dev, after, out, room);
}

std::size_t Machine::ProcessUtil(int dev, int slot, Nanos after, UtilSample* out, std::size_t room) {
  if (dev < 0 || dev >= device_count() || slot < 0 || slot >= kMaxProcesses) return 0;
  const FreshArbiter fresh(*state_, dev);
  const ProcessDevice& process = state_->process[slot].device[dev];
  return History(*state_, {process.bucket[0], process.bucket[1], kProcessBuckets}, dev, after, out, room);
}

}  // namespace simgpu
