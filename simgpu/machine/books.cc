// SPDX-License-Identifier: Apache-2.0
//
// Who holds how many bytes. The truth is each slot's `used` and each shared object's `bytes`; everything else is a sum
// that Recount computes again after a death.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "simgpu/machine/local.h"
#include "simgpu/machine/state.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace simgpu {
namespace {

std::uint64_t Sum(const std::uint64_t (&values)[kUses]) { return values[0] + values[1] + values[2]; }

std::uint64_t InstanceBytes(const State& state, int dev, int gpu_instance) {
  const GpuInstanceState& instance = state.device[dev].instance[gpu_instance];
  return state.spec[dev].mig[instance.profile].memory_mib << 20;
}

std::uint64_t InstanceUsed(const State& state, int dev, int gpu_instance) {
  std::uint64_t used = 0;
  for (std::uint32_t i = 0; i < state.slots_used; ++i) {
    const ProcessDevice& device = state.process[i].device[dev];
    if (state.process[i].live == 0 || device.gpu_instance != gpu_instance) continue;
    used += Sum(device.used) + Sum(device.shared);
  }
  return used;
}

// What this process may still take.
std::uint64_t RoomLocked(const State& state, int dev, int own) {
  const std::uint64_t total = state.spec[dev].total_bytes, used = Sum(state.device[dev].used);
  std::uint64_t room = used < total ? total - used : 0;
  if (own >= 0 && state.process[own].device[dev].pinned != 0) {
    const ProcessDevice& mine = state.process[own].device[dev];
    const std::uint64_t held = Sum(mine.used) + Sum(mine.shared);
    room = std::min(room, held < mine.pinned ? mine.pinned - held : 0);
  }
  const int gi = own < 0 ? -1 : state.process[own].device[dev].gpu_instance;
  if (gi < 0) return room;
  const std::uint64_t capacity = InstanceBytes(state, dev, gi), taken = InstanceUsed(state, dev, gi);
  const std::uint64_t inside = taken < capacity ? capacity - taken : 0;
  return inside < room ? inside : room;
}

bool FitsLocked(State& state, int dev, int own, std::uint64_t bytes) {
  if (bytes <= RoomLocked(state, dev, own)) return true;
  ReapLocked(state, true);
  return bytes <= RoomLocked(state, dev, own);
}

SharedRecord* FindShared(State& state, SharedId id) {
  const std::uint64_t index = id % kMaxShared;
  if (id == 0 || index >= state.shared_used || state.shared[index].id != id) return nullptr;
  return &state.shared[index];
}

bool Holds(const SharedRecord& record, int slot) { return (record.holders[slot / 64] >> (slot % 64) & 1) != 0; }

int FirstHolder(const SharedRecord& record) {
  for (int word = 0; word < Machine::kMaxProcesses / 64; ++word) {
    if (record.holders[word] != 0) return word * 64 + __builtin_ctzll(record.holders[word]);
  }
  return -1;
}

constinit std::atomic<void (*)(int, std::uint64_t)> g_grown{nullptr};
constinit std::atomic<void (*)(int, std::uint64_t)> g_giving{nullptr};

void ShowGrowth(const State& state, int dev) {
  if (auto* const look = g_grown.load(std::memory_order_acquire)) look(dev, Sum(state.device[dev].used));
}

// A free record with its id set, or null. The id names the record's index and never comes back.
SharedRecord* NewShared(State& state, int dev, std::uint64_t bytes, Use use, int own) {
  std::uint32_t index = 0;
  while (index < state.shared_used && state.shared[index].id != 0) ++index;
  if (index == kMaxShared) return nullptr;
  if (index == state.shared_used) ++state.shared_used;
  SharedRecord& record = state.shared[index];
  std::memset(record.holders, 0, sizeof record.holders);
  record.dev = dev;
  record.use = static_cast<std::uint32_t>(use);
  record.bytes = bytes;
  record.payer = own;
  record.holders[own / 64] = std::uint64_t{1} << (own % 64);
  record.id = state.next_shared++ * kMaxShared + index;
  return &record;
}

}  // namespace

void InitRobustMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

bool LockRobust(const State& state, pthread_mutex_t* mutex) {
  // A robust mutex survives its owner's death but not a waiter's: one that is killed after it was woken takes the
  // wake-up with it, and the next in line would sleep for ever. So nobody sleeps long without looking again.
  constexpr long kLookAgain = 20'000'000;
  int stopped = 0;
  int result = ETIMEDOUT;
  while (result == ETIMEDOUT) {
    timespec until = {};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += kLookAgain;
    if (until.tv_nsec >= 1'000'000'000) {
      until.tv_nsec -= 1'000'000'000;
      ++until.tv_sec;
    }
    result = pthread_mutex_timedlock(mutex, &until);
    if (result != ETIMEDOUT || stopped != 0) continue;
    stopped = StoppedProcess(state, mutex->__data.__owner);
    if (stopped != 0) kill(stopped, SIGCONT);
  }
  if (stopped != 0) kill(stopped, SIGSTOP);
  if (result != EOWNERDEAD) return false;
#ifdef __SANITIZE_THREAD__
  // It takes any failure of a timed lock for a mutex that was not locked.
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
  __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock, 0);
#endif
  pthread_mutex_consistent(mutex);
  return true;
}

StateLock::StateLock(State* state) : state_(state) {
  if (LockRobust(*state_, &state_->mutex)) {
    ReapLocked(*state_, true);
    Recount(*state_);
  }
}
StateLock::~StateLock() { pthread_mutex_unlock(&state_->mutex); }

void Recount(State& state) {
  for (std::uint32_t i = 0; i < state.shared_used; ++i) {
    SharedRecord& record = state.shared[i];
    if (record.id == 0) continue;
    for (int word = 0; word < Machine::kMaxProcesses / 64; ++word) {
      std::uint64_t left = record.holders[word];
      while (left != 0) {
        const int bit = __builtin_ctzll(left);
        left &= left - 1;
        if (state.process[word * 64 + bit].live == 0) record.holders[word] &= ~(std::uint64_t{1} << bit);
      }
    }
    if (record.payer < 0 || !Holds(record, record.payer)) record.payer = FirstHolder(record);
    if (record.payer < 0) record.id = 0;
  }
  for (std::uint32_t dev = 0; dev < state.device_count; ++dev) {
    std::uint64_t sum[kUses] = {};
    for (std::uint32_t i = 0; i < state.slots_used; ++i) {
      ProcessDevice& device = state.process[i].device[dev];
      if (state.process[i].live == 0) continue;
      for (int use = 0; use < kUses; ++use) {
        sum[use] += device.used[use];
        device.shared[use] = 0;
      }
    }
    for (std::uint32_t i = 0; i < state.shared_used; ++i) {
      const SharedRecord& record = state.shared[i];
      if (record.id == 0 || record.dev != static_cast<std::int32_t>(dev)) continue;
      sum[record.use] += record.bytes;
      ProcessDevice& device = state.process[record.payer].device[dev];
      device.shared[record.use] += record.bytes;
      Touch(device);
    }
    for (int use = 0; use < kUses; ++use) state.device[dev].used[use] = sum[use];
  }
}

bool Machine::Charge(int dev, std::uint64_t bytes, Use use) {
  if (dev < 0 || dev >= device_count()) return false;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  if (own < 0 || !FitsLocked(*state_, dev, own, bytes)) return false;
  ProcessDevice& device = state_->process[own].device[dev];
  Touch(device);
  device.used[static_cast<int>(use)] += bytes;
  state_->device[dev].used[static_cast<int>(use)] += bytes;
  ShowGrowth(*state_, dev);
  return true;
}

void Machine::JoinMps(int dev, std::uint64_t pinned) {
  if (dev < 0 || dev >= device_count()) return;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  if (own < 0) return;
  ProcessDevice& device = state_->process[own].device[dev];
  Touch(device);
  device.mps = 1;
  device.pinned = pinned;
}

void Machine::LookAtBooks(const BooksLook& look) {
  g_grown.store(look.grown, std::memory_order_release);
  g_giving.store(look.giving, std::memory_order_release);
}

void Machine::Refund(int dev, std::uint64_t bytes, Use use) {
  if (dev < 0 || dev >= device_count()) return;
  if (auto* const look = g_giving.load(std::memory_order_acquire)) look(dev, bytes);
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  if (own < 0) return;
  std::uint64_t& held = state_->process[own].device[dev].used[static_cast<int>(use)];
  if (bytes > held) bytes = held;
  held -= bytes;
  state_->device[dev].used[static_cast<int>(use)] -= bytes;
}

std::uint64_t Machine::TotalBytes(int dev) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  const int gi = own < 0 ? -1 : state_->process[own].device[dev].gpu_instance;
  return gi < 0 ? state_->spec[dev].total_bytes : InstanceBytes(*state_, dev, gi);
}

std::uint64_t Machine::FreeBytes(int dev) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  ReapLocked(*state_, false);
  return RoomLocked(*state_, dev, OwnSlotLocked(*state_));
}

std::uint64_t Machine::UsedBytes(int dev) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  ReapLocked(*state_, false);
  return Sum(state_->device[dev].used);
}

std::uint64_t Machine::InstanceUsedBytes(int dev, int gpu_instance) {
  if (dev < 0 || dev >= device_count() || gpu_instance < 0 || gpu_instance >= kMaxGpuInstances) return 0;
  StateLock lock(state_);
  ReapLocked(*state_, false);
  return InstanceUsed(*state_, dev, gpu_instance);
}

std::uint64_t Machine::ProcessBytes(int dev, int pid) {
  std::uint64_t total = 0;
  for (const Use use : {Use::kContext, Use::kModule, Use::kData}) total += ProcessBytes(dev, use, pid);
  return total;
}

std::uint64_t Machine::ProcessBytes(int dev, Use use, int pid) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  if (pid != 0) ReapLocked(*state_, false);
  const int slot = pid == 0 ? OwnSlotLocked(*state_) : FindSlot(*state_, pid);
  if (slot < 0) return 0;
  const ProcessDevice& device = state_->process[slot].device[dev];
  return device.used[static_cast<int>(use)] + device.shared[static_cast<int>(use)];
}

void Machine::AddContext(int dev) {
  if (dev < 0 || dev >= device_count()) return;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  if (own < 0) return;
  ++state_->process[own].device[dev].contexts;
  Touch(state_->process[own].device[dev]);
}

void Machine::DropContext(int dev) {
  if (dev < 0 || dev >= device_count()) return;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  if (own >= 0 && state_->process[own].device[dev].contexts > 0) --state_->process[own].device[dev].contexts;
}

SharedId Machine::CreateShared(int dev, std::uint64_t bytes, Use use) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  if (own < 0 || !FitsLocked(*state_, dev, own, bytes)) return 0;
  SharedRecord* const record = NewShared(*state_, dev, bytes, use, own);
  if (record == nullptr) return 0;
  ProcessDevice& device = state_->process[own].device[dev];
  Touch(device);
  device.shared[static_cast<int>(use)] += bytes;
  state_->device[dev].used[static_cast<int>(use)] += bytes;
  ShowGrowth(*state_, dev);
  return record->id;
}

SharedId Machine::ShareCharged(int dev, std::uint64_t bytes, Use use) {
  if (dev < 0 || dev >= device_count()) return 0;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  if (own < 0) return 0;
  ProcessDevice& device = state_->process[own].device[dev];
  if (device.used[static_cast<int>(use)] < bytes) return 0;
  SharedRecord* const record = NewShared(*state_, dev, bytes, use, own);
  if (record == nullptr) return 0;
  device.used[static_cast<int>(use)] -= bytes;
  device.shared[static_cast<int>(use)] += bytes;
  return record->id;
}

bool Machine::AddHolder(SharedId id) {
  if (!ok()) return false;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  SharedRecord* const record = FindShared(*state_, id);
  if (own < 0 || record == nullptr) return false;
  record->holders[own / 64] |= std::uint64_t{1} << (own % 64);
  return true;
}

void Machine::DropHolder(SharedId id) {
  if (!ok()) return;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  SharedRecord* const record = FindShared(*state_, id);
  if (own < 0 || record == nullptr || !Holds(*record, own)) return;
  record->holders[own / 64] &= ~(std::uint64_t{1} << (own % 64));
  Recount(*state_);
}

int Machine::Holders(SharedId id) {
  if (!ok()) return 0;
  StateLock lock(state_);
  ReapLocked(*state_, false);
  const SharedRecord* const record = FindShared(*state_, id);
  if (record == nullptr) return 0;
  int count = 0;
  for (const std::uint64_t word : record->holders) count += __builtin_popcountll(word);
  return count;
}

}  // namespace simgpu
