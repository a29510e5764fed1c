// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. Physical memory lives, and is charged once on the machine, while a handle or a mapping of
// it exists in any process. Memory that may be exported is a file of its own, whose last page says what it is; other
// memory is a piece of the device's arena, because a program may hold more handles than it may have open files.
#include "simgpu/driver/mem_vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <map>
#include <unordered_set>

#include "simgpu/driver/multicast.h"

namespace simgpu {

namespace {

constexpr std::size_t kTrailerBytes = 4096;
constexpr std::uint64_t kTrailerMagic = 0x314d4d5655504753;  // "SGPUVMM1"

// At the end of an exported file.
struct Trailer {
  std::uint64_t magic;
  std::uint64_t shared;
  std::uint64_t size;
  std::int32_t machine;
  std::uint32_t handle_types;
  std::uint64_t usage;
};

// Guarded by the memory lock.
struct Vmm {
  std::unordered_set<VmmHandle*> handles;  // all that exist
  std::map<CUdeviceptr, std::size_t> reservations;
};

Vmm& TheVmm() {
  static Vmm& vmm = *new Vmm;
  return vmm;
}

// Ends the handle when nothing holds it any more.
void DropIfUnused(VmmHandle* handle, const MemLock& held) {
  if (handle->references > 0 || handle->uses > 0) return;
  TheVmm().handles.erase(handle);
  if (handle->fd >= 0) close(handle->fd);
  if (handle->multicast != nullptr) {
    EndMulticast(handle->multicast, held);
  } else {
    if (handle->physical != 0) DeleteLocked(FindBase(handle->physical, held), held);
    if (handle->shared != 0) {
      Machine::Get().DropHolder(handle->shared);
    } else {
      Machine::Get().Refund(handle->machine, handle->size, Use::kData);
    }
  }
  delete handle;
}

CUresult CheckProp(const CUmemAllocationProp* prop, const Device** device) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(prop->requestedHandleTypes);
  if ((types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST || prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
      prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *device = FindDevice(prop->location.id);
  return *device != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

int NewFile(std::size_t size) {
  const int fd = memfd_create("simgpu-vmm", MFD_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size + kTrailerBytes)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

CUresult Create(CUmemGenericAllocationHandle* out, std::size_t size, const CUmemAllocationProp& prop,
                const Device& device) {
  if (!Plausible(size)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!ChargeUse(device.machine, size, Use::kData)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* handle = new VmmHandle;
  handle->size = size;
  handle->prop = prop;
  handle->machine = device.machine;
  const bool exportable = prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  if (exportable) handle->fd = NewFile(size);
  const MemLock held = LockMemory();
  if (!exportable) {
    if (Allocation* made = NewLocked(device.machine, size, MemKind::kPhysical, held)) handle->physical = made->base;
  }
  if (handle->fd < 0 && handle->physical == 0) {
    delete handle;
    Machine::Get().Refund(device.machine, size, Use::kData);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = AddHandle(handle, held);
  return CUDA_SUCCESS;
}

// From the first export on the machine counts the holders.
CUresult Share(VmmHandle& handle) {
  if (handle.shared != 0) return CUDA_SUCCESS;
  const SharedId shared = Machine::Get().ShareCharged(handle.machine, handle.size, Use::kData);
  if (shared == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  handle.shared = shared;
  const Trailer trailer{kTrailerMagic,
                        shared,
                        handle.size,
                        handle.machine,
                        static_cast<std::uint32_t>(handle.prop.requestedHandleTypes),
                        handle.prop.allocFlags.usage};
  const auto written = pwrite(handle.fd, &trailer, sizeof trailer, static_cast<off_t>(handle.size));
  return written == sizeof trailer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool ReadTrailer(int fd, Trailer* out) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size < static_cast<off_t>(kTrailerBytes)) return false;
  const off_t at = info.st_size - static_cast<off_t>(kTrailerBytes);
  if (pread(fd, out, sizeof *out, at) != sizeof *out) return false;
  return out->magic == kTrailerMagic && out->size == static_cast<std::uint64_t>(at) && out->shared != 0;
}

CUresult Import(CUmemGenericAllocationHandle* out, int fd) {
  Trailer trailer{};
  if (!ReadTrailer(fd, &trailer)) return ImportMulticast(out, fd);
  const Device* device = DeviceOfMachine(trailer.machine);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const MemLock held = LockMemory();
  for (VmmHandle* known : TheVmm().handles) {
    if (known->shared != trailer.shared) continue;
    ++known->references;
    *out = ToApi(known);
    return CUDA_SUCCESS;
  }
  const int mine = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (mine < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!Machine::Get().AddHolder(trailer.shared)) {
    close(mine);
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* handle = new VmmHandle;
  handle->fd = mine;
  handle->size = trailer.size;
  handle->machine = trailer.machine;
  handle->shared = trailer.shared;
  handle->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  handle->prop.allocFlags.usage = static_cast<unsigned short>(trailer.usage);
  handle->prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(trailer.handle_types);
  handle->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  handle->prop.location.id = device->ordinal;
  *out = AddHandle(handle, held);
  return CUDA_SUCCESS;
}

// --- addresses
// --------------------------------------------------------------------------------------------------------

void* MapNothing(CUdeviceptr at, std::size_t size, bool fixed) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (fixed ? MAP_FIXED : 0);
  return mmap(reinterpret_cast<void*>(at), size, PROT_NONE, flags, -1, 0);
}

CUresult Reserve(CUdeviceptr* out, std::size_t size, std::size_t alignment, CUdeviceptr wanted) {
  const std::size_t aligned_to = alignment < kGranule ? kGranule : alignment;
  std::size_t room = 0;
  if (__builtin_add_overflow(size, aligned_to, &room)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (wanted % aligned_to != 0) wanted = 0;
  void* const mapped = MapNothing(wanted, wanted != 0 ? size : room, false);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  auto start = reinterpret_cast<CUdeviceptr>(mapped);
  if (wanted != 0 && start != wanted) {  // taken: any other place will do
    munmap(mapped, size);
    return Reserve(out, size, alignment, 0);
  }
  if (wanted == 0) {
    const CUdeviceptr aligned = RoundUp(start, aligned_to);
    if (aligned > start) munmap(reinterpret_cast<void*>(start), aligned - start);
    if (aligned + size < start + room) munmap(reinterpret_cast<void*>(aligned + size), start + room - aligned - size);
    start = aligned;
  }
  const MemLock held = LockMemory();
  TheVmm().reservations.emplace(start, size);
  *out = start;
  return CUDA_SUCCESS;
}

// The range lies inside one reservation.
bool IsReserved(CUdeviceptr address, std::size_t size, const MemLock&) {
  const auto& reservations = TheVmm().reservations;
  auto next = reservations.upper_bound(address);
  if (next == reservations.begin()) return false;
  const auto& [base, length] = *std::prev(next);
  return address - base < length && size <= length - (address - base);
}

// The range consists of whole mappings without a gap.
bool IsWhollyMapped(CUdeviceptr address, std::size_t size, const MemLock& held) {
  const CUdeviceptr end = address + size;
  while (address < end) {
    const Allocation* found = FindBase(address, held);
    if (found == nullptr || found->kind != MemKind::kMapped) return false;
    address += found->size;
  }
  return address == end;
}

// Puts the handle's memory at the address. A multicast object has none, and its addresses mean something to kernels
// only: nothing is put there.
bool Place(const VmmHandle& handle, CUdeviceptr address, std::size_t size, std::size_t offset, const MemLock& held) {
  if (handle.multicast != nullptr) return true;
  int fd = handle.fd;
  std::size_t file_offset = offset;
  if (fd < 0) {
    const Arena* arena = ArenaOf(handle.machine, held);
    fd = arena->fd();
    file_offset += handle.physical - arena->base();
  }
  void* const mapped = mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                            fd, static_cast<off_t>(file_offset));
  if (mapped == MAP_FAILED) return false;
  madvise(mapped, size, MADV_DONTFORK);
  return true;
}

CUresult Map(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle value) {
  if (size == 0 || size % kGranule != 0 || offset % kGranule != 0 || address % kGranule != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemLock held = LockMemory();
  VmmHandle* handle = AwaitTeam(value, held);
  if (handle == nullptr || offset > handle->size || size > handle->size - offset) return CUDA_ERROR_INVALID_VALUE;
  if (offset != 0 && handle->multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;  // "currently must be zero"
  if (!IsReserved(address, size, held)) return CUDA_ERROR_INVALID_VALUE;
  Allocation* made = InsertLocked(address, size, MemKind::kMapped, held);
  if (made == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Place(*handle, address, size, offset, held)) {
    RemoveLocked(made, held);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made->vmm = handle;
  made->map_offset = offset;
  made->machine = handle->machine;
  made->readable = made->writable = false;
  AddUse(handle, held);
  return CUDA_SUCCESS;
}

// The devices that may have access to the mappings of a range that is wholly mapped, by ordinal.
std::uint32_t UsersOf(CUdeviceptr address, std::size_t size, const MemLock& held) {
  std::uint32_t mask = 0;
  for (CUdeviceptr at = address; at < address + size;) {
    const Allocation& mapping = *FindBase(at, held);
    for (int ordinal = 0; ordinal < kMaxDevices; ++ordinal) {
      if ((mapping.flags >> (2 * ordinal) & 3U) != 0) mask |= 1U << ordinal;
    }
    at += mapping.size;
  }
  return mask;
}

// Waits for the work of all who have access, as the driver does.
CUresult Unmap(CUdeviceptr address, std::size_t size) {
  MemLock held = LockMemory();
  if (size == 0 || !IsWhollyMapped(address, size, held)) return CUDA_ERROR_INVALID_VALUE;
  const std::uint32_t users = UsersOf(address, size, held);
  held.unlock();
  DrainDevices(users);
  held.lock();
  if (!IsWhollyMapped(address, size, held)) return CUDA_ERROR_INVALID_VALUE;
  MapNothing(address, size, true);
  const CUdeviceptr end = address + size;
  while (address < end) {
    Allocation* found = FindBase(address, held);
    VmmHandle* handle = found->vmm;
    address += found->size;
    RemoveLocked(found, held);
    DropUse(handle, held);
  }
  return CUDA_SUCCESS;
}

unsigned AccessBits(const Allocation& mapping, int ordinal) { return mapping.flags >> (2 * ordinal) & 3U; }

// The host can touch what some device can, but for a multicast object's addresses.
void Protect(Allocation& mapping) {
  if (mapping.vmm->multicast != nullptr) return;
  mapping.readable = mapping.flags != 0;
  mapping.writable = (mapping.flags & 0xaaaaaaaaU) != 0;
  const int protection = (mapping.readable ? PROT_READ : 0) | (mapping.writable ? PROT_WRITE : 0);
  mprotect(reinterpret_cast<void*>(mapping.base), mapping.size, protection);
}

CUresult SetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* descs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto flags = static_cast<unsigned>(descs[i].flags);
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (descs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (FindDevice(descs[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  }
  const MemLock held = LockMemory();
  if (size == 0 || !IsWhollyMapped(address, size, held)) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr end = address + size;
  while (address < end) {
    Allocation* found = FindBase(address, held);
    for (std::size_t i = 0; i < count; ++i) {
      const int shift = 2 * descs[i].location.id;
      found->flags = (found->flags & ~(3U << shift)) | static_cast<unsigned>(descs[i].flags) << shift;
    }
    Protect(*found);
    address += found->size;
  }
  return CUDA_SUCCESS;
}

}  // namespace

bool FindReservation(CUdeviceptr address, CUdeviceptr* base, std::size_t* size) {
  const MemLock held = LockMemory();
  if (!IsReserved(address, 1, held)) return false;
  const auto found = std::prev(TheVmm().reservations.upper_bound(address));
  *base = found->first;
  *size = found->second;
  return true;
}

VmmHandle* FindHandle(CUmemGenericAllocationHandle value, const MemLock&) {
  auto* handle = reinterpret_cast<VmmHandle*>(static_cast<std::uintptr_t>(value));
  return TheVmm().handles.count(handle) != 0 && handle->references > 0 ? handle : nullptr;
}

CUmemGenericAllocationHandle AddHandle(VmmHandle* handle, const MemLock&) {
  handle->references = 1;
  TheVmm().handles.insert(handle);
  return ToApi(handle);
}

void DropUse(VmmHandle* handle, const MemLock& held) {
  --handle->uses;
  DropIfUnused(handle, held);
}

static_assert(2 * kMaxDevices <= 32, "the access of every device fits into Allocation::flags");

}  // namespace simgpu

using namespace simgpu;

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  SIMGPU_ENTER(cuMemGetAllocationGranularity);
  const Device* device = nullptr;
  if (granularity == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckProp(prop, &device));
  *granularity = kGranule;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  SIMGPU_ENTER(cuMemCreate);
  const Device* device = nullptr;
  if (out == nullptr || size == 0 || size % kGranule != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckProp(prop, &device));
  return Create(out, size, *prop, *device);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle value) {
  SIMGPU_ENTER(cuMemRelease);
  const MemLock held = LockMemory();
  VmmHandle* handle = FindHandle(value, held);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --handle->references;
  DropIfUnused(handle, held);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  SIMGPU_ENTER(cuMemRetainAllocationHandle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MemLock held = LockMemory();
  const Allocation* found = FindLocked(reinterpret_cast<CUdeviceptr>(address), held);
  if (found == nullptr || found->kind != MemKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  ++found->vmm->references;
  *out = ToApi(found->vmm);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle value) {
  SIMGPU_ENTER(cuMemGetAllocationPropertiesFromHandle);
  const MemLock held = LockMemory();
  const VmmHandle* handle = FindHandle(value, held);
  if (prop == nullptr || handle == nullptr || handle->multicast != nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = handle->prop;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle value, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  SIMGPU_ENTER(cuMemExportToShareableHandle);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const MemLock held = LockMemory();
  VmmHandle* handle = FindHandle(value, held);
  if (handle == nullptr || handle->fd < 0) return CUDA_ERROR_INVALID_VALUE;
  if (handle->multicast == nullptr) SIMGPU_TRY(Share(*handle));
  const int exported = fcntl(handle->fd, F_DUPFD_CLOEXEC, 3);
  if (exported < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = exported;
  return CUDA_SUCCESS;
}

// The descriptor itself is the pointer argument. It stays the caller's.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                        CUmemAllocationHandleType type) {
  SIMGPU_ENTER(cuMemImportFromShareableHandle);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  return Import(out, static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)));
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
  SIMGPU_ENTER(cuMemAddressReserve);
  if (out == nullptr || size == 0 || size % kGranule != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !std::has_single_bit(alignment)) return CUDA_ERROR_INVALID_VALUE;
  return Reserve(out, size, alignment, wanted);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  SIMGPU_ENTER(cuMemAddressFree);
  const MemLock held = LockMemory();
  auto& reservations = TheVmm().reservations;
  const auto found = reservations.find(address);
  if (found == reservations.end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* mapped = FirstFrom(address, held);
  if (mapped != nullptr && mapped->base < address + size) return CUDA_ERROR_INVALID_VALUE;
  reservations.erase(found);
  munmap(reinterpret_cast<void*>(address), size);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  SIMGPU_ENTER(cuMemMap);
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : Map(address, size, offset, handle);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  SIMGPU_ENTER(cuMemUnmap);
  return Unmap(address, size);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descs, size_t count) {
  SIMGPU_ENTER(cuMemSetAccess);
  if (descs == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  return SetAccess(address, size, descs, count);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  SIMGPU_ENTER(cuMemGetAccess);
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const MemLock held = LockMemory();
  const Allocation* found = FindLocked(address, held);
  if (found == nullptr || found->kind != MemKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  *flags = AccessBits(*found, location->id);
  return CUDA_SUCCESS;
}
