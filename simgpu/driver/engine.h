// SPDX-License-Identifier: Apache-2.0
//
// Order and time inside one process: streams and what is queued on them. Work is submitted to a stream and happens in
// stream order, in simulated time: kernels share their context's SMs and the GPU is shared with other contexts through
// the arbiter, copies take a copy engine. Whoever waits or asks drives the simulation forward; a thread of the engine's
// own, started when first needed, does what must happen without the caller.
//
// Invariants: the work of a stream is done in order; an effect (bytes copied, host function, release) happens no
// earlier than its simulated end, outside every lock of the engine; a stream handle is looked up and never
// dereferenced. Lock order: the engine's lock comes after all locks of core.h and mem.h; nothing of theirs is called
// while it is held. On a capturing stream every Submit function records a graph node instead, except where it says
// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/cuda_abi.h"

namespace simgpu {

struct Context;
struct CopyOp;
struct FillOp;
struct Engine;
struct Stream;

// Stream priorities, as cuCtxGetStreamPriorityRange tells them.
inline constexpr int kLowestStreamPriority = 0;
inline constexpr int kHighestStreamPriority = -5;

// --- contexts
// ----------------------------------------------------------------------------------------------------------

// The engine of a new context; never null. The green contexts of a device and its primary one run side by side, each on
// at most ctx.sm_count SMs; other contexts take turns with them.
Engine* NewEngine(Context& ctx);
// Waits for what is queued, as the driver does before it takes a context apart; work that waits for something that is
// not under way (a value in memory) is dropped. Then destroys the context's streams and events and leaves the arbiter.
// Safe with null.
void DestroyEngine(Context& ctx);

// --- streams
// -----------------------------------------------------------------------------------------------------------

// What a handle means in the current context: null (the legacy stream, or the thread's own one when `per_thread`),
// CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a created stream. Null, with the reason in *err, when there is no current
// context or no such stream (CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_CONTEXT_IS_DESTROYED).
Stream* ResolveStream(CUstream handle, bool per_thread, CUresult* err);
Context& ContextOf(const Stream& stream);
std::uint64_t NumberOf(const Stream& stream);  // unique in the process, as cuStreamGetId

// A created stream of `ctx`: behind cuStreamCreate and cuGreenCtxStreamCreate. Flags as CUstream_flags; the priority is
// clamped to the device's range.
CUresult CreateStream(Context& ctx, unsigned flags, int priority, CUstream* out);

// Declares `Stream* var`, what the handle means; leaves the function with the error when it means nothing.
#define SIMGPU_STREAM(var, handle, per_thread)                                             \
  CUresult var##_error = CUDA_SUCCESS;                                                     \
  ::simgpu::Stream* const var = ::simgpu::ResolveStream(handle, per_thread, &var##_error); \
  if ((var) == nullptr) return var##_error

// --- submission
// --------------------------------------------------------------------------------------------------------

CUresult SubmitCopy(Stream& stream, const CopyOp& op);
CUresult SubmitFill(Stream& stream, const FillOp& op);
// `call` runs in stream order on whatever thread gets there first; it must be short, and may take memory locks but call
// no API function. On a capturing stream: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. `call` runs exactly once if this
// succeeds, also when the context is destroyed first.
CUresult SubmitCall(Stream& stream, void (*call)(void* arg), void* arg);

// Copies and fills of the synchronous API: submitted, then waited for. Refused as the driver does while the stream, or
// a stream that the legacy one would wait for, is capturing.
CUresult RunCopy(Stream& stream, const CopyOp& op);
CUresult RunFill(Stream& stream, const FillOp& op);

// Stream-ordered memory under capture: allocation and free nodes instead of pool memory. CUDA_ERROR_INVALID_VALUE from
// CaptureFree when `address` is no graph memory.
bool IsCapturing(const Stream& stream);
CUresult CaptureAlloc(Stream& stream, std::size_t size, CUdeviceptr* out);
CUresult CaptureFree(Stream& stream, CUdeviceptr address);

// Calls that are unsafe while a stream is being captured (cuMemAlloc, cuMemFree, cuModuleLoad, ...) ask this first. It
// costs one load when nothing is capturing. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures concerned become
// invalid, when this thread's capture mode forbids it.
CUresult CheckUnsafeCall();

// --- waiting
// -----------------------------------------------------------------------------------------------------------

// Wait for all that was submitted before, running due effects, then trim the pools (TrimPoolsAtSync).
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED while capturing; the context's sticky error if it has one.
CUresult WaitStream(Stream& stream);
CUresult WaitContext(Context& ctx);
// True when everything submitted to the stream is done.
bool StreamIdle(Stream& stream);

// A wait of the host that is not for a stream (peer copies between contexts, cuMemFree): all work of `ctx` on every
// stream. `ended` as WaitSeq has it.
void DrainContext(Context& ctx, std::int64_t* ended = nullptr);

}  // namespace simgpu
