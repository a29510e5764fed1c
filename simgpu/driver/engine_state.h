// SPDX-License-Identifier: Apache-2.0
//
// The engine's own data: what is queued, what runs, and how far simulated time has come in this process. Only the files
// of the engine, the streams, the events and the graphs include it. Everything here is guarded by Scheduler::lock
// unless it says otherwise.
//
// Two clocks meet: kernels live in their context's GPU time v (see arbiter.h), everything else in wall time. A stream's
// head is what it does now; work behind the head is *planned* as long as its end in v can be bounded from below without
// knowing wall times, which is what the arbiter is told as demand. Commit brings the process' simulation up to a wall
// time; it goes from event to event, so that a late caller computes the same time stamps as a punctual one.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/driver/core.h"
#include "simgpu/driver/engine.h"
#include "simgpu/driver/handle_arena.h"
#include "simgpu/driver/mem.h"
#include "simgpu/machine/machine.h"

namespace simgpu {

struct Capture;
struct EventObject;
struct Share;

enum class OpKind : std::uint8_t {
  kKernel,      // `lead` ns on no SM, then `length` SM-nanoseconds, `width` SMs
  kCopy,        // payload; `length` ns on copy engine `engine`
  kFill,        // payload; `length` ns
  kDelay,       // `length` ns
  kCall,        // call
  kHost,        // call, on the engine's thread
  kRecord,      // event, after `lead` ns on no SM
  kWait,        // until another stream has come to `wait.seq`
  kWriteValue,  // memop
  kWaitValue,   // memop
  kRaiseValue,  // memop, 64 bits: no lower than what is there; done also when the queue is dropped
};

struct Payload {
  union {
    CopyOp copy;
    FillOp fill;
    Payload* next;
  };
  std::unique_ptr<std::byte[]> staged;  // what the copy reads, where the caller may change that
  Payload() : next(nullptr) {}
};

struct MemOp {
  std::byte* address;
  std::uint64_t value;
};

struct Call {
  void (*fn)(void*);
  void* arg;
};

struct EventMark {
  EventObject* object;
  std::uint64_t serial;
};

struct StreamMark {
  Stream* stream;
  std::uint64_t seq;
};

// One entry of a stream's queue.
struct Op {
  OpKind kind = OpKind::kDelay;
  std::uint8_t engine = 0;
  bool wide = false;         // memory operation of 64 bits
  std::uint8_t compare = 0;  // kWaitValue: CU_STREAM_WAIT_VALUE_* without the flush bit
  std::uint32_t width = 0;
  std::int64_t length = 0;
  std::int64_t lead = 0;   // of the context's time, whatever else runs in it
  std::int64_t bound = 0;  // once planned: v before which it can not be done
  union {
    Call call;
    EventMark event;
    StreamMark wait;
    MemOp memop;
    Payload* payload;
  };
  Op() : call{nullptr, nullptr} {}
};

enum class Head : std::uint8_t {
  kNone,     // the queue is empty
  kRunning,  // a kernel or what takes its context's time, in its share's running list
  kTimed,    // done at `head_end`
  kHost,     // a host function is queued or running
  kWait,     // for another stream
  kPoll,     // for a value in memory
};

// What the bytes of a timed head still need. Small ones are moved when the time comes; large ones as early as possible,
// outside the lock.
enum class Transfer : std::uint8_t { kNone, kAtEnd, kToDo, kMoving };

enum class StreamKind : std::uint8_t { kCreated, kLegacy, kPerThread, kLane };

struct Stream {
  // Read without the lock.
  std::atomic<bool> live{false};
  std::atomic<Capture*> capture{nullptr};
  Stream* next_free = nullptr;
  Engine* engine = nullptr;
  Context* ctx = nullptr;
  StreamKind kind = StreamKind::kCreated;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;
  std::uint64_t owner_thread = 0;  // kPerThread

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0 && kind != StreamKind::kLane; }

  // The queue. Sequence numbers never start anew, not even when the object is used for another stream, so that "has
  // come to `seq`" stays true for ever. Entry `seq` is ring[seq & (capacity - 1)].
  std::vector<Op> ring;
  std::uint64_t submitted = 0, planned = 0, completed = 0;
  std::uint64_t legacy_seen = 0;  // of the legacy stream, what this one waits for already

  // Planning.
  std::int64_t plan_end = 0;  // v before which the planned work can not be done
  Nanos busy_for_sure = 0;    // before this wall time the queue can not have run empty
  bool counted_unplanned = false;

  // Head.
  Head head = Head::kNone;
  Transfer bytes = Transfer::kNone;
  Nanos head_end = 0;
  std::int64_t lead = 0;  // ns before it takes SMs
  std::int64_t left = 0;  // SM-nanoseconds
  std::uint32_t granted_sms = 0;
  std::uint64_t start_order = 0;
  Stream* waiters = nullptr;  // streams whose head waits for this one
  Stream* next_waiter = nullptr;
  Stream* waits_on = nullptr;
  int pending_index = -1;  // in Share::pending
  bool destroyed = false;  // given back by the application, still has work

  // Attributes that are only kept.
  CUstreamAttrValue attributes[8] = {};

  Op& At(std::uint64_t seq) { return ring[seq & (ring.size() - 1)]; }
  bool Empty() const { return completed == submitted; }
};

// One context at the arbiter. Green contexts share their device's primary one, as they run side by side with it.
struct Share {
  int machine = 0;
  int partition = 0;
  Profile profile{};
  ArbiterState* table = nullptr;  // the machine's; or the process' own when that was full: it then runs as if alone
  bool shared_table = true;
  int arbiter = -1;  // index in *table
  std::uint32_t sm_count = 1;
  int engines = 0;
  std::int64_t v = 0;  // simulated up to here
  std::int64_t published = 0;
  std::int64_t work = 0;      // planned SM-nanoseconds that are not done
  std::int64_t plan_max = 0;  // greatest plan_end
  std::uint64_t next_order = 0;
  bool allocation_stale = true;
  bool idle = true;              // the arbiter does not know of work
  std::vector<Stream*> running;  // by priority, then start
  std::vector<Stream*> pending;  // streams that are not empty

  // The stretch of GPU time that Commit is at, as granted.
  std::vector<GrantInterval> map;
};

struct Engine {
  Context* ctx = nullptr;
  Share* share = nullptr;
  std::uint32_t sm_limit = 1;
  std::uint32_t granted_sms = 0;  // while the SMs are dealt out
  bool dead = false;
  Stream* legacy = nullptr;
  std::vector<Stream*> streams;  // not lanes
  Engine* next = nullptr;
};

struct HostCall {
  Stream* stream;     // null: belongs to none
  void (*fn)(void*);  // null: its context is gone
  void* arg;
  Nanos due;
};

// kWhileItMoves: gives up when the work waits for something that is not under way, as a value that nobody may write.
enum class Patience : std::uint8_t { kForEver, kWhileItMoves };

inline constexpr Nanos kHeartbeat = 100'000'000;  // of the engine's thread while there is work, and for a while after

struct Scheduler {
  static Scheduler& Get();

  pthread_mutex_t lock;
  pthread_cond_t thread_wake;  // the engine's thread: earlier work, or a host function
  pthread_cond_t progress;     // waiters: something happened outside the lock

  HandleArena<Stream, 65536> streams;
  std::vector<Share*> shares;
  std::vector<Engine*> engines;
  std::vector<Stream*> timed;    // heads of kind kTimed
  std::vector<Stream*> polling;  // heads of kind kPoll
  std::vector<HostCall> host_calls;
  std::size_t host_next = 0;  // first of host_calls that was not taken
  int host_running = 0;
  int bytes_to_do = 0;
  int unplanned = 0;        // streams with work that is not planned
  int waiting = 0;          // threads in a synchronous wait
  std::uint64_t moves = 0;  // grows whenever anything happens
  Nanos committed = 0;      // everything before this wall time has happened
  Payload* free_payloads = nullptr;
  std::uint64_t next_stream_id = 1;
  std::vector<std::pair<Stream*, Nanos>> ready;  // streams whose head may start, and when

  bool virtual_clock = false;
  std::uint64_t jitter = 0;  // state of the sequence that kernels' lengths scatter by
  // Between two looks at the arbiter, at most: it remembers only so many turns.
  Nanos heartbeat = kHeartbeat;
  bool thread_started = false;
  bool thread_asleep = false;  // waits without a due time
  Nanos thread_due = 0;

  // --- queue (engine_queue.cc) ---
  Op& Append(Stream& s);  // grows the ring; the caller fills the entry, then Plan and Start
  void Plan(Stream& s);
  void Pump(Stream& s, Nanos t);      // starts and finishes whatever can at time t
  void Settle();                      // pumps until `ready` is empty
  void Complete(Stream& s, Nanos t);  // the head is done
  void Cancel(Stream& s);             // drops all queued work
  void DropPending(Stream& s);
  void CountUnplanned(Stream& s);
  Payload* TakePayload();
  void GivePayload(Payload* payload);
  void ReleaseIfDone(Stream& s);
  bool StartHead(Stream& s, Op& op, Nanos t);
  void StartTimed(Stream& s, const Op& op, Nanos t);
  void FinishTimed(Stream& s, Nanos t);

  // --- time (engine_commit.cc) ---
  void Commit(Nanos now);
  void Publish(Share& share, Nanos t);  // t: the present, as far as this share is concerned
  void Withdraw(Share& share, Nanos t);
  void StepShare(Share& share, std::int64_t to);
  void DealSms(Share& share);
  std::int64_t NextFinish(Share& share);  // v of the running kernel that ends first
  Nanos PredictNext(Share& share);
  void AdvanceShare(Share& share, Nanos t);
  Nanos WallAt(const Share& share, std::int64_t v) const;
  void PollValues(Nanos t);
  void CompleteTimed(Nanos t);
  Nanos NextTimed() const;

  // --- waiting (engine_wait.cc) ---
  Nanos DueOf(Stream* awaited, std::uint64_t seq);  // when to look again
  // With the lock held, which it may release in between. False only when patience ended. `ended`: when the work did, by
  // the last forecast; left alone where there was nothing to wait for.
  bool WaitSeq(Stream& s, std::uint64_t seq, Patience patience = Patience::kForEver, Nanos* ended = nullptr);
  bool Stuck(Nanos due) const;  // nothing of this process will bring the work further
  void WaitForRoom(Stream& s);
  // Performs one large copy (of stream `only`, if given), releasing the lock meanwhile. False: there is none.
  bool MoveBytes(Stream* only);
  void WakeThread(Nanos due);
  void StartThread();
  void ThreadMain();
  void RunHostCall();
  void CallOnThread(void (*fn)(void*), void* arg);  // as soon as possible, in no stream
  void SleepVirtual(Nanos due);
  void SleepReal(Nanos now, Nanos due);
  bool Contended() const;
};

// The arbiter's lock, for a share's table.
class ArbiterLock {
 public:
  explicit ArbiterLock(const Share& share) : share_(share) {
    if (share.shared_table) {
      Machine::Get().LockArbiter(share.machine);
    }
  }
  ~ArbiterLock() {
    if (share_.shared_table) {
      Machine::Get().UnlockArbiter(share_.machine);
    }
  }
  ArbiterLock(const ArbiterLock&) = delete;
  ArbiterLock& operator=(const ArbiterLock&) = delete;
  ArbiterState* operator->() const { return share_.table; }

 private:
  const Share& share_;
};

// Holds Scheduler::lock.
class EngineLock {
 public:
  EngineLock() : scheduler_(Scheduler::Get()) { pthread_mutex_lock(&scheduler_.lock); }
  ~EngineLock() { pthread_mutex_unlock(&scheduler_.lock); }
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;
  Scheduler* operator->() const { return &scheduler_; }
  Scheduler& operator*() const { return scheduler_; }

 private:
  Scheduler& scheduler_;
};

// Most launches that a stream holds before the launcher is made to wait.
inline constexpr std::uint64_t kQueueDepth = 1024;

// --- submission with the lock held ---

// What an operation needs before it is appended: order with the legacy stream, and room.
void EnterQueue(Scheduler& sched, Stream& s);
void OrderQueue(Scheduler& sched, Stream& s);  // order only: it does not wait
// Appends `op` and starts it if it can. `now` is the time of the call.
void Enqueue(Scheduler& sched, Stream& s, const Op& op, Nanos now);
void EnqueueWait(Scheduler& sched, Stream& s, Stream& target, std::uint64_t seq, Nanos now);
// SM-nanoseconds. A kernel of more never ends in practice; the bound keeps sums of a few from overflowing.
constexpr std::uint64_t kMostSmNanos = std::uint64_t{1} << 58;
// `gap`: what the stream needs before the kernel, as in Profile.
void EnqueueKernel(Scheduler& sched, Stream& s, std::uint64_t sm_nanos, std::uint32_t width, std::uint64_t gap,
                   Nanos now);
void EnqueueCopy(Scheduler& sched, Stream& s, const CopyOp& copy, Nanos now);
void EnqueueFill(Scheduler& sched, Stream& s, const FillOp& fill, Nanos now);
// What every submission ends with: demand published, the engine's thread woken if it has to do something.
void LeaveQueue(Scheduler& sched, Stream& s, Nanos now);

// A stream for the inside of graphs: ordered with nothing by itself.
Stream* TakeLane(Scheduler& sched, Engine& engine);
void GiveStream(Scheduler& sched, Stream& s);

}  // namespace simgpu
