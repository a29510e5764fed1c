// SPDX-License-Identifier: Apache-2.0
// cuMemcpy*: every form resolves to one CopyOp, which the engine runs at once (and waits) or in stream order.
#include "simgpu/driver/array.h"
#include "simgpu/driver/copy.h"
#include "simgpu/driver/engine.h"
#include "simgpu/driver/twins.h"

namespace simgpu {
namespace {

// Of the documentation of asynchronous execution: memory copies from host to device of 64 KB or less.
constexpr std::size_t kStagedAtOnce = std::size_t{64} << 10;

// The synchronous API names no stream.
struct When {
  CUstream stream;
  bool per_thread;
  bool wait;
};

CUresult Run(const CopyOp& op, const When& when) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = ResolveStream(when.stream, when.per_thread, &error);
  if (stream == nullptr) return error;
  if (op.bytes() == 0) return CUDA_SUCCESS;
  // An asynchronous copy of pageable memory is staged by the driver: few bytes on their way to the device go with the
  // call (an H200's driver is back from 4 KiB in 1.7 us, a wait alone takes 8), others wait. A graph node is not run
  // now.
  const bool async = !when.wait && !IsCapturing(*stream);
  if (async && op.pageable && op.route == Route::kHostToDevice && op.bytes() == op.width && op.width <= kStagedAtOnce) {
    CopyOp staged = op;
    staged.staged = true;
    return SubmitCopy(*stream, staged);
  }
  return when.wait || (async && op.pageable) ? RunCopy(*stream, op) : SubmitCopy(*stream, op);
}

// Errors come in the driver's order: the context first, then the arguments.
CUresult Flat(CUdeviceptr dst, bool dst_known, CUdeviceptr src, bool src_known, std::size_t size, const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  CopyOp op;
  SIMGPU_TRY(MakeFlatCopy(dst, dst_known, src, src_known, size, &op));
  return Run(op, when);
}

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUresult HtoD(CUdeviceptr dst, const void* src, std::size_t size, const When& when) {
  return Flat(dst, true, Address(src), false, size, when);
}

CUresult DtoH(void* dst, CUdeviceptr src, std::size_t size, const When& when) {
  return Flat(Address(dst), false, src, true, size, when);
}

CUresult DtoD(CUdeviceptr dst, CUdeviceptr src, std::size_t size, const When& when) {
  return Flat(dst, true, src, true, size, when);
}

CUresult Unified(CUdeviceptr dst, CUdeviceptr src, std::size_t size, const When& when) {
  return Flat(dst, false, src, false, size, when);
}

// --- arrays of one dimension
// ------------------------------------------------------------------------------------------

// A span of an array's bytes, counted along its rows without their padding; it must lie in one row.
CUresult InArray(CUarray handle, std::size_t offset, std::size_t size, CopyOp* op, bool is_dst) {
  ArrayView array;
  if (!FindArray(handle, &array)) return CUDA_ERROR_INVALID_HANDLE;
  const std::size_t row = offset / array.layout.row_bytes;
  const std::size_t column = offset % array.layout.row_bytes;
  if (row >= array.layout.rows || size > array.layout.row_bytes - column) return CUDA_ERROR_INVALID_VALUE;
  std::byte* const first = array.storage + row * array.layout.pitch + column;
  (is_dst ? op->dst_machine : op->src_machine) = static_cast<std::int16_t>(array.machine);
  if (is_dst) {
    op->dst = first;
  } else {
    op->src = first;
  }
  return CUDA_SUCCESS;
}

CUresult InFlat(CUdeviceptr address, bool known, std::size_t size, CopyOp* op, bool is_dst) {
  FlatMemory memory;
  SIMGPU_TRY(ResolveFlat(address, size, known, &memory));
  (is_dst ? op->dst_machine : op->src_machine) = static_cast<std::int16_t>(memory.machine);
  op->pageable = op->pageable || memory.pageable;
  if (is_dst) {
    op->dst = reinterpret_cast<std::byte*>(address);
  } else {
    op->src = reinterpret_cast<const std::byte*>(address);
  }
  return CUDA_SUCCESS;
}

CUresult RunRow(CopyOp& op, std::size_t size, const When& when) {
  op.width = op.dst_pitch = op.src_pitch = op.dst_slice = op.src_slice = size;
  op.route = RouteOf(op.dst_machine, op.src_machine);
  return Run(op, when);
}

CUresult ToArray(CUarray dst, std::size_t offset, CUdeviceptr src, bool known, std::size_t size, const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  CopyOp op;
  SIMGPU_TRY(InArray(dst, offset, size, &op, true));
  SIMGPU_TRY(InFlat(src, known, size, &op, false));
  return RunRow(op, size, when);
}

CUresult FromArray(CUdeviceptr dst, bool known, CUarray src, std::size_t offset, std::size_t size, const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  CopyOp op;
  SIMGPU_TRY(InFlat(dst, known, size, &op, true));
  SIMGPU_TRY(InArray(src, offset, size, &op, false));
  return RunRow(op, size, when);
}

CUresult ArrayToArray(CUarray dst, std::size_t dst_offset, CUarray src, std::size_t src_offset, std::size_t size,
                      const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  CopyOp op;
  SIMGPU_TRY(InArray(dst, dst_offset, size, &op, true));
  SIMGPU_TRY(InArray(src, src_offset, size, &op, false));
  return RunRow(op, size, when);
}

// --- boxes
// ------------------------------------------------------------------------------------------------------------

CUresult Copy2D(const CUDA_MEMCPY2D* copy, const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyOp op;
  SIMGPU_TRY(MakeCopy2D(*copy, &op));
  return Run(op, when);
}

CUresult Copy3D(const CUDA_MEMCPY3D* copy, const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyOp op;
  SIMGPU_TRY(MakeCopy(*copy, &op));
  return Run(op, when);
}

// --- peers
// ------------------------------------------------------------------------------------------------------------

// Both contexts must live. A copy that waits is ordered after everything in them.
CUresult CheckPeers(CUcontext dst, CUcontext src, bool wait) {
  Context* current = nullptr;
  Context* peers[2] = {};
  SIMGPU_TRY(NeedContext(&current));
  SIMGPU_TRY(ContextOf(dst, &peers[0]));
  SIMGPU_TRY(ContextOf(src, &peers[1]));
  for (Context* peer : peers) {
    if (wait && peer != current) DrainContext(*peer);
  }
  return CUDA_SUCCESS;
}

CUresult Peer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, std::size_t size,
              const When& when) {
  SIMGPU_TRY(CheckPeers(dst_ctx, src_ctx, when.wait));
  return Flat(dst, true, src, true, size, when);
}

CUresult Peer3D(const CUDA_MEMCPY3D_PEER* copy, const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckPeers(copy->dstContext, copy->srcContext, when.wait));
  CUDA_MEMCPY3D plain{};
  plain.srcXInBytes = copy->srcXInBytes;
  plain.srcY = copy->srcY;
  plain.srcZ = copy->srcZ;
  plain.srcLOD = copy->srcLOD;
  plain.srcMemoryType = copy->srcMemoryType;
  plain.srcHost = copy->srcHost;
  plain.srcDevice = copy->srcDevice;
  plain.srcArray = copy->srcArray;
  plain.srcPitch = copy->srcPitch;
  plain.srcHeight = copy->srcHeight;
  plain.dstXInBytes = copy->dstXInBytes;
  plain.dstY = copy->dstY;
  plain.dstZ = copy->dstZ;
  plain.dstLOD = copy->dstLOD;
  plain.dstMemoryType = copy->dstMemoryType;
  plain.dstHost = copy->dstHost;
  plain.dstDevice = copy->dstDevice;
  plain.dstArray = copy->dstArray;
  plain.dstPitch = copy->dstPitch;
  plain.dstHeight = copy->dstHeight;
  plain.WidthInBytes = copy->WidthInBytes;
  plain.Height = copy->Height;
  plain.Depth = copy->Depth;
  return Copy3D(&plain, when);
}

// A batch is checked whole before any of it is submitted.
CUresult Batch(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const std::size_t* sizes, std::size_t count,
               std::size_t* fail, const When& when) {
  if (fail != nullptr) *fail = SIZE_MAX;
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  CopyOp op;
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult made = sizes[i] == 0 ? CUDA_ERROR_INVALID_VALUE : MakeCopy(dsts[i], srcs[i], sizes[i], &op);
    if (made == CUDA_SUCCESS) continue;
    if (fail != nullptr) *fail = i;
    return made;
  }
  for (std::size_t i = 0; i < count; ++i) {
    SIMGPU_TRY(MakeCopy(dsts[i], srcs[i], sizes[i], &op));
    SIMGPU_TRY(Run(op, when));
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

#define WAIT \
  When { nullptr, per_thread, true }
#define LATER \
  When { stream, per_thread, false }

// --- flat
// -------------------------------------------------------------------------------------------------------------

SIMGPU_TWINS(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t size), Unified(dst, src, size, WAIT))
SIMGPU_TWINS(cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
             Unified(dst, src, size, LATER))
SIMGPU_TWINS(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dst, const void* src, size_t size), HtoD(dst, src, size, WAIT))
SIMGPU_TWINS(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr dst, const void* src, size_t size, CUstream stream),
             HtoD(dst, src, size, LATER))
SIMGPU_TWINS(cuMemcpyDtoH_v2, _ptds, (void* dst, CUdeviceptr src, size_t size), DtoH(dst, src, size, WAIT))
SIMGPU_TWINS(cuMemcpyDtoHAsync_v2, _ptsz, (void* dst, CUdeviceptr src, size_t size, CUstream stream),
             DtoH(dst, src, size, LATER))
SIMGPU_TWINS(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t size), DtoD(dst, src, size, WAIT))
SIMGPU_TWINS(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream),
             DtoD(dst, src, size, LATER))

// --- arrays
// -----------------------------------------------------------------------------------------------------------

SIMGPU_TWINS(cuMemcpyDtoA_v2, _ptds, (CUarray dst, size_t offset, CUdeviceptr src, size_t size),
             ToArray(dst, offset, src, true, size, WAIT))
SIMGPU_TWINS(cuMemcpyAtoD_v2, _ptds, (CUdeviceptr dst, CUarray src, size_t offset, size_t size),
             FromArray(dst, true, src, offset, size, WAIT))
SIMGPU_TWINS(cuMemcpyHtoA_v2, _ptds, (CUarray dst, size_t offset, const void* src, size_t size),
             ToArray(dst, offset, Address(src), false, size, WAIT))
SIMGPU_TWINS(cuMemcpyAtoH_v2, _ptds, (void* dst, CUarray src, size_t offset, size_t size),
             FromArray(Address(dst), false, src, offset, size, WAIT))
SIMGPU_TWINS(cuMemcpyHtoAAsync_v2, _ptsz, (CUarray dst, size_t offset, const void* src, size_t size, CUstream stream),
             ToArray(dst, offset, Address(src), false, size, LATER))
SIMGPU_TWINS(cuMemcpyAtoHAsync_v2, _ptsz, (void* dst, CUarray src, size_t offset, size_t size, CUstream stream),
             FromArray(Address(dst), false, src, offset, size, LATER))
SIMGPU_TWINS(cuMemcpyAtoA_v2, _ptds, (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t size),
             ArrayToArray(dst, dst_offset, src, src_offset, size, WAIT))

// --- boxes and peers
// --------------------------------------------------------------------------------------------------

SIMGPU_TWINS(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* copy), Copy2D(copy, WAIT))
SIMGPU_TWINS(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* copy), Copy2D(copy, WAIT))
SIMGPU_TWINS(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* copy, CUstream stream), Copy2D(copy, LATER))
SIMGPU_TWINS(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* copy), Copy3D(copy, WAIT))
SIMGPU_TWINS(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* copy, CUstream stream), Copy3D(copy, LATER))
SIMGPU_TWINS(cuMemcpyPeer, _ptds, (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size),
             Peer(dst, dst_ctx, src, src_ctx, size, WAIT))
SIMGPU_TWINS(cuMemcpyPeerAsync, _ptsz,
             (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t size, CUstream stream),
             Peer(dst, dst_ctx, src, src_ctx, size, LATER))
SIMGPU_TWINS(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER* copy), Peer3D(copy, WAIT))
SIMGPU_TWINS(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream), Peer3D(copy, LATER))

// --- batches: the attributes are hints
// ---------------------------------------------------------------------------------

SIMGPU_TWINS(cuMemcpyBatchAsync, _ptsz,
             (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes*, size_t*, size_t,
              size_t* fail, CUstream stream),
             Batch(dsts, srcs, sizes, count, fail, LATER))

#if CUDA_VERSION >= 13000
SIMGPU_TWINS(cuMemcpyBatchAsync_v2, _ptsz,
             (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes*, size_t*, size_t,
              CUstream stream),
             Batch(dsts, srcs, sizes, count, nullptr, LATER))
#endif
