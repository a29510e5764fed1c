// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/stream_memop.h"

#include <atomic>
#include <vector>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

constexpr unsigned kMaxBatch = 256;

template <typename T>
bool Reached(T have, T value, std::uint8_t compare) {
  switch (compare) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(have - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return have == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (have & value) != 0;
    default:  // CU_STREAM_WAIT_VALUE_NOR
      return static_cast<T>(~(have | value)) != 0;
  }
}

CUresult MakeWait(CUdeviceptr address, std::uint64_t value, unsigned flags, bool wide, Op* out) {
  constexpr unsigned kFlush = CU_STREAM_WAIT_VALUE_FLUSH;
  const unsigned compare = flags & ~kFlush;
  if (compare > CU_STREAM_WAIT_VALUE_NOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = Op();
  out->kind = OpKind::kWaitValue;
  out->wide = wide;
  out->compare = static_cast<std::uint8_t>(compare);
  out->memop = {reinterpret_cast<std::byte*>(address), value};
  return CUDA_SUCCESS;
}

CUresult MakeWrite(CUdeviceptr address, std::uint64_t value, unsigned flags, bool wide, Op* out) {
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = Op();
  out->kind = OpKind::kWriteValue;
  out->wide = wide;
  out->memop = {reinterpret_cast<std::byte*>(address), value};
  return CUDA_SUCCESS;
}

CUresult Submit(CUstream stream, unsigned count, const CUstreamBatchMemOpParams* params, unsigned flags,
                bool per_thread) {
  SIMGPU_STREAM(s, stream, per_thread);
  if (params == nullptr || count > kMaxBatch || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Op op;
  bool skip = false;
  for (unsigned i = 0; i < count; ++i) {
    SIMGPU_TRY(MakeMemOp(params[i], &op, &skip));
  }
  if (IsCapturing(*s)) {
    return CaptureNode(*s, MemOpNodeParams(HandleOf(*s->ctx), count, params, flags));
  }
  SIMGPU_TRY(s->kind == StreamKind::kLegacy ? CheckLegacyUse(*s->ctx) : CUDA_SUCCESS);
  EngineLock sched;
  EnterQueue(*sched, *s);
  const Nanos now = Machine::Get().Now();
  for (unsigned i = 0; i < count; ++i) {
    if (MakeMemOp(params[i], &op, &skip) == CUDA_SUCCESS && !skip) {
      Enqueue(*sched, *s, op, now);
    }
  }
  LeaveQueue(*sched, *s, now);
  return CUDA_SUCCESS;
}

CUresult Wait(CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags, bool wide, bool per_thread) {
  CUstreamBatchMemOpParams params = {};
  params.waitValue.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
  params.waitValue.address = address;
  params.waitValue.value64 = value;
  params.waitValue.flags = flags;
  return Submit(stream, 1, &params, 0, per_thread);
}

CUresult Write(CUstream stream, CUdeviceptr address, std::uint64_t value, unsigned flags, bool wide, bool per_thread) {
  CUstreamBatchMemOpParams params = {};
  params.writeValue.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
  params.writeValue.address = address;
  params.writeValue.value64 = value;
  params.writeValue.flags = flags;
  return Submit(stream, 1, &params, 0, per_thread);
}

}  // namespace

void StoreValue(const MemOp& op, bool wide) {
  if (wide) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(op.address)).store(op.value);
  } else {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(op.address)).store(static_cast<std::uint32_t>(op.value));
  }
}

void RaiseValue(const MemOp& op) {
  std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(op.address));
  for (std::uint64_t seen = word.load(); seen < op.value && !word.compare_exchange_weak(seen, op.value);) {
  }
}

bool ValueReached(const MemOp& op, bool wide, std::uint8_t compare) {
  if (compare == kTakeValue) {
    std::uint64_t wanted = op.value;
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(op.address)).compare_exchange_strong(wanted, 0);
  }
  if (wide) {
    return Reached(std::atomic_ref(*reinterpret_cast<std::uint64_t*>(op.address)).load(), op.value, compare);
  }
  return Reached(std::atomic_ref(*reinterpret_cast<std::uint32_t*>(op.address)).load(),
                 static_cast<std::uint32_t>(op.value), compare);
}

CUresult MakeMemOp(const CUstreamBatchMemOpParams& params, Op* out, bool* skip) {
  *skip = false;
  bool wide = false;
  switch (params.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      wide = true;
      [[fallthrough]];
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      SIMGPU_TRY(MakeWait(params.waitValue.address, wide ? params.waitValue.value64 : params.waitValue.value,
                          params.waitValue.flags, wide, out));
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      wide = true;
      [[fallthrough]];
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      SIMGPU_TRY(MakeWrite(params.writeValue.address, wide ? params.writeValue.value64 : params.writeValue.value,
                           params.writeValue.flags, wide, out));
      break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      *skip = true;
      return params.flushRemoteWrites.flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_BARRIER:
      *skip = true;
      return params.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const auto address = reinterpret_cast<CUdeviceptr>(out->memop.address);
  const std::size_t size = wide ? 8 : 4;
  return address % size == 0 && IsDeviceRange(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace simgpu

// Every version has the same arguments; the first one is what programs built before CUDA 12 ask for.
#define SIMGPU_VALUE_API(NAME, IMPLEMENTATION, TYPE, WIDE)                                     \
  CUresult NAME(CUstream stream, CUdeviceptr address, TYPE value, unsigned int flags) {        \
    SIMGPU_ENTER(NAME);                                                                        \
    return simgpu::IMPLEMENTATION(stream, address, value, flags, WIDE, false);                 \
  }                                                                                            \
  CUresult NAME##_ptsz(CUstream stream, CUdeviceptr address, TYPE value, unsigned int flags) { \
    SIMGPU_ENTER(NAME##_ptsz);                                                                 \
    return simgpu::IMPLEMENTATION(stream, address, value, flags, WIDE, true);                  \
  }

SIMGPU_VALUE_API(cuStreamWaitValue32, Wait, cuuint32_t, false)
SIMGPU_VALUE_API(cuStreamWaitValue32_v2, Wait, cuuint32_t, false)
SIMGPU_VALUE_API(cuStreamWaitValue64, Wait, cuuint64_t, true)
SIMGPU_VALUE_API(cuStreamWaitValue64_v2, Wait, cuuint64_t, true)
SIMGPU_VALUE_API(cuStreamWriteValue32, Write, cuuint32_t, false)
SIMGPU_VALUE_API(cuStreamWriteValue32_v2, Write, cuuint32_t, false)
SIMGPU_VALUE_API(cuStreamWriteValue64, Write, cuuint64_t, true)
SIMGPU_VALUE_API(cuStreamWriteValue64_v2, Write, cuuint64_t, true)

#define SIMGPU_BATCH_API(NAME, PER_THREAD)                                                                   \
  CUresult NAME(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* params, unsigned int flags) { \
    SIMGPU_ENTER(NAME);                                                                                      \
    return simgpu::Submit(stream, count, params, flags, PER_THREAD);                                         \
  }

SIMGPU_BATCH_API(cuStreamBatchMemOp, false)
SIMGPU_BATCH_API(cuStreamBatchMemOp_ptsz, true)
SIMGPU_BATCH_API(cuStreamBatchMemOp_v2, false)
SIMGPU_BATCH_API(cuStreamBatchMemOp_v2_ptsz, true)
