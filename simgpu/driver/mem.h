// SPDX-License-Identifier: Apache-2.0
//
// Memory as the rest of the driver sees it: who owns an address, how to get and give back device memory, and the copies
// and fills that the engine performs when their turn comes.
//
// Device memory is host memory: every device pointer is a readable address in a sparse shared mapping, and costs
// nothing until it is touched. What limits it are the machine's books: an allocation is charged its size, rounded up to
// kAllocationUnit, before it exists, and refunded after it is gone. A failed call leaves nothing behind.
//
// Nothing here calls the engine while it holds a lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/cuda_abi.h"
#include "simgpu/driver/core.h"

namespace simgpu {

inline constexpr std::size_t kAllocationUnit = 512;            // rounding of plain allocations, and their alignment
inline constexpr std::size_t kPitchAlignment = 512;            // rows of cuMemAllocPitch
inline constexpr std::size_t kGranule = std::size_t{2} << 20;  // VMM granularity, pool growth, managed residency

enum class MemKind : std::uint8_t {
  kNone,
  kDevice,      // cuMemAlloc, cuMemAllocPitch
  kModule,      // code and globals of a module
  kArray,       // storage of an array or a mipmapped array; no pointer of the API reaches it
  kAsync,       // from a stream-ordered pool
  kGraph,       // from a device's graph memory pool
  kManaged,     // cuMemAllocManaged
  kHost,        // cuMemHostAlloc, cuMemAllocHost
  kRegistered,  // cuMemHostRegister
  kPhysical,    // memory of a VMM handle; reached through its mappings
  kMapped,      // VMM: a mapping made by cuMemMap
  kIpc,         // opened from another process
  kExternal,    // buffer of an imported external memory
  kPoolImport,  // pointer imported from another process' pool
};

// A copy of what is known about one address range; stays meaningful after the range is freed.
struct Range {
  CUdeviceptr base = 0;
  std::size_t size = 0;  // as asked for
  MemKind kind = MemKind::kNone;
  int machine = -1;        // device that holds the memory, -1: host
  Context* ctx = nullptr;  // the context it was made in; null for pool, VMM and imported memory
  std::uint64_t id = 0;    // CU_POINTER_ATTRIBUTE_BUFFER_ID
  CUmemoryPool pool = nullptr;
  unsigned flags = 0;  // host: CU_MEMHOSTALLOC_* / REGISTER_*; managed: CU_MEM_ATTACH_*
  bool sync_memops = false;
  bool readable = true;  // VMM: access was set
  bool writable = true;
  bool in_use = true;  // false: freed in stream order, memory not yet released

  bool on_device() const { return machine >= 0; }
};

// The range that contains `address`, any kind. False for memory the driver does not know (plain host memory).
bool FindRange(CUdeviceptr address, Range* out);

// True when [address, address + size) lies wholly inside memory the driver knows and may access; VMM mappings that
// touch each other count as one.
bool IsDeviceRange(CUdeviceptr address, std::size_t size);

// --- allocation
// --------------------------------------------------------------------------------------------------------

// Device memory of `ctx`'s device, charged at once (as module memory for kModule, else as data).
// CUDA_ERROR_INVALID_VALUE for size 0, CUDA_ERROR_OUT_OF_MEMORY when it does not fit even after unused pool memory was
// taken back.
CUresult AllocDevice(Context& ctx, std::size_t size, MemKind kind, CUdeviceptr* out);

// The same without a charge: addresses whose memory is another's and paid for there (arrays that memory is mapped
// into).
CUresult ReserveDevice(Context& ctx, std::size_t size, MemKind kind, CUdeviceptr* out);

// Gives back what AllocDevice or ReserveDevice returned, at once. CUDA_ERROR_INVALID_VALUE when `base` is not the base
// of such a range.
CUresult FreeDevice(CUdeviceptr base);

// Managed memory of `ctx`; flags as cuMemAllocManaged. It is freed by FreeManaged or with the context.
CUresult AllocManaged(Context& ctx, std::size_t size, unsigned flags, CUdeviceptr* out);
void FreeManaged(CUdeviceptr base);

// Memory that no address needs (stack, heap): charges only. False when it does not fit.
bool ChargeBytes(int machine, std::uint64_t bytes, bool context);
void RefundBytes(int machine, std::uint64_t bytes, bool context);

// Everything that belongs to `ctx`: called while it dies, after its engine is idle.
void ReleaseMemoryOf(Context& ctx);

// --- stream-ordered memory
// ---------------------------------------------------------------------------------------------

// Two halves of an asynchronous free. MarkFreed happens at the call: the range is the application's no more,
// and for later allocations on the stream of that number its bytes are free.
// ReleaseFreed happens when the stream reaches it (the engine calls it; it takes only memory locks).
CUresult MarkFreed(CUdeviceptr base, std::uint64_t stream);
void ReleaseFreed(CUdeviceptr base);

// Every pool gives back what lies above its release threshold. The engine calls it after a stream, an event or a
// context was synchronised, holding none of its locks. `ordinal` -1: of all devices.
void TrimPoolsAtSync(int ordinal);

// Graph memory (allocation nodes). The address exists from node creation to the graph's destruction, or to the free of
// what launches have left there; the memory is charged while backed, and stays in the device's graph pool afterwards
// until trimmed.
CUresult GraphReserve(int ordinal, std::size_t size, CUdeviceptr* out);
CUresult GraphBack(CUdeviceptr base);  // one launch more; CUDA_ERROR_OUT_OF_MEMORY when it does not fit
void GraphUnback(CUdeviceptr base);    // one less: a free was reached. After the last one it is the pool's again
// Who has to free it: a launch whose graph does not do so itself leaves it owed, and whoever asks for the free (a call,
// or a launch of another graph) settles that. GraphSettle is false when nothing is owed.
void GraphOwe(CUdeviceptr base);
bool GraphIsOwed(CUdeviceptr base);
bool GraphSettle(CUdeviceptr base);
void GraphUnreserve(CUdeviceptr base);  // no node names the address any more: it goes, or does when it was freed
bool IsGraphMemory(CUdeviceptr base);

// --- copies and fills
// ---------------------------------------------------------------------------------------------------

enum class Route : std::uint8_t { kHostToHost, kHostToDevice, kDeviceToHost, kOnDevice, kPeer };

// A box of bytes: `depth` slices of `height` rows of `width` bytes. Plain copies have height = depth = 1.
struct CopyOp {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  std::size_t width = 0, height = 1, depth = 1;
  std::size_t dst_pitch = 0, dst_slice = 0;
  std::size_t src_pitch = 0, src_slice = 0;
  Route route = Route::kHostToHost;
  std::int16_t dst_machine = -1, src_machine = -1;
  bool pageable = false;  // a host side is not pinned: an asynchronous copy stages it
  bool staged = false;    // its bytes are taken when it is submitted, and the caller may change them from then on

  std::size_t bytes() const { return width * height * depth; }
};

// `height` rows of `width` elements of `element` (1, 2, 4) bytes.
struct FillOp {
  std::byte* dst = nullptr;
  std::uint32_t value = 0;
  std::uint8_t element = 1;
  std::int16_t machine = -1;
  std::size_t width = 0, height = 1, pitch = 0;

  std::size_t bytes() const { return width * height * element; }
};

// Done now, on the calling thread. Take no lock; the engine calls them when the operation's turn comes.
void CopyNow(const CopyOp& op);
void FillNow(const FillOp& op);

// How long the simulated hardware needs.
std::int64_t CopyNanos(const CopyOp& op);
std::int64_t FillNanos(const FillOp& op);

// Checks and resolves the API's descriptions; also for graph nodes. CUDA_ERROR_INVALID_VALUE when a range does not fit
// inside its memory or a pitch is too small.
CUresult MakeCopy(CUdeviceptr dst, CUdeviceptr src, std::size_t size, CopyOp* out);  // unified addresses, host ones too
CUresult MakeCopy(const CUDA_MEMCPY3D& copy, CopyOp* out);
CUresult MakeFill(CUdeviceptr dst, std::size_t pitch, std::uint32_t value, unsigned element, std::size_t width,
                  std::size_t height, FillOp* out);

}  // namespace simgpu
