// SPDX-License-Identifier: Apache-2.0
// External memory: a file descriptor of another API, taken over and charged while it is imported.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unordered_set>

#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

struct ExternalMemory {
  int fd = -1;
  std::uint64_t size = 0;
  std::uint64_t charged = 0;
  int machine = 0;
};

struct Externals {
  std::mutex lock;
  std::unordered_set<const void*> live;
};

Externals& TheExternals() {
  static Externals& externals = *new Externals;
  return externals;
}

CUresult Import(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC& desc, const Context& ctx) {
  if (desc.type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  if ((desc.flags & ~static_cast<unsigned>(CUDA_EXTERNAL_MEMORY_DEDICATED)) != 0 || !Plausible(desc.size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  struct stat info {};
  if (fstat(desc.handle.fd, &info) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (static_cast<std::uint64_t>(info.st_size) < desc.size) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t rounded = RoundUp(desc.size, kAllocationUnit);
  if (!ChargeUse(ctx.machine(), rounded, Use::kData)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* memory = new ExternalMemory{desc.handle.fd, desc.size, rounded, ctx.machine()};
  Externals& externals = TheExternals();
  const std::lock_guard<std::mutex> guard(externals.lock);
  externals.live.insert(memory);
  *out = reinterpret_cast<CUexternalMemory>(memory);
  return CUDA_SUCCESS;
}

CUresult MapBuffer(CUdeviceptr* out, const ExternalMemory& memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC& desc,
                   Context& ctx) {
  if (desc.flags != 0 || desc.size == 0 || desc.offset > memory.size || desc.size > memory.size - desc.offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = desc.offset % page;
  void* const mapped = mmap(nullptr, desc.size + before, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.fd,
                            static_cast<off_t>(desc.offset - before));
  if (mapped == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  const MemLock held = LockMemory();
  Allocation* made = InsertLocked(reinterpret_cast<CUdeviceptr>(mapped) + before, desc.size, MemKind::kExternal, held);
  if (made == nullptr) {
    munmap(mapped, desc.size + before);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made->machine = memory.machine;
  made->ctx = &ctx;
  *out = made->base;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuImportExternalMemory(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* desc) {
  SIMGPU_ENTER(cuImportExternalMemory);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Import(out, *desc, *ctx);
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr* out, CUexternalMemory handle,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* desc) {
  SIMGPU_ENTER(cuExternalMemoryGetMappedBuffer);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  if (out == nullptr || desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Externals& externals = TheExternals();
  const std::lock_guard<std::mutex> guard(externals.lock);
  if (externals.live.count(handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return MapBuffer(out, *reinterpret_cast<const ExternalMemory*>(handle), *desc, *ctx);
}

CUresult cuDestroyExternalMemory(CUexternalMemory handle) {
  SIMGPU_ENTER(cuDestroyExternalMemory);
  Externals& externals = TheExternals();
  {
    const std::lock_guard<std::mutex> guard(externals.lock);
    if (externals.live.erase(handle) == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  auto* memory = reinterpret_cast<ExternalMemory*>(handle);
  close(memory->fd);
  Machine::Get().Refund(memory->machine, memory->charged, Use::kData);
  delete memory;
  return CUDA_SUCCESS;
}
