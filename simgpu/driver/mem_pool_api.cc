// SPDX-License-Identifier: Apache-2.0
// cuMemAllocAsync, cuMemFreeAsync, cuMemPool* and the pools of a device.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "simgpu/driver/engine.h"
#include "simgpu/driver/ipc.h"
#include "simgpu/driver/mem_pool.h"

namespace simgpu {
namespace {

constexpr std::uint64_t kPoolMagic = 0x314c4f4f50475053;  // "SPGPOOL1"

// The content of an exported pool's descriptor.
struct PoolFile {
  std::uint64_t magic;
  std::int32_t machine;
  std::uint32_t handle_types;
};

CUresult NeedPool(CUmemoryPool handle, Pool** out) {
  *out = FindPool(handle);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// A pool gives what it has; frees that are still on their way count as soon as the context is idle.
CUresult AllocFrom(Pool& pool, const Stream& stream, std::size_t size, CUdeviceptr* out) {
  const CUresult first = PoolAlloc(pool, size, NumberOf(stream), out);
  if (first != CUDA_ERROR_OUT_OF_MEMORY || !HasPending(pool.device->machine)) return first;
  DrainContext(ContextOf(stream));
  return PoolAlloc(pool, size, NumberOf(stream), out);
}

CUresult AllocAsync(CUdeviceptr* out, std::size_t size, Pool* pool, CUstream handle, bool per_thread) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = ResolveStream(handle, per_thread, &error);
  if (stream == nullptr) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pool == nullptr) pool = CurrentPool(ContextOf(*stream).ordinal());
  if (pool->kind == PoolKind::kImported) return CUDA_ERROR_INVALID_VALUE;
  if (IsCapturing(*stream)) return CaptureAlloc(*stream, size, out);
  return AllocFrom(*pool, *stream, size, out);
}

CUresult AllocFromPool(CUdeviceptr* out, std::size_t size, CUmemoryPool handle, CUstream stream, bool per_thread) {
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  return AllocAsync(out, size, pool, stream, per_thread);
}

void* ToArg(CUdeviceptr address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

CUresult FreeAsync(CUdeviceptr address, CUstream handle, bool per_thread) {
  CUresult error = CUDA_SUCCESS;
  Stream* stream = ResolveStream(handle, per_thread, &error);
  if (stream == nullptr) return error;
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (IsCapturing(*stream)) return CaptureFree(*stream, address);
  if (IsGraphMemory(address)) {
    if (!GraphSettle(address)) return CUDA_ERROR_INVALID_VALUE;
    return SubmitCall(
        *stream, [](void* arg) { GraphUnback(reinterpret_cast<CUdeviceptr>(arg)); }, ToArg(address));
  }
  SIMGPU_TRY(MarkFreed(address, NumberOf(*stream)));
  const CUresult submitted = SubmitCall(
      *stream, [](void* arg) { ReleaseFreed(reinterpret_cast<CUdeviceptr>(arg)); }, ToArg(address));
  if (submitted != CUDA_SUCCESS) ReleaseFreed(address);  // no stream will get there: it is free now
  return submitted;
}

CUresult CheckProps(const CUmemPoolProps* props, const Device** device) {
  if (props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(props->handleTypes);
  if ((types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = FindDevice(props->location.id);
  return *device != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CheckLocation(const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return FindDevice(location->id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult GivePool(CUmemoryPool* out, CUdevice dev, Pool* (*which)(int)) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = reinterpret_cast<CUmemoryPool>(which(dev));
  return CUDA_SUCCESS;
}

CUresult SetPool(CUdevice dev, CUmemoryPool handle) {
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  return SetCurrentPool(dev, pool);
}

CUresult ExportPool(int* out, const Pool& pool) {
  const auto types = static_cast<unsigned>(pool.props.handleTypes);
  if (pool.kind == PoolKind::kImported || (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = memfd_create("simgpu-pool", MFD_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const PoolFile content{kPoolMagic, pool.device->machine, types};
  if (write(fd, &content, sizeof content) != sizeof content) {
    close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *out = fd;
  return CUDA_SUCCESS;
}

CUresult ImportPool(CUmemoryPool* out, int fd) {
  PoolFile content{};
  if (pread(fd, &content, sizeof content, 0) != sizeof content || content.magic != kPoolMagic) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Device* device = DeviceOfMachine(content.machine);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device->ordinal;
  *out = reinterpret_cast<CUmemoryPool>(CreatePool(PoolKind::kImported, *device, props));
  return CUDA_SUCCESS;
}

CUresult ExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  Range range;
  if (!FindRange(address, &range) || range.kind != MemKind::kAsync || !range.in_use) return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(reinterpret_cast<const Pool*>(range.pool)->props.handleTypes);
  if ((types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) return CUDA_ERROR_INVALID_VALUE;
  Ticket ticket{};
  if (!MakeTicket(address, kTicketPool, &ticket)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

// --- allocation
// -------------------------------------------------------------------------------------------------------

CUresult cuMemAllocAsync(CUdeviceptr* out, size_t size, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocAsync);
  return AllocAsync(out, size, nullptr, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t size, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocAsync_ptsz);
  return AllocAsync(out, size, nullptr, stream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t size, CUmemoryPool pool, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocFromPoolAsync);
  return AllocFromPool(out, size, pool, stream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, size_t size, CUmemoryPool pool, CUstream stream) {
  SIMGPU_ENTER(cuMemAllocFromPoolAsync_ptsz);
  return AllocFromPool(out, size, pool, stream, true);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  SIMGPU_ENTER(cuMemFreeAsync);
  return FreeAsync(address, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  SIMGPU_ENTER(cuMemFreeAsync_ptsz);
  return FreeAsync(address, stream, true);
}

// --- pools
// ------------------------------------------------------------------------------------------------------------

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  SIMGPU_ENTER(cuMemPoolCreate);
  const Device* device = nullptr;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckProps(props, &device));
  *out = reinterpret_cast<CUmemoryPool>(CreatePool(PoolKind::kCreated, *device, *props));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  SIMGPU_ENTER(cuMemPoolDestroy);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  return DestroyPool(pool);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep) {
  SIMGPU_ENTER(cuMemPoolTrimTo);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  TrimPool(*pool, keep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIMGPU_ENTER(cuMemPoolSetAttribute);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : SetPoolAttribute(*pool, attribute, value);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIMGPU_ENTER(cuMemPoolGetAttribute);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : GetPoolAttribute(*pool, attribute, value);
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descs, size_t count) {
  SIMGPU_ENTER(cuMemPoolSetAccess);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  if (descs == nullptr && count > 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const CUmemLocation& location = descs[i].location;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (FindDevice(location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    // A device's access to its own memory can not be taken away.
    const bool own = location.id == pool->device->ordinal;
    if (own && descs[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < count; ++i) SetPoolAccess(*pool, descs[i].location.id, descs[i].flags);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  SIMGPU_ENTER(cuMemPoolGetAccess);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (FindDevice(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *flags = PoolAccess(*pool, location->id);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  SIMGPU_ENTER(cuMemPoolExportToShareableHandle);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  return ExportPool(static_cast<int*>(out), *pool);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* handle, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  SIMGPU_ENTER(cuMemPoolImportFromShareableHandle);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  return ImportPool(out, static_cast<int>(reinterpret_cast<std::intptr_t>(handle)));
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  SIMGPU_ENTER(cuMemPoolExportPointer);
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE : ExportPointer(out, address);
}

CUresult cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
  SIMGPU_ENTER(cuMemPoolImportPointer);
  Pool* pool = nullptr;
  SIMGPU_TRY(NeedPool(handle, &pool));
  if (out == nullptr || data == nullptr || pool->kind != PoolKind::kImported) return CUDA_ERROR_INVALID_VALUE;
  Ticket ticket{};
  std::memcpy(&ticket, data, sizeof ticket);
  return ImportPoolPointer(ticket, *pool, out);
}

// --- the pools of a device
// --------------------------------------------------------------------------------------------

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetDefaultMemPool);
  return GivePool(out, dev, DefaultPool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGetMemPool);
  return GivePool(out, dev, CurrentPool);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  SIMGPU_ENTER(cuDeviceSetMemPool);
  return SetPool(dev, pool);
}

#if CUDA_VERSION >= 13000
CUresult cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  SIMGPU_ENTER(cuMemGetDefaultMemPool);
  SIMGPU_TRY(CheckLocation(location, type));
  return GivePool(out, location->id, DefaultPool);
}

CUresult cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  SIMGPU_ENTER(cuMemGetMemPool);
  SIMGPU_TRY(CheckLocation(location, type));
  return GivePool(out, location->id, CurrentPool);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  SIMGPU_ENTER(cuMemSetMemPool);
  SIMGPU_TRY(CheckLocation(location, type));
  return SetPool(location->id, pool);
}
#endif
