// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong on purpose, what the hardware reports about it, and the values a test may set.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <ctime>
#include <vector>

#include "simgpu/machine/config.h"
#include "simgpu/machine/local.h"
#include "simgpu/machine/real_clock.h"
#include "simgpu/machine/state.h"

namespace simgpu {
namespace {

constexpr std::uint64_t kXidEvent = 8;  // nvmlEventTypeXidCriticalError
constexpr int kCudaLost = 46;           // CUDA_ERROR_DEVICE_UNAVAILABLE
constexpr int kNvmlLost = 15;           // NVML_ERROR_GPU_IS_LOST
constexpr Nanos kLongestWait = 50'000'000;

// '*' stands for any text. Linear: on a mismatch only the last '*' grows.
bool Matches(const char* glob, const char* text) {
  const char* star = nullptr;
  const char* resume = nullptr;
  while (*text != 0) {
    if (*glob == '*') {
      star = ++glob;
      resume = text;
    } else if (*glob == *text) {
      ++glob;
      ++text;
    } else if (star != nullptr) {
      glob = star;
      text = ++resume;
    } else {
      return false;
    }
  }
  while (*glob == '*') ++glob;
  return *glob == 0;
}

// "_v2" and "_ptsz" behind a name, or nothing: the header gives the plain name to one of these.
bool IsVersion(const char* rest) {
  if (rest[0] == '_' && rest[1] == 'v' && std::isdigit(static_cast<unsigned char>(rest[2])) != 0) rest += 3;
  return *rest == 0 || std::strcmp(rest, "_ptds") == 0 || std::strcmp(rest, "_ptsz") == 0;
}

// A name without '*' stands for all its versions.
bool Calls(const char* call, const char* function) {
  if (Matches(call, function)) return true;
  const std::size_t length = std::strlen(call);
  return std::strncmp(call, function, length) == 0 && IsVersion(function + length);
}

// xorshift: enough to make one call in n fail, and the same in every run.
std::uint32_t RandomPerMillion(State& state) {
  std::uint64_t x = state.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  state.random = x;
  return static_cast<std::uint32_t>((x >> 16) % 1'000'000);
}

bool Strikes(State& state, FaultRule& rule) {
  ++rule.seen;
  if (rule.nth != 0 && rule.seen != rule.nth) return false;
  if (rule.count != 0 && rule.struck >= rule.count) return false;
  if (rule.per_million < 1'000'000 && RandomPerMillion(state) >= rule.per_million) return false;
  ++rule.struck;
  return true;
}

bool IsNvml(const char* function) { return std::strncmp(function, "nvml", 4) == 0; }

void Wake(State& state) {
  state.event_futex.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &state.event_futex, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

void AddFault(State& state, const Change& change) {
  const std::uint32_t used = state.fault_count.load();
  if (used == kMaxFaults) return;  // Inject refuses before; a file with so many is cut here
  FaultRule& rule = state.fault[used];
  rule = FaultRule{};
  change.call.copy(rule.call, sizeof rule.call - 1);
  rule.dev = change.dev;
  rule.error = change.error;
  rule.delay_ns = change.delay_ns;
  rule.nth = change.nth;
  rule.count = change.count;
  rule.per_million = change.per_million;
  state.fault_count.store(used + 1, std::memory_order_release);
}

void AddXid(State& state, int dev, const Change& change) {
  Event event = {};
  event.dev = dev;
  event.type = kXidEvent;
  event.data = change.code;
  event.gpu_instance = change.gpu_instance;
  event.compute_instance = change.compute_instance;
  event.when = StateNow(state) + static_cast<Nanos>(change.after_ns);
  PushEventLocked(state, event);
}

void ApplyToDevice(State& state, int dev, const Change& change) {
  DeviceState& device = state.device[dev];
  const std::uint32_t bit = 1u << dev;
  switch (change.kind) {
    case Change::Kind::kXid:
      AddXid(state, dev, change);
      break;
    case Change::Kind::kLost: {
      device.lost = 1;
      state.lost_mask.fetch_or(bit);
      Change fell;
      fell.code = 79;  // what the real driver reports of a GPU that has fallen off the bus
      AddXid(state, dev, fell);
      break;
    }
    case Change::Kind::kRecover:
      device.lost = 0;
      state.lost_mask.fetch_and(~bit);
      break;
    case Change::Kind::kSet:
      if (change.value < kValueCount) {
        device.value[change.value] = change.number;
        device.values_set |= std::uint64_t{1} << change.value;
      }
      break;
    case Change::Kind::kLink:
      if (change.value >= kMaxNvLinks) break;
      device.links_down =
          change.number != 0 ? device.links_down & ~(1u << change.value) : device.links_down | 1u << change.value;
      break;
    default:
      break;
  }
}

}  // namespace

void ApplyChange(State& state, const Change& change) {
  if (change.kind == Change::Kind::kFault) {
    AddFault(state, change);
    return;
  }
  if (change.kind == Change::Kind::kClear) state.fault_count.store(0);
  for (std::uint32_t dev = 0; dev < state.device_count; ++dev) {
    if (change.dev >= 0 && change.dev != static_cast<int>(dev)) continue;
    if (change.kind == Change::Kind::kClear) {
      // Everything that a test may have done, so that the machine is as new.
      state.device[dev].values_set = 0;
      state.device[dev].links_down = 0;
      state.device[dev].lost = 0;
      state.lost_mask.fetch_and(~(1u << dev));
    } else {
      ApplyToDevice(state, static_cast<int>(dev), change);
    }
  }
}

int Machine::FaultFor(const char* function, int dev) {
  if (!ok()) return 0;
  const std::uint32_t lost = state_->lost_mask.load(std::memory_order_relaxed);
  if (lost != 0 && dev >= 0 && dev < device_count() && (lost >> dev & 1) != 0) {
    return IsNvml(function) ? kNvmlLost : kCudaLost;
  }
  if (state_->fault_count.load(std::memory_order_acquire) == 0) return 0;
  int error = 0;
  std::uint64_t delay = 0;
  {
    StateLock lock(state_);
    for (std::uint32_t i = 0; i < state_->fault_count.load(); ++i) {
      FaultRule& rule = state_->fault[i];
      if (rule.dev >= 0 && rule.dev != dev) continue;
      if (!Calls(rule.call, function) || !Strikes(*state_, rule)) continue;
      delay += rule.delay_ns;
      if (error == 0) error = rule.error;
    }
  }
  if (delay > 0) SleepUntil(Now() + static_cast<Nanos>(delay));
  return error;
}

bool Machine::NothingInjected() const {
  return !ok() || (state_->fault_count.load(std::memory_order_acquire) == 0 &&
                   state_->lost_mask.load(std::memory_order_relaxed) == 0);
}

bool Machine::Lost(int dev) const {
  return dev >= 0 && dev < device_count() && (state_->lost_mask.load(std::memory_order_relaxed) >> dev & 1) != 0;
}

bool Machine::Inject(const char* text, std::string* error) {
  if (!ok()) {
    *error = error_;
    return false;
  }
  std::vector<Change> changes;
  if (!ParseChanges(text, "injected text", device_count(), &changes, error)) return false;
  StateLock lock(state_);
  std::size_t faults = state_->fault_count.load();
  for (const Change& change : changes) {
    if (change.kind == Change::Kind::kClear) faults = 0;
    if (change.kind == Change::Kind::kFault && ++faults > kMaxFaults) {
      *error = "injected text: more than " + std::to_string(kMaxFaults) + " faults at once; inject 'clear' first";
      return false;
    }
  }
  for (const Change& change : changes) ApplyChange(*state_, change);
  return true;
}

namespace {

void Append(State& state, Event event) {
  event.sequence = state.event_sequence.load() + 1;
  state.event[event.sequence % kEventRing] = event;
  state.event_sequence.store(event.sequence, std::memory_order_release);
  Wake(state);
}

void AppendDue(State& state) {
  const Nanos now = StateNow(state);
  while (state.delayed_count > 0) {
    Event* const end = state.delayed + std::min<std::uint32_t>(state.delayed_count, kEventRing);
    Event* const first =
        std::min_element(state.delayed, end, [](const Event& a, const Event& b) { return a.when < b.when; });
    if (first->when > now) return;
    const Event event = *first;
    std::copy(first + 1, end, first);
    --state.delayed_count;
    Append(state, event);
  }
}

}  // namespace

void PushEventLocked(State& state, const Event& event) {
  AppendDue(state);
  if (event.when <= StateNow(state) || state.delayed_count >= kEventRing) return Append(state, event);
  state.delayed[state.delayed_count++] = event;
  Wake(state);  // who waits for long has to look earlier now
}

std::uint64_t Machine::EventSequence() const {
  if (!ok()) return 0;
  StateLock lock(state_);
  AppendDue(*state_);
  return state_->event_sequence.load(std::memory_order_acquire);
}

bool Machine::WaitEvent(std::uint64_t* after, const std::uint64_t (&mask)[kMaxDevices], std::uint32_t timeout_ms,
                        Event* out) {
  if (!ok()) return false;
  const Nanos deadline = RealNow() + static_cast<Nanos>(timeout_ms) * 1'000'000;
  while (true) {
    const std::uint32_t token = state_->event_futex.load(std::memory_order_acquire);
    bool later = false;  // an event is known that is not due yet
    {
      StateLock lock(state_);
      AppendDue(*state_);
      later = state_->delayed_count > 0;
      const std::uint64_t last = state_->event_sequence.load();
      if (last > kEventRing && *after < last - kEventRing) *after = last - kEventRing;
      while (*after < last) {
        const Event& event = state_->event[++*after % kEventRing];
        if ((mask[event.dev] & event.type) == 0) continue;
        *out = event;
        return true;
      }
    }
    const Nanos left = deadline - RealNow();
    if (left <= 0) return false;
    const Nanos wait = std::min(left, later ? Nanos{1'000'000} : kLongestWait);
    const timespec ts = {static_cast<time_t>(wait / 1'000'000'000), static_cast<long>(wait % 1'000'000'000)};
    syscall(SYS_futex, &state_->event_futex, FUTEX_WAIT, token, &ts, nullptr, 0);
  }
}

bool Machine::GetValue(int dev, Value value, std::uint64_t* out) const {
  if (dev < 0 || dev >= device_count()) return false;
  StateLock lock(state_);
  const int bit = static_cast<int>(value);
  if ((state_->device[dev].values_set >> bit & 1) == 0) return false;
  *out = state_->device[dev].value[bit];
  return true;
}

void Machine::SetValue(int dev, Value value, std::uint64_t v) {
  if (dev < 0 || dev >= device_count()) return;
  Change change;
  change.kind = Change::Kind::kSet;
  change.value = static_cast<std::uint32_t>(value);
  change.number = v;
  StateLock lock(state_);
  ApplyToDevice(*state_, dev, change);
}

bool Machine::LinkUp(int dev, int link) const {
  if (dev < 0 || dev >= device_count() || link < 0 || link >= kMaxNvLinks) return false;
  if (state_->spec[dev].nvlink[link].peer == LinkPeer::kNone) return false;
  StateLock lock(state_);
  return (state_->device[dev].links_down >> link & 1) == 0;
}

void FormatUuid(const char* prefix, const std::uint8_t (&uuid)[16], char* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  const std::size_t n = std::strlen(prefix);
  std::memcpy(out, prefix, n);
  out += n;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    *out++ = kHex[uuid[i] >> 4];
    *out++ = kHex[uuid[i] & 15];
  }
  *out = 0;
}

}  // namespace simgpu
