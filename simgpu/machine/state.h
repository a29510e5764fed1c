// SPDX-License-Identifier: Apache-2.0
//
// The layout of the shared file. Only simgpu/machine looks inside. Plain data and lock-free atomics; a process may die
// between any two instructions, so the truth is kept in few places (process slots and shared objects) and every total
// can be computed again from them (books.cc: Recount).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "simgpu/machine/machine.h"

namespace simgpu {

inline constexpr std::uint64_t kStateMagic = 0x3175'7067'6d69'7301;
inline constexpr std::uint32_t kStateVersion = 4;
inline constexpr int kMaxShared = 4096;
inline constexpr int kMaxFaults = 64;
inline constexpr int kEventRing = 256;
inline constexpr int kProcessBuckets = 32;
inline constexpr int kDeviceBuckets = 128;
inline constexpr int kValueCount = static_cast<int>(Machine::Value::kCount);

// Busy time inside one sample period; `period` tells which (0: never used).
struct Bucket {
  std::uint64_t period;
  std::uint64_t busy_ns;
};

struct ProcessDevice {
  std::uint64_t used[kUses];    // truth: private bytes of this process
  std::uint64_t shared[kUses];  // derived: shared objects that it pays for
  std::uint32_t contexts;
  std::uint32_t touched;  // anything here is worth clearing; set by Touch
  std::int32_t gpu_instance, compute_instance;
  std::uint32_t mps;     // it is a client of MPS
  std::uint64_t pinned;  // bytes that MPS lets it take; 0: no limit
  std::uint64_t busy_ns[kBusyKinds];
  Bucket bucket[kBusyKinds][kProcessBuckets];
};

// Set under the books' lock by some and under an arbiter's by others.
inline void Touch(ProcessDevice& device) { __atomic_store_n(&device.touched, 1U, __ATOMIC_RELAXED); }

struct ProcessSlot {
  std::uint32_t live;
  std::int32_t pid, host_pid;
  std::uint32_t life_line;      // 1: it holds one, and who can not judge by its pid may judge by that
  std::uint64_t start_time;     // field 22 of /proc/<pid>/stat, 0 unknown
  std::uint64_t pid_namespace;  // inode; a process judges the pids of its own namespace only
  std::uint64_t image;          // differs between the programs that one process runs one after the other (exec)
  std::uint64_t stack;          // the same as others can see it: field 28 of stat, 0 unknown
  ProcessDevice device[kMaxDevices];
};

struct SharedRecord {
  SharedId id;  // 0: free
  std::int32_t dev;
  std::uint32_t use;
  std::uint64_t bytes;
  std::int32_t payer;  // slot whose books show it
  std::int32_t gpu_instance;
  std::uint64_t holders[Machine::kMaxProcesses / 64];
};

struct FaultRule {
  char call[64];  // glob over function names
  std::int32_t dev;
  std::int32_t error;
  std::uint64_t delay_ns;
  std::uint64_t nth;    // 0: every matching call; n: only the n-th
  std::uint64_t count;  // 0: for ever; else how often it strikes
  std::uint32_t per_million;
  std::uint32_t unused;
  std::uint64_t seen, struck;
};

struct ComputeInstanceState {
  std::uint32_t live;
  std::uint32_t start, slices;
  std::uint32_t generation;
};

struct GpuInstanceState {
  std::uint32_t live;
  std::uint32_t profile;
  std::uint32_t start, size;
  std::uint32_t generation;
  ComputeInstanceState compute[kMaxComputeInstances];
};

struct DeviceState {
  std::uint64_t used[kUses];  // derived: sum over slots and shared objects
  std::uint64_t busy_ns[kBusyKinds];
  Bucket bucket[kBusyKinds][kDeviceBuckets];
  std::uint32_t lost;
  std::uint32_t links_down;  // bit per NVLink
  std::uint64_t values_set;  // bit per Machine::Value
  std::uint64_t value[kValueCount];
  std::uint32_t mig_enabled, mig_pending;
  GpuInstanceState instance[kMaxGpuInstances];
  pthread_mutex_t arbiter_mutex;
  // What of the arbiter's grants was already put into the buckets: v of each context, and the wall time of that.
  std::int64_t harvested_v[kMaxContexts];
  ArbiterState arbiter;
};

struct State {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t ready;  // 1 once everything else was written
  std::uint64_t bytes;
  std::uint64_t config_hash;
  char description[256];  // what it was made from, for error messages

  std::uint32_t device_count;
  Options options;
  DeviceSpec spec[kMaxDevices];

  pthread_mutex_t mutex;  // guards everything below but the atomics
  std::atomic<std::int64_t> clock;
  std::atomic<std::uint32_t> fault_count;
  std::atomic<std::uint32_t> lost_mask;
  std::atomic<std::uint64_t> event_sequence;
  std::atomic<std::uint32_t> event_futex;
  std::uint32_t slots_used;   // slots [0, slots_used) may be live
  std::uint32_t shared_used;  // the same of shared objects
  std::uint64_t next_shared;
  std::uint64_t random;
  Nanos last_full_reap;
  FaultRule fault[kMaxFaults];
  Event event[kEventRing];
  Event delayed[kEventRing];  // whose time has not come: they get their place in the ring when somebody looks then
  std::uint32_t delayed_count;
  DeviceState device[kMaxDevices];
  SharedRecord shared[kMaxShared];
  ProcessSlot process[Machine::kMaxProcesses];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

// Holds the machine's lock; takes over from a dead owner and recounts.
class StateLock {
 public:
  explicit StateLock(State* state);
  ~StateLock();
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;

 private:
  State* state_;
};

// The following expect the lock to be held.
void Recount(State& state);
void ReapLocked(State& state, bool thorough);
void FreeSlot(State& state, int slot);
int FindSlot(const State& state, int pid);
// Attaches this process; -1 when the table is full.
int AttachProcess(State& state);
// Events are heard in the order of their times: one of the future waits until then.
void PushEventLocked(State& state, const Event& event);
void InitRobustMutex(pthread_mutex_t* mutex);
// True when the previous owner died: the caller repairs what it guards. An owner that was stopped inside (SIGSTOP,
// Ctrl-Z) is made to go on until it has let go, and is stopped again then: a GPU does not wait for a stopped program.
// One that a debugger holds is waited for.
bool LockRobust(const State& state, pthread_mutex_t* mutex);
// A process of this machine and this pid namespace that is stopped; 0 where thread `tid` is none's.
int StoppedProcess(const State& state, int tid);

// Puts the arbiter's new grants into the buckets; cheap when there are none. The arbiter's lock is held.
void HarvestLocked(State& state, int dev);
// Adds an interval to a ring of buckets.
void AddToBuckets(Bucket* ring, int count, std::uint64_t period_ns, Nanos start, Nanos end);
void AcquireArbiter(State& state, int dev);
void ReleaseArbiter(State& state, int dev);
Nanos StateNow(State& state);

struct Change;
void ApplyChange(State& state, const Change& change);

}  // namespace simgpu
