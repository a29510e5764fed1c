// SPDX-License-Identifier: Apache-2.0
//
// The engine's interface to the rest of the driver: contexts, submission, waiting.
#include "simgpu/driver/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/context.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/event.h"
#include "simgpu/driver/graph.h"
#include "simgpu/driver/mps_client.h"

namespace simgpu {
namespace {

Share* NewShare(const Context& ctx) {
  Machine& machine = Machine::Get();
  auto* share = new Share();
  share->machine = ctx.machine();
  // A context in a MIG instance takes turns with the others of that GPU instance only.
  share->partition = ctx.device->mig() ? 1 + ctx.device->gpu_instance : 0;
  share->profile = ctx.device->spec->profile;
  share->sm_count = static_cast<std::uint32_t>(std::max(ctx.device->sm_count, 1));
  share->table = &machine.arbiter(ctx.machine());
  {
    ArbiterLock arbiter(*share);
    if (IsMpsClient() && !ctx.device->mig()) {
      share->arbiter = arbiter->AttachBeside(machine.slot(), MpsTerms().percent);
      if (share->arbiter >= 0) share->partition = arbiter->contexts[share->arbiter].partition;
    } else {
      share->arbiter = arbiter->Attach(machine.slot(), share->partition);
    }
  }
  if (share->arbiter < 0) {
    static ArbiterState* const kOwn = new ArbiterState();
    kOwn->timing = TimingOf(share->profile);
    share->shared_table = false;
    share->table = kOwn;
    share->arbiter = std::max(kOwn->Attach(0, share->partition), 0);
  }
  return share;
}

// Green contexts and the primary one of a device run side by side, on SMs of their own.
Share* ShareFor(Scheduler& sched, const Context& ctx) {
  if (ctx.kind != ContextKind::kCreated) {
    for (const Engine* engine : sched.engines) {
      if (engine->ctx->device == ctx.device && engine->ctx->kind != ContextKind::kCreated) {
        return engine->share;
      }
    }
  }
  Share* share = NewShare(ctx);
  sched.shares.push_back(share);
  return share;
}

Stream* NewStream(Scheduler& sched, Engine& engine, StreamKind kind, unsigned flags, int priority) {
  Stream* s = sched.streams.Take();
  if (s == nullptr) {
    return nullptr;
  }
  s->engine = &engine;
  s->ctx = engine.ctx;
  s->kind = kind;
  s->flags = flags;
  s->priority = priority;
  s->id = sched.next_stream_id++;
  s->capture.store(nullptr, std::memory_order_relaxed);
  s->legacy_seen = 0;
  s->plan_end = 0;
  s->busy_for_sure = 0;
  s->destroyed = false;
  std::memset(static_cast<void*>(s->attributes), 0, sizeof s->attributes);
  if (kind != StreamKind::kLane) {
    engine.streams.push_back(s);
  }
  return s;
}

Stream* PerThreadStream(Context& ctx) {
  // One entry of memory a thread; the kernel's thread id finds the stream again after another context was current.
  static __thread Stream* cached = nullptr;
  static __thread std::uint64_t cached_id = 0;
  if (cached != nullptr && cached->ctx == &ctx && cached->id == cached_id && cached->live) {
    return cached;
  }
  const auto self = static_cast<std::uint64_t>(gettid());
  EngineLock sched;
  Engine& engine = *ctx.engine;
  const auto found = std::find_if(engine.streams.begin(), engine.streams.end(), [self](const Stream* s) {
    return s->kind == StreamKind::kPerThread && s->owner_thread == self;
  });
  Stream* s = found != engine.streams.end() ? *found : NewStream(*sched, engine, StreamKind::kPerThread, 0, 0);
  if (s != nullptr) {
    s->owner_thread = self;
    cached = s;
    cached_id = s->id;
  }
  return s;
}

CUresult Usable(const Stream& s) {
  if (!s.ctx->alive.load(std::memory_order_acquire)) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return static_cast<CUresult>(s.ctx->sticky_error.load(std::memory_order_relaxed));
}

// What every wait of the host is refused for, and what it does afterwards.
CUresult MayWait(const Stream& s) {
  if (s.capture.load(std::memory_order_acquire) != nullptr) {
    return RefuseOnCapture(s);
  }
  return s.kind == StreamKind::kLegacy ? CheckLegacyUse(*s.ctx) : CUDA_SUCCESS;
}

CUresult AfterWait(Context& ctx) {
  TrimPoolsAtSync(ctx.ordinal());
  return static_cast<CUresult>(ctx.sticky_error.load(std::memory_order_relaxed));
}

void WaitAll(Scheduler& sched, const Context& ctx, Patience patience, Nanos* ended = nullptr) {
  std::vector<std::pair<Stream*, std::uint64_t>> targets;
  for (Stream* s : ctx.engine->share->pending) {
    if (s->ctx == &ctx) {
      targets.emplace_back(s, s->submitted);
    }
  }
  for (const auto& [s, seq] : targets) {
    if (s->completed < seq) {
      sched.WaitSeq(*s, seq, patience, ended);
    }
  }
}

// Half of what the arbiter remembers of a context that takes turns with one other. Below half a millisecond the thread
// would do nothing else.
Nanos HeartbeatFor(Nanos quantum) {
  constexpr Nanos kShortest = 500'000;
  return std::clamp(kIntervals * quantum / 2, kShortest, kHeartbeat);
}

}  // namespace

Scheduler& Scheduler::Get() {
  static Scheduler* const instance = [] {
    auto* sched = new Scheduler();
    // Held for less than a microsecond by the launching thread and the engine's in turn: to sleep and be woken costs
    // ten.
    pthread_mutexattr_t adaptive;
    pthread_mutexattr_init(&adaptive);
    pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&sched->lock, &adaptive);
    pthread_mutexattr_destroy(&adaptive);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sched->thread_wake, &monotonic);
    pthread_cond_init(&sched->progress, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const Options& options = Machine::Get().options();
    sched->virtual_clock = options.virtual_clock != 0;
    for (int i = 0; i < Machine::Get().device_count(); ++i) {
      const Profile& profile = Machine::Get().spec(i).profile;
      sched->heartbeat = std::min(sched->heartbeat, HeartbeatFor(static_cast<Nanos>(profile.turn_ns)));
    }
    sched->jitter = options.seed + static_cast<std::uint64_t>(Machine::Get().slot()) * 1'000'003;
    // With short turns somebody has to look while nobody waits: the first launch starts the thread.
    sched->thread_asleep = !sched->virtual_clock && sched->heartbeat < kHeartbeat;
    return sched;
  }();
  return *instance;
}

Engine* NewEngine(Context& ctx) {
  auto* engine = new Engine();
  engine->ctx = &ctx;
  EngineLock sched;
  engine->share = ShareFor(*sched, ctx);
  ++engine->share->engines;
  engine->sm_limit = ctx.sm_count > 0 ? static_cast<std::uint32_t>(ctx.sm_count) : engine->share->sm_count;
  engine->legacy = NewStream(*sched, *engine, StreamKind::kLegacy, 0, 0);
  sched->engines.push_back(engine);
  return engine;
}

void DestroyEngine(Context& ctx) {
  Engine* engine = ctx.engine;
  if (engine == nullptr) {
    return;
  }
  EndCapturesOf(ctx);
  DropLanesOf(ctx);
  EngineLock sched;
  WaitAll(*sched, ctx, Patience::kWhileItMoves);
  engine->dead = true;
  Share& share = *engine->share;
  for (;;) {
    const auto pending = std::find_if(share.pending.begin(), share.pending.end(),
                                      [engine](const Stream* s) { return s->engine == engine; });
    if (pending == share.pending.end()) {
      break;
    }
    sched->Cancel(**pending);
  }
  while (!engine->streams.empty()) {
    GiveStream(*sched, *engine->streams.back());
  }
  DestroyEventsOf(*sched, ctx);
  std::erase(sched->engines, engine);
  if (--share.engines == 0) {
    std::erase(sched->shares, &share);
    {
      ArbiterLock arbiter(share);
      arbiter->Detach(share.arbiter);
    }
    delete &share;
  }
  delete engine;
  ctx.engine = nullptr;  // under the lock: other threads may wait for all contexts just now
}

Stream* TakeLane(Scheduler& sched, Engine& engine) {
  return NewStream(sched, engine, StreamKind::kLane, CU_STREAM_NON_BLOCKING, 0);
}

// Gives back a stream at once if it is idle, else when it has come to its end.
void GiveStream(Scheduler& sched, Stream& s) {
  if (s.engine != nullptr) {
    std::erase(s.engine->streams, &s);
  }
  s.live.store(false, std::memory_order_release);
  s.destroyed = true;
  if (s.Empty()) {
    s.destroyed = false;
    s.engine = nullptr;
    sched.streams.Give(&s);
  }
}

Context& ContextOf(const Stream& stream) { return *stream.ctx; }

std::uint64_t NumberOf(const Stream& stream) { return stream.id; }

Stream* ResolveStream(CUstream handle, bool per_thread, CUresult* err) {
  *err = CUDA_SUCCESS;
  if (handle == nullptr) {
    handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  }
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* ctx = nullptr;
    *err = NeedContext(&ctx);
    if (*err != CUDA_SUCCESS) {
      return nullptr;
    }
    Stream* s = handle == CU_STREAM_LEGACY ? ctx->engine->legacy : PerThreadStream(*ctx);
    *err = s == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    return s;
  }
  Stream* s = Scheduler::Get().streams.Find(handle);
  if (s == nullptr || s->kind != StreamKind::kCreated) {
    *err = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  *err = Usable(*s);
  return *err == CUDA_SUCCESS ? s : nullptr;
}

CUresult CreateStream(Context& ctx, unsigned flags, int priority, CUstream* out) {
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(StreamBegins(ctx));
  EngineLock sched;
  Stream* s = ctx.engine == nullptr ? nullptr
                                    : NewStream(*sched, *ctx.engine, StreamKind::kCreated, flags,
                                                std::clamp(priority, kHighestStreamPriority, kLowestStreamPriority));
  if (s == nullptr) {
    StreamEnds(ctx);
    return ctx.engine == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = reinterpret_cast<CUstream>(s);
  return CUDA_SUCCESS;
}

CUresult SubmitCopy(Stream& s, const CopyOp& copy) {
  if (s.capture.load(std::memory_order_acquire) != nullptr) {
    return CaptureCopy(s, copy);
  }
  SIMGPU_TRY(s.kind == StreamKind::kLegacy ? CheckLegacyUse(*s.ctx) : CUDA_SUCCESS);
  EngineLock sched;
  EnterQueue(*sched, s);
  const Nanos now = Machine::Get().Now();
  EnqueueCopy(*sched, s, copy, now);
  LeaveQueue(*sched, s, now);
  return CUDA_SUCCESS;
}

CUresult SubmitFill(Stream& s, const FillOp& fill) {
  if (s.capture.load(std::memory_order_acquire) != nullptr) {
    return CaptureFill(s, fill);
  }
  SIMGPU_TRY(s.kind == StreamKind::kLegacy ? CheckLegacyUse(*s.ctx) : CUDA_SUCCESS);
  EngineLock sched;
  EnterQueue(*sched, s);
  const Nanos now = Machine::Get().Now();
  EnqueueFill(*sched, s, fill, now);
  LeaveQueue(*sched, s, now);
  return CUDA_SUCCESS;
}

CUresult SubmitCall(Stream& s, void (*call)(void*), void* arg) {
  if (s.capture.load(std::memory_order_acquire) != nullptr) {
    return RefuseOnCapture(s);
  }
  EngineLock sched;
  EnterQueue(*sched, s);
  const Nanos now = Machine::Get().Now();
  Op op;
  op.kind = OpKind::kCall;
  op.call = {call, arg};
  Enqueue(*sched, s, op, now);
  LeaveQueue(*sched, s, now);
  return CUDA_SUCCESS;
}

CUresult RunCopy(Stream& s, const CopyOp& copy) {
  SIMGPU_TRY(MayWait(s));
  SIMGPU_TRY(SubmitCopy(s, copy));
  EngineLock sched;
  sched->WaitSeq(s, s.submitted);
  return static_cast<CUresult>(s.ctx->sticky_error.load(std::memory_order_relaxed));
}

CUresult RunFill(Stream& s, const FillOp& fill) {
  SIMGPU_TRY(MayWait(s));
  SIMGPU_TRY(SubmitFill(s, fill));
  EngineLock sched;
  sched->WaitSeq(s, s.submitted);
  return static_cast<CUresult>(s.ctx->sticky_error.load(std::memory_order_relaxed));
}

bool IsCapturing(const Stream& s) { return s.capture.load(std::memory_order_acquire) != nullptr; }

CUresult WaitStream(Stream& s) {
  SIMGPU_TRY(MayWait(s));
  Nanos ended = RealNow();
  {
    EngineLock sched;
    if (s.kind == StreamKind::kLegacy) {
      EnterQueue(*sched, s);  // a wait for the legacy stream is a wait for all that it would wait for
    }
    sched->WaitSeq(s, s.submitted, Patience::kForEver, &ended);
  }
  SpendWake(ended);
  return AfterWait(*s.ctx);
}

CUresult WaitContext(Context& ctx) {
  SIMGPU_TRY(CheckContextWait(ctx));
  Nanos ended = RealNow();
  DrainContext(ctx, &ended);
  SpendWake(ended);
  return AfterWait(ctx);
}

bool StreamIdle(Stream& s) {
  EngineLock sched;
  sched->Commit(Machine::Get().Now());
  return s.Empty();
}

void DrainContext(Context& ctx, Nanos* ended) {
  EngineLock sched;
  if (ctx.engine != nullptr) {
    WaitAll(*sched, ctx, Patience::kForEver, ended);
  }
}

}  // namespace simgpu
