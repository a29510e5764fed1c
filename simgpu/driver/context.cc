// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/context.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "simgpu/driver/engine.h"
#include "simgpu/driver/kernel.h"
#include "simgpu/driver/mem.h"
#include "simgpu/driver/mps_client.h"

namespace simgpu {
namespace {

struct Primary {
  Context* ctx = nullptr;
  int references = 0;
  std::uint64_t life = 0;  // how often it came to life: a reference of an earlier life is worth nothing
};

// `lifecycle` makes birth and death of primary contexts one step, and is held over calls into the engine, which never
// call back into this file. `lock` guards the registry and is innermost.
struct Contexts {
  std::mutex lifecycle;
  std::mutex lock;
  std::unordered_set<const void*> known;  // every context there ever was
  std::vector<Context*> live;
  Primary primary[kMaxDevices];
  std::uint64_t next_id = 1;
};

Contexts& TheContexts() {
  static Contexts& contexts = *new Contexts;
  return contexts;
}

Context* Register(const Device& device, ContextKind kind, unsigned flags) {
  auto* ctx = new Context;
  ctx->kind = kind;
  ctx->device = &device;
  ctx->flags = flags;
  ctx->api_version = 3020;
  ctx->sm_count = device.sm_count;
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lock);
  ctx->id = contexts.next_id++;
  contexts.known.insert(ctx);
  return ctx;
}

// For a context that never lived.
void Forget(Context* ctx) {
  Contexts& contexts = TheContexts();
  {
    const std::lock_guard<std::mutex> guard(contexts.lock);
    contexts.known.erase(ctx);
  }
  delete ctx;
}

void ResetLimits(Context& ctx) {
  const Context fresh;
  ctx.stack_bytes = fresh.stack_bytes.load();
  ctx.printf_bytes = fresh.printf_bytes.load();
  ctx.heap_bytes = fresh.heap_bytes.load();
  ctx.local_bytes = 0;
  ctx.streams = ctx.streams_charged = 0;
  ctx.graph_nodes = ctx.graph_nodes_charged = 0;
  ctx.device_heap = false;
  ctx.sticky_error = 0;
  ctx.peers = 0;
}

// Whether the GPU's compute mode lets this process use it: PROHIBITED nobody, EXCLUSIVE_PROCESS one at a time, where
// the clients of MPS are one.
bool IsLetIn(Machine& machine, int dev) {
  constexpr std::uint64_t kProhibited = 2;
  constexpr std::uint64_t kExclusiveProcess = 3;
  std::uint64_t mode = 0;
  machine.GetValue(dev, Machine::Value::kComputeMode, &mode);
  if (mode == kProhibited) return false;
  if (mode != kExclusiveProcess) return true;
  std::vector<ProcessUsage> processes(Machine::kMaxProcesses);
  processes.resize(std::min(machine.Processes(dev, processes.data(), processes.size()), processes.size()));
  return std::all_of(processes.begin(), processes.end(), [&](const ProcessUsage& other) {
    return other.contexts == 0 || other.slot == machine.slot() || (other.mps && IsMpsClient());
  });
}

// Charges what a context costs, then lets it live.
CUresult Start(Context& ctx) {
  Machine& machine = Machine::Get();
  if (!IsLetIn(machine, ctx.machine())) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  const std::uint64_t bytes = ctx.device->spec->profile.context_bytes;
  if (!ChargeBytes(ctx.machine(), bytes, true)) return CUDA_ERROR_OUT_OF_MEMORY;
  machine.AddContext(ctx.machine());
  SpendHost(kContextNanos);
  ResetLimits(ctx);
  ctx.charged = bytes;
  ctx.engine = NewEngine(ctx);
  ctx.alive.store(true, std::memory_order_release);
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lock);
  contexts.live.push_back(&ctx);
  return CUDA_SUCCESS;
}

// The calling thread's stack: plain data, because thread_local destructors run before the last calls arrive. The heap
// block that a deep stack needs is not given back when its thread ends.
constexpr int kInlineDepth = 16;
struct ThreadStack {
  Context** entries;  // null: `inline_entries`
  int depth;
  int capacity;
  Context* inline_entries[kInlineDepth];
};
constinit __thread ThreadStack t_stack{};

Context** Entries() { return t_stack.entries != nullptr ? t_stack.entries : t_stack.inline_entries; }

void Grow() {
  const int capacity = t_stack.capacity == 0 ? 4 * kInlineDepth : 2 * t_stack.capacity;
  // NOLINTNEXTLINE(bugprone-sizeof-expression): it is an array of pointers
  auto** grown = static_cast<Context**>(std::malloc(static_cast<std::size_t>(capacity) * sizeof(Context*)));
  if (grown == nullptr) std::abort();
  for (int i = 0; i < t_stack.depth; ++i) grown[i] = Entries()[i];
  std::free(t_stack.entries);
  t_stack.entries = grown;
  t_stack.capacity = capacity;
}

}  // namespace

void PrepareContexts(const Device* devices, int count) {
  Contexts& contexts = TheContexts();
  for (int i = 0; i < count; ++i) contexts.primary[i].ctx = Register(devices[i], ContextKind::kPrimary, 0);
}

CUresult NewContext(const Device& device, ContextKind kind, unsigned flags, int sm_count, Context** out) {
  Context* ctx = Register(device, kind, flags);
  ctx->sm_count = sm_count;
  if (const CUresult started = Start(*ctx); started != CUDA_SUCCESS) {
    Forget(ctx);
    return started;
  }
  *out = ctx;
  return CUDA_SUCCESS;
}

bool EndContext(Context& ctx) {
  if (!ctx.alive.exchange(false, std::memory_order_acq_rel)) return false;
  {
    Contexts& contexts = TheContexts();
    const std::lock_guard<std::mutex> guard(contexts.lock);
    std::erase(contexts.live, &ctx);
  }
  DestroyEngine(ctx);
  ReleaseModulesOf(ctx);
  ReleaseMemoryOf(ctx);
  Machine::Get().DropContext(ctx.machine());
  RefundBytes(ctx.machine(), ctx.charged, true);
  ctx.charged = 0;
  return true;
}

Context* PrimaryContext(int ordinal) { return TheContexts().primary[ordinal].ctx; }

CUresult RetainPrimary(int ordinal, Context** out, std::uint64_t* life) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lifecycle);
  Primary& primary = contexts.primary[ordinal];
  if (primary.references == 0) {
    SIMGPU_TRY(Start(*primary.ctx));
    ++primary.life;
  }
  ++primary.references;
  *out = primary.ctx;
  if (life != nullptr) *life = primary.life;
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(int ordinal) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lifecycle);
  Primary& primary = contexts.primary[ordinal];
  if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.references == 0) EndContext(*primary.ctx);
  return CUDA_SUCCESS;
}

void ReleasePrimary(int ordinal, std::uint64_t life) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lifecycle);
  Primary& primary = contexts.primary[ordinal];
  if (primary.references == 0 || primary.life != life) return;
  if (--primary.references == 0) EndContext(*primary.ctx);
}

bool PrimaryLives(int ordinal, std::uint64_t life) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lifecycle);
  const Primary& primary = contexts.primary[ordinal];
  return primary.references > 0 && primary.life == life;
}

int PrimaryReferences(int ordinal) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lifecycle);
  return contexts.primary[ordinal].references;
}

void ResetPrimary(int ordinal) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lifecycle);
  Primary& primary = contexts.primary[ordinal];
  if (primary.references == 0) return;
  primary.references = 0;
  EndContext(*primary.ctx);
}

void SetPrimaryFlags(int ordinal, unsigned flags) {
  Contexts& contexts = TheContexts();
  const std::lock_guard<std::mutex> guard(contexts.lifecycle);
  contexts.primary[ordinal].ctx->flags = flags;
}

void ForEachContext(int ordinal, void (*visit)(Context&, void*), void* arg) {
  Contexts& contexts = TheContexts();
  std::vector<Context*> live;
  {
    const std::lock_guard<std::mutex> guard(contexts.lock);
    for (Context* ctx : contexts.live) {
      if (ordinal < 0 || ctx->ordinal() == ordinal) live.push_back(ctx);
    }
  }
  for (Context* ctx : live) visit(*ctx, arg);
}

CUresult ContextOf(CUcontext handle, Context** out) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Contexts& contexts = TheContexts();
  const void* address = handle;
  {
    const std::lock_guard<std::mutex> guard(contexts.lock);
    if (contexts.known.count(address) == 0) return CUDA_ERROR_INVALID_CONTEXT;
  }
  auto* ctx = reinterpret_cast<Context*>(handle);
  *out = ctx;
  return ctx->alive.load(std::memory_order_acquire) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult GreenContextOf(CUgreenCtx handle, Context** out) {
  Context* ctx = nullptr;
  const CUresult found = ContextOf(reinterpret_cast<CUcontext>(handle), &ctx);
  if (found != CUDA_SUCCESS || ctx->kind != ContextKind::kGreen) return CUDA_ERROR_INVALID_HANDLE;
  *out = ctx;
  return CUDA_SUCCESS;
}

Context* CurrentContext() { return t_stack.depth > 0 ? Entries()[t_stack.depth - 1] : nullptr; }

CUresult NeedContext(Context** out) {
  Context* ctx = CurrentContext();
  if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!ctx->alive.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *out = ctx;
  return static_cast<CUresult>(ctx->sticky_error.load(std::memory_order_relaxed));
}

void PushCurrent(Context* ctx) {
  const int capacity = t_stack.entries != nullptr ? t_stack.capacity : kInlineDepth;
  if (t_stack.depth == capacity) Grow();
  Entries()[t_stack.depth++] = ctx;
}

Context* PopCurrent() { return t_stack.depth > 0 ? Entries()[--t_stack.depth] : nullptr; }

void SetCurrent(Context* ctx) {
  if (ctx == nullptr) {
    PopCurrent();
  } else if (t_stack.depth == 0) {
    PushCurrent(ctx);
  } else {
    Entries()[t_stack.depth - 1] = ctx;
  }
}

}  // namespace simgpu
