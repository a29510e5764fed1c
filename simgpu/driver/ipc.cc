// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace simgpu {
namespace {

constexpr std::uint64_t kTicketMagic = 0x3143504955504753;  // "SGPUIPC1"

// Field 22 of /proc/<pid>/stat; 0 when there is no such process. The name in field 2 may contain anything.
std::uint64_t StartTime(int pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  unsigned long long start = 0;
  return at != nullptr && std::sscanf(at, " %llu", &start) == 1 ? start : 0;
}

std::uint64_t Origin(const Ticket& ticket) { return static_cast<std::uint64_t>(ticket.pid) << 40 | ticket.id; }

bool SameTicket(const Allocation& allocation, const Ticket& ticket, MemKind kind) {
  return allocation.kind == kind && allocation.origin == Origin(ticket) && allocation.size == ticket.size &&
         allocation.map_offset == ticket.offset;
}

Allocation* FindOpen(const Ticket& ticket, MemKind kind, const MemLock& held) {
  for (Allocation* at = FirstFrom(0, held); at != nullptr; at = FirstFrom(at->base + at->size, held)) {
    if (SameTicket(*at, ticket, kind)) return at;
  }
  return nullptr;
}

// The owner may have freed it since, and something else may be there.
bool IsAlive(int fd, const Ticket& ticket) {
  struct stat info {};
  return fstat(fd, &info) == 0 && Arena::IsTold(fd, static_cast<std::size_t>(info.st_size), ticket.offset, ticket.id);
}

CUresult GetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  Range range;
  if (out == nullptr || !FindRange(address, &range) || range.kind != MemKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  Ticket ticket{};
  if (!MakeTicket(address, kTicketIpc, &ticket)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &ticket, sizeof ticket);
  return CUDA_SUCCESS;
}

CUresult OpenMemHandle(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  Ticket ticket{};
  std::memcpy(&ticket, &handle, sizeof ticket);
  return OpenTicket(ticket, kTicketIpc, MemKind::kIpc, ctx, nullptr, out);
}

}  // namespace

Ticket NewTicket(std::uint32_t purpose) {
  Ticket ticket{};
  ticket.magic = kTicketMagic;
  ticket.pid = getpid();
  ticket.start_time = StartTime(ticket.pid);
  ticket.purpose = purpose;
  return ticket;
}

bool IsTicket(const Ticket& ticket, std::uint32_t purpose) {
  return ticket.magic == kTicketMagic && ticket.purpose == purpose;
}

int OpenFile(const Ticket& ticket) {
  if (StartTime(ticket.pid) != ticket.start_time) return -1;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", ticket.pid, ticket.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat info {};
  const auto end = static_cast<off_t>(ticket.offset + ticket.size);
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size >= end) return fd;
  close(fd);
  return -1;
}

bool MakeTicket(CUdeviceptr address, std::uint32_t purpose, Ticket* out) {
  const MemLock held = LockMemory();
  Allocation* found = FindLocked(address, held);
  if (found == nullptr || found->machine < 0) return false;
  Arena* arena = ArenaOf(found->machine, held);
  if (arena == nullptr || !arena->Contains(found->base) || !arena->Tell(found)) return false;
  *out = NewTicket(purpose);
  out->offset = found->base - arena->base();
  out->size = found->size;
  out->id = found->id;
  out->fd = arena->fd();
  out->machine = found->machine;
  return true;
}

CUresult OpenTicket(const Ticket& ticket, std::uint32_t purpose, MemKind kind, Context* ctx, Pool* pool,
                    CUdeviceptr* out) {
  if (!IsTicket(ticket, purpose) || !Plausible(ticket.size)) return CUDA_ERROR_INVALID_VALUE;
  if (DeviceOfMachine(ticket.machine) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (ticket.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;

  const MemLock held = LockMemory();
  if (Allocation* open_already = FindOpen(ticket, kind, held)) {
    if (kind != MemKind::kIpc) return CUDA_ERROR_ALREADY_MAPPED;
    ++open_already->references;
    *out = open_already->base;
    return CUDA_SUCCESS;
  }
  const int fd = OpenFile(ticket);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  if (!IsAlive(fd, ticket)) {
    close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = ticket.offset % page;
  void* const mapped = mmap(nullptr, ticket.size + before, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                            static_cast<off_t>(ticket.offset - before));
  close(fd);
  if (mapped == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  Allocation* made = InsertLocked(reinterpret_cast<CUdeviceptr>(mapped) + before, ticket.size, kind, held);
  if (made == nullptr) {
    munmap(mapped, ticket.size + before);
    return CUDA_ERROR_MAP_FAILED;
  }
  made->machine = ticket.machine;
  made->ctx = ctx;
  made->pool = pool;
  made->map_offset = ticket.offset;
  made->origin = Origin(ticket);
  *out = made->base;
  return CUDA_SUCCESS;
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  SIMGPU_ENTER(cuIpcGetMemHandle);
  return GetMemHandle(out, address);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  SIMGPU_ENTER(cuIpcOpenMemHandle);
  return OpenMemHandle(out, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  SIMGPU_ENTER(cuIpcOpenMemHandle_v2);
  return OpenMemHandle(out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  SIMGPU_ENTER(cuIpcCloseMemHandle);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  Range range;
  if (FindRange(address, &range) && range.base == address && range.kind == MemKind::kIpc) DrainUsersOf(range);
  {
    const MemLock held = LockMemory();
    Allocation* found = FindBase(address, held);
    if (found == nullptr || found->kind != MemKind::kIpc) return CUDA_ERROR_INVALID_VALUE;
    if (--found->references > 0) return CUDA_SUCCESS;
  }
  Destroy(address);
  return CUDA_SUCCESS;
}
