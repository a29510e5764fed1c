// SPDX-License-Identifier: Apache-2.0
//
// The process' view of the machine: which GPUs it sees, its contexts, and which of them is current in each thread.
//
// Invariants: a Context is never deleted, only marked dead, so a stale handle is told from a live one and a thread that
// still has it current meets an error and not a crash. Global state is allocated once and never destroyed, because
// calls arrive after static destructors; thread state has no destructor for the same reason.
//
// Lock order: core (contexts) -> pools -> arenas and ranges -> the machine's own. No lock of this file or of mem.h is
// held while the engine is called; the engine may call anything of mem.h that says so, holding its own locks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "abi/cuda_abi.h"
#include "simgpu/driver/capture_rules.h"
#include "simgpu/driver/host_cost.h"
#include "simgpu/machine/machine.h"

namespace simgpu {

struct Engine;

// One GPU (or MIG instance) as this process sees it. `ordinal` is the CUdevice; `machine` indexes the machine's
// devices.
struct Device {
  int ordinal = 0;
  int machine = 0;
  const DeviceSpec* spec = nullptr;  // of the whole GPU, also for a MIG instance
  CUuuid uuid{};                     // what cuDeviceGetUuid_v2 says: the MIG instance's where there is one
  CUuuid gpu_uuid{};                 // of the whole GPU
  int gpu_instance = -1;             // MIG: the compute instance this process uses
  int compute_instance = -1;
  int sm_count = 0;  // of the GPU or of the instance

  bool mig() const { return gpu_instance >= 0; }
};

enum class ContextKind : std::uint8_t { kPrimary, kCreated, kGreen };

struct Context {
  std::uint64_t id = 0;  // unique in the process, as cuCtxGetId
  ContextKind kind = ContextKind::kCreated;
  const Device* device = nullptr;
  unsigned flags = 0;
  unsigned api_version = 0;
  int sm_count = 0;  // all of the device, or the partition of a green context
  std::atomic<bool> alive{false};
  std::atomic<int> sticky_error{0};     // a CUresult that every later call answers (a fault ended the context), or 0
  Engine* engine = nullptr;             // made by NewEngine when the context comes to life
  std::atomic<int> attached{1};         // what cuCtxAttach and cuCtxDetach count; the maker's is the first
  std::atomic<std::uint64_t> peers{0};  // bit per ordinal: peer access enabled to that device's memory

  std::atomic<std::size_t> stack_bytes{1024};
  std::atomic<std::size_t> printf_bytes{std::size_t{1} << 20};
  std::atomic<std::size_t> heap_bytes{std::size_t{8} << 20};
  std::atomic<std::size_t> sync_depth{2};
  std::atomic<std::size_t> pending_launches{2048};
  std::atomic<std::size_t> max_l2_granularity{64};
  std::atomic<std::size_t> persisting_l2{0};
  std::atomic<int> cache_config{0};

  std::uint64_t primary_life = 0;  // of a green context: the life of the primary one that it holds a reference of
  std::size_t local_bytes = 0;     // most that a kernel that was launched needs of each thread; guarded as the limits
  std::uint64_t streams = 0;       // that live, and the bytes charged for as many as ever lived; guarded as the limits
  std::uint64_t streams_charged = 0;
  std::uint64_t graph_nodes = 0;  // of executable graphs; likewise
  std::uint64_t graph_nodes_charged = 0;
  bool device_heap = false;   // a kernel that allocates was launched; guarded as the limits
  std::uint64_t charged = 0;  // context memory in the machine's books; guarded by the core lock

  int ordinal() const { return device->ordinal; }
  int machine() const { return device->machine; }
};

// --- the guard at the top of every exported function -----------------------------------------------------------------

enum class Phase : int { kNew, kReady, kForked };
extern std::atomic<Phase> g_phase;

CUresult NotReady();
CUresult FaultOf(const char* function);

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED when a capture forbids calls of this kind to this thread.
CUresult CheckCaptureRule(CaptureRule rule);

// CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED (before cuInit, or in the child of a process that had called it), or what
// the machine's fault list or a capture demands of this call.
template <CaptureRule rule>
CUresult Enter(const char* function) {
  if (g_phase.load(std::memory_order_acquire) != Phase::kReady) [[unlikely]] {
    return NotReady();
  }
  const CUresult fault = FaultOf(function);
  if constexpr (rule != CaptureRule::kSafe) {
    if (fault == CUDA_SUCCESS) return CheckCaptureRule(rule);
  }
  return fault;
}

// The first statement of an exported function: SIMGPU_ENTER(cuMemAlloc_v2);
#define SIMGPU_ENTER(function)                                                                         \
  static constexpr ::simgpu::HostNanos simgpu_host_nanos = ::simgpu::HostNanosOf(#function);           \
  const ::simgpu::CallTime simgpu_host_call(simgpu_host_nanos);                                        \
  if (const CUresult simgpu_entered = ::simgpu::Enter< ::simgpu::CaptureRuleOf(#function)>(#function); \
      simgpu_entered != 0)                                                                             \
  return simgpu_entered

// Returns the error of an expression that is a CUresult, if it is one.
#define SIMGPU_TRY(expression) \
  if (const CUresult simgpu_tried = (expression); simgpu_tried != CUDA_SUCCESS) return simgpu_tried

// --- devices
// ----------------------------------------------------------------------------------------------------------

int DeviceCount();
// Null for an ordinal that is not visible.
const Device* FindDevice(CUdevice ordinal);
// Whether work on one may touch the memory of the other.
bool CanAccessPeer(const Device& from, const Device& to);
// Whether it sits on an NVSwitch that multicasts (NVLink 4 and later), as a whole.
bool HasMulticast(const Device& device);
// The visible device of a machine index; null when this process does not see it.
const Device* DeviceOfMachine(int machine);

// --- contexts
// ---------------------------------------------------------------------------------------------------------

// The calling thread's current context; null when there is none. It may be dead: NeedContext tells.
Context* CurrentContext();

// The current context, alive. CUDA_ERROR_INVALID_CONTEXT when there is none, CUDA_ERROR_CONTEXT_IS_DESTROYED when it is
// gone, the context's sticky error when it has one.
CUresult NeedContext(Context** out);

// What a handle means. CUDA_ERROR_INVALID_CONTEXT for null or unknown, CUDA_ERROR_CONTEXT_IS_DESTROYED for a dead one.
CUresult ContextOf(CUcontext handle, Context** out);
inline CUcontext HandleOf(const Context& ctx) { return reinterpret_cast<CUcontext>(const_cast<Context*>(&ctx)); }

// The green context behind a CUgreenCtx, which is a Context of kind kGreen. CUDA_ERROR_INVALID_HANDLE otherwise.
CUresult GreenContextOf(CUgreenCtx handle, Context** out);

// Live contexts of a device (or of all, ordinal -1): calls `visit(ctx, arg)` for each without holding a lock.
void ForEachContext(int ordinal, void (*visit)(Context&, void*), void* arg);

// The device's primary context, which may be inactive (not alive). Never null for a visible ordinal.
Context* PrimaryContext(int ordinal);

// Brings the primary context to life without taking a reference, as a library load does for its device's context.
// `life`: which of its lives the reference is of.
CUresult RetainPrimary(int ordinal, Context** out, std::uint64_t* life = nullptr);
CUresult ReleasePrimary(int ordinal);
// The same for a reference that a reset of the context may have ended meanwhile.
void ReleasePrimary(int ordinal, std::uint64_t life);
bool PrimaryLives(int ordinal, std::uint64_t life);

}  // namespace simgpu
