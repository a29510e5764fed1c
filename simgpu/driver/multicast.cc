// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/multicast.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <vector>

namespace simgpu {

namespace {

constexpr std::uint64_t kTeamMagic = 0x314d434d55504753;  // "SGPUMCM1"
constexpr std::size_t kTeamBytes = 4096;
constexpr std::size_t kRecommendedGranularity = std::size_t{512} << 20;

// Shared by all processes that hold the object.
struct Team {
  std::uint64_t magic;
  std::uint64_t size;
  std::uint32_t wanted;  // devices
  std::uint32_t handle_types;
  std::atomic<std::uint32_t> devices;  // bit per device of the machine
};
static_assert(sizeof(Team) <= kTeamBytes && kMaxDevices <= 32);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

struct Binding {
  std::size_t offset;
  std::size_t size;
  VmmHandle* memory;
};

bool Complete(const Team& team) {
  return static_cast<std::uint32_t>(std::popcount(team.devices.load(std::memory_order_acquire))) >= team.wanted;
}

void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec look_again{0, 20'000'000};  // the one who adds may be killed between adding and waking
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &look_again, nullptr, 0);
}

void FutexWake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

// False when it is in the team already, or the team is full.
bool Join(Team& team, int machine) {
  const std::uint32_t bit = 1U << machine;
  std::uint32_t seen = team.devices.load(std::memory_order_acquire);
  do {
    if ((seen & bit) != 0 || static_cast<std::uint32_t>(std::popcount(seen)) >= team.wanted) return false;
  } while (!team.devices.compare_exchange_weak(seen, seen | bit, std::memory_order_acq_rel));
  FutexWake(team.devices);
  return true;
}

}  // namespace

struct Multicast {
  Team* team = nullptr;
  VmmHandle* handle = nullptr;
  std::vector<Binding> bindings;  // of this process
};

namespace {

// Of this process, guarded by the memory lock.
std::vector<Multicast*>& TheObjects() {
  static std::vector<Multicast*>& objects = *new std::vector<Multicast*>;
  return objects;
}

CUresult CheckProp(const CUmulticastObjectProp* prop) {
  if (prop == nullptr || prop->flags != 0 || prop->numDevices == 0 || prop->numDevices > kMaxDevices) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((prop->handleTypes & ~std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  for (int ordinal = 0; ordinal < DeviceCount(); ++ordinal) {
    if (HasMulticast(*FindDevice(ordinal))) return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

// A sealed file can not be cut short under those who map it.
int NewTeamFile() {
  const int fd = memfd_create("simgpu-multicast", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, kTeamBytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) return fd;
  close(fd);
  return -1;
}

Team* MapTeam(int fd) {
  const int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* const mapped = mmap(nullptr, kTeamBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<Team*>(mapped);
}

CUmemGenericAllocationHandle NewObject(Team* team, int fd, const MemLock& held) {
  auto* handle = new VmmHandle;
  handle->fd = fd;
  handle->size = team->size;
  handle->prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(team->handle_types);
  handle->multicast = new Multicast{team, handle, {}};
  TheObjects().push_back(handle->multicast);
  return AddHandle(handle, held);
}

CUresult Create(CUmemGenericAllocationHandle* out, const CUmulticastObjectProp& prop) {
  int fd = -1;
  if (prop.handleTypes != 0 && (fd = NewTeamFile()) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Team* team = MapTeam(fd);
  if (team == nullptr) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  team->size = prop.size;
  team->wanted = prop.numDevices;
  team->handle_types = static_cast<std::uint32_t>(prop.handleTypes);
  team->magic = kTeamMagic;
  const MemLock held = LockMemory();
  *out = NewObject(team, fd, held);
  return CUDA_SUCCESS;
}

CUresult AddDevice(CUmemGenericAllocationHandle value, CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (!HasMulticast(*device)) return CUDA_ERROR_NOT_SUPPORTED;
  const MemLock held = LockMemory();
  const VmmHandle* handle = FindHandle(value, held);
  if (handle == nullptr || handle->multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Join(*handle->multicast->team, device->machine)) return CUDA_ERROR_INVALID_VALUE;
  // Where pointer queries say that its mappings are.
  handle->multicast->handle->machine = device->machine;
  return CUDA_SUCCESS;
}

// What a binding is asked for: a place in the object, and a piece of memory.
struct Place {
  std::size_t offset;
  std::size_t size;
};

bool Inside(std::size_t offset, std::size_t size, std::size_t whole) {
  return offset <= whole && size <= whole - offset;
}

bool Overlap(const Binding& binding, const Place& place) {
  return binding.offset < place.offset + place.size && place.offset < binding.offset + binding.size;
}

bool Aligned(std::size_t a, std::size_t b, std::size_t c) { return (a | b | c) % kGranule == 0; }

// `ordinal` is the device that the caller named; -1: the memory's own, whichever that is.
CUresult Bind(Multicast& object, const Place& at, VmmHandle* memory, std::size_t offset, int ordinal,
              const MemLock& held) {
  if (memory == nullptr || memory->multicast != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Inside(offset, at.size, memory->size) || !Inside(at.offset, at.size, object.team->size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Device* named = ordinal < 0 ? nullptr : FindDevice(ordinal);
  if (named != nullptr && named->machine != memory->machine) return CUDA_ERROR_INVALID_DEVICE;
  if ((object.team->devices.load(std::memory_order_acquire) >> memory->machine & 1) == 0) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  // Who may come to hold the object must be able to come to hold the memory.
  if (object.team->handle_types != 0 && memory->prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool taken = std::any_of(object.bindings.begin(), object.bindings.end(), [&](const Binding& binding) {
    return binding.memory->machine == memory->machine && Overlap(binding, at);
  });
  if (taken) return CUDA_ERROR_INVALID_VALUE;
  object.bindings.push_back({at.offset, at.size, memory});
  AddUse(memory, held);
  return CUDA_SUCCESS;
}

// Arguments that can be judged before the team is complete.
CUresult CheckPlace(const Place& at, std::size_t memory_offset, unsigned long long flags, int ordinal) {
  if (flags != 0 || at.size == 0 || !Aligned(at.offset, at.size, memory_offset)) return CUDA_ERROR_INVALID_VALUE;
  return ordinal < 0 || FindDevice(ordinal) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

Multicast* AwaitObject(CUmemGenericAllocationHandle value, MemLock& held) {
  const VmmHandle* handle = AwaitTeam(value, held);
  return handle != nullptr ? handle->multicast : nullptr;
}

CUresult BindMemory(CUmemGenericAllocationHandle object, const Place& at, CUmemGenericAllocationHandle memory,
                    std::size_t offset, unsigned long long flags, int ordinal) {
  SIMGPU_TRY(CheckPlace(at, offset, flags, ordinal));
  MemLock held = LockMemory();
  Multicast* multicast = AwaitObject(object, held);
  if (multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Bind(*multicast, at, FindHandle(memory, held), offset, ordinal, held);
}

CUresult BindAddress(CUmemGenericAllocationHandle object, const Place& at, CUdeviceptr address,
                     unsigned long long flags, int ordinal) {
  SIMGPU_TRY(CheckPlace(at, address, flags, ordinal));
  MemLock held = LockMemory();
  Multicast* multicast = AwaitObject(object, held);
  if (multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* found = FindLocked(address, held);
  if (found != nullptr && found->kind == MemKind::kAsync) return CUDA_ERROR_NOT_SUPPORTED;
  if (found == nullptr || found->kind != MemKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t into = address - found->base;
  if (!Inside(into, at.size, found->size)) return CUDA_ERROR_INVALID_VALUE;
  return Bind(*multicast, at, found->vmm, found->map_offset + into, ordinal, held);
}

// Ends the bindings of a device that lie in the range. One that lies there in part only, or none at all, is refused:
// what is unbound has to match what was bound.
CUresult Unbind(CUmemGenericAllocationHandle value, const Place& at, CUdevice ordinal) {
  SIMGPU_TRY(CheckPlace(at, 0, 0, ordinal));
  const Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const MemLock held = LockMemory();
  const VmmHandle* handle = FindHandle(value, held);
  if (handle == nullptr || handle->multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Multicast& object = *handle->multicast;
  if (!Inside(at.offset, at.size, object.team->size)) return CUDA_ERROR_INVALID_VALUE;
  const auto hit = [&](const Binding& binding) {
    return binding.memory->machine == device->machine && Overlap(binding, at);
  };
  const auto whole = [&](const Binding& binding) {
    return binding.offset >= at.offset && binding.offset + binding.size <= at.offset + at.size;
  };
  const auto end = std::stable_partition(object.bindings.begin(), object.bindings.end(), std::not_fn(hit));
  if (end == object.bindings.end() || !std::all_of(end, object.bindings.end(), whole)) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<Binding> gone(end, object.bindings.end());
  object.bindings.erase(end, object.bindings.end());
  for (const Binding& binding : gone) DropUse(binding.memory, held);
  return CUDA_SUCCESS;
}

}  // namespace

VmmHandle* AwaitTeam(CUmemGenericAllocationHandle value, MemLock& held) {
  VmmHandle* handle = FindHandle(value, held);
  if (handle == nullptr || handle->multicast == nullptr) return handle;
  Team& team = *handle->multicast->team;
  if (Complete(team)) return handle;
  AddUse(handle, held);
  held.unlock();
  for (std::uint32_t seen = team.devices.load(); !Complete(team); seen = team.devices.load()) {
    FutexWait(team.devices, seen);
  }
  held.lock();
  VmmHandle* const still = FindHandle(value, held);
  DropUse(handle, held);
  return still;
}

CUresult ImportMulticast(CUmemGenericAllocationHandle* out, int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size != static_cast<off_t>(kTeamBytes)) return CUDA_ERROR_INVALID_VALUE;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return CUDA_ERROR_INVALID_VALUE;
  const MemLock held = LockMemory();
  for (const Multicast* known : TheObjects()) {
    struct stat other {};
    if (known->handle->fd < 0 || fstat(known->handle->fd, &other) != 0) continue;
    if (other.st_dev != info.st_dev || other.st_ino != info.st_ino) continue;
    ++known->handle->references;
    *out = ToApi(known->handle);
    return CUDA_SUCCESS;
  }
  Team* team = MapTeam(fd);
  if (team == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const int mine = team->magic == kTeamMagic ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
  if (mine < 0) {
    munmap(team, kTeamBytes);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = NewObject(team, mine, held);
  return CUDA_SUCCESS;
}

void EndMulticast(Multicast* multicast, const MemLock& held) {
  for (const Binding& binding : multicast->bindings) DropUse(binding.memory, held);
  munmap(multicast->team, kTeamBytes);
  auto& objects = TheObjects();
  objects.erase(std::find(objects.begin(), objects.end(), multicast));
  delete multicast;
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* prop,
                                   CUmulticastGranularity_flags option) {
  SIMGPU_ENTER(cuMulticastGetGranularity);
  if (granularity == nullptr || option > CU_MULTICAST_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckProp(prop));
  *granularity = option == CU_MULTICAST_GRANULARITY_MINIMUM ? kGranule : kRecommendedGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* out, const CUmulticastObjectProp* prop) {
  SIMGPU_ENTER(cuMulticastCreate);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(CheckProp(prop));
  if (prop->size == 0 || prop->size % kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  return Create(out, *prop);
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device) {
  SIMGPU_ENTER(cuMulticastAddDevice);
  return AddDevice(object, device);
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t at, CUmemGenericAllocationHandle memory,
                            size_t offset, size_t size, unsigned long long flags) {
  SIMGPU_ENTER(cuMulticastBindMem);
  return BindMemory(object, {at, size}, memory, offset, flags, -1);
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                               CUmemGenericAllocationHandle memory, size_t offset, size_t size,
                               unsigned long long flags) {
  SIMGPU_ENTER(cuMulticastBindMem_v2);
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  return BindMemory(object, {at, size}, memory, offset, flags, device);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr address, size_t size,
                             unsigned long long flags) {
  SIMGPU_ENTER(cuMulticastBindAddr);
  return BindAddress(object, {at, size}, address, flags, -1);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at, CUdeviceptr address,
                                size_t size, unsigned long long flags) {
  SIMGPU_ENTER(cuMulticastBindAddr_v2);
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  return BindAddress(object, {at, size}, address, flags, device);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t at, size_t size) {
  SIMGPU_ENTER(cuMulticastUnbind);
  return Unbind(object, {at, size}, device);
}
