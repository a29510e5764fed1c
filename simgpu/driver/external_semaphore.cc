// SPDX-License-Identifier: Apache-2.0
// External semaphores. There is no other graphics API on a simulated GPU that could make one, so the kind of descriptor
// is simgpu's own: a memfd whose first eight bytes are the semaphore, which any process may map and watch. A timeline
// semaphore's are its value. A binary one's are 1 while it is signalled and 0 otherwise, and a wait turns 1 into 0.
//
// Refuses: other kinds of handles, and capture into graphs.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <unordered_set>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/stream_memop.h"

namespace simgpu {
namespace {

constexpr std::size_t kBytes = sizeof(std::uint64_t);

struct Semaphore {
  int fd = -1;
  std::byte* word = nullptr;
  bool timeline = false;
  std::atomic<int> holders{1};  // the handle, and what is queued
};

struct Semaphores {
  std::mutex lock;
  std::unordered_set<Semaphore*> live;
};

Semaphores& TheSemaphores() {
  static Semaphores& semaphores = *new Semaphores;
  return semaphores;
}

void Drop(void* arg) {
  auto* semaphore = static_cast<Semaphore*>(arg);
  if (semaphore->holders.fetch_sub(1) != 1) return;
  munmap(semaphore->word, kBytes);
  close(semaphore->fd);
  delete semaphore;
}

// Null for no live semaphore; else held once more.
Semaphore* Hold(CUexternalSemaphore handle) {
  auto* semaphore = reinterpret_cast<Semaphore*>(handle);
  Semaphores& semaphores = TheSemaphores();
  const std::lock_guard<std::mutex> guard(semaphores.lock);
  if (semaphores.live.count(semaphore) == 0) return nullptr;
  semaphore->holders.fetch_add(1);
  return semaphore;
}

CUresult Import(CUexternalSemaphore* out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC& desc) {
  const bool timeline = desc.type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  if (!timeline && desc.type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  if (desc.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  struct stat info {};
  if (fstat(desc.handle.fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(kBytes)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, desc.handle.fd, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OPERATING_SYSTEM;
  auto* semaphore = new Semaphore;
  semaphore->fd = desc.handle.fd;
  semaphore->word = static_cast<std::byte*>(mapped);
  semaphore->timeline = timeline;
  Semaphores& semaphores = TheSemaphores();
  const std::lock_guard<std::mutex> guard(semaphores.lock);
  semaphores.live.insert(semaphore);
  *out = reinterpret_cast<CUexternalSemaphore>(semaphore);
  return CUDA_SUCCESS;
}

CUresult Destroy(CUexternalSemaphore handle) {
  auto* semaphore = reinterpret_cast<Semaphore*>(handle);
  {
    Semaphores& semaphores = TheSemaphores();
    const std::lock_guard<std::mutex> guard(semaphores.lock);
    if (semaphores.live.erase(semaphore) == 0) return CUDA_ERROR_INVALID_HANDLE;
  }
  Drop(semaphore);
  return CUDA_SUCCESS;
}

Op SignalOp(const Semaphore& semaphore, std::uint64_t value) {
  Op op;
  op.kind = OpKind::kWriteValue;
  op.wide = true;
  op.memop = {semaphore.word, semaphore.timeline ? value : 1};
  return op;
}

Op WaitOp(const Semaphore& semaphore, std::uint64_t value) {
  Op op;
  op.kind = OpKind::kWaitValue;
  op.wide = true;
  op.compare = semaphore.timeline ? static_cast<std::uint8_t>(CU_STREAM_WAIT_VALUE_GEQ) : kTakeValue;
  op.memop = {semaphore.word, semaphore.timeline ? value : 1};
  return op;
}

// `make(semaphore, value)` is what the stream does with each.
template <typename Params, typename Make>
CUresult Submit(const CUexternalSemaphore* handles, const Params* params, unsigned count, CUstream stream,
                bool per_thread, Make make) {
  SIMGPU_STREAM(s, stream, per_thread);
  if (handles == nullptr || params == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (IsCapturing(*s)) return RefuseOnCapture(*s);
  SIMGPU_TRY(s->kind == StreamKind::kLegacy ? CheckLegacyUse(*s->ctx) : CUDA_SUCCESS);
  std::vector<Semaphore*> held;
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    Semaphore* const semaphore = Hold(handles[i]);
    if (semaphore != nullptr) held.push_back(semaphore);
    if (semaphore == nullptr) result = CUDA_ERROR_INVALID_HANDLE;
    if (params[i].flags != 0) result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result != CUDA_SUCCESS) {
    for (Semaphore* const semaphore : held) Drop(semaphore);
    return result;
  }
  EngineLock sched;
  for (unsigned i = 0; i < count; ++i) {
    EnterQueue(*sched, *s);
    const Nanos now = Machine::Get().Now();
    Enqueue(*sched, *s, make(*held[i], params[i].params.fence.value), now);
    Op release;
    release.kind = OpKind::kCall;
    release.call = {Drop, held[i]};
    Enqueue(*sched, *s, release, now);
  }
  LeaveQueue(*sched, *s, Machine::Get().Now());
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuImportExternalSemaphore(CUexternalSemaphore* out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* desc) {
  SIMGPU_ENTER(cuImportExternalSemaphore);
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  return out == nullptr || desc == nullptr ? CUDA_ERROR_INVALID_VALUE : Import(out, *desc);
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore semaphore) {
  SIMGPU_ENTER(cuDestroyExternalSemaphore);
  return simgpu::Destroy(semaphore);
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* semaphores,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* params, unsigned int count,
                                         CUstream stream) {
  SIMGPU_ENTER(cuSignalExternalSemaphoresAsync);
  return Submit(semaphores, params, count, stream, false, SignalOp);
}

CUresult cuSignalExternalSemaphoresAsync_ptsz(const CUexternalSemaphore* semaphores,
                                              const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* params, unsigned int count,
                                              CUstream stream) {
  SIMGPU_ENTER(cuSignalExternalSemaphoresAsync_ptsz);
  return Submit(semaphores, params, count, stream, true, SignalOp);
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore* semaphores,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned int count,
                                       CUstream stream) {
  SIMGPU_ENTER(cuWaitExternalSemaphoresAsync);
  return Submit(semaphores, params, count, stream, false, WaitOp);
}

CUresult cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore* semaphores,
                                            const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned int count,
                                            CUstream stream) {
  SIMGPU_ENTER(cuWaitExternalSemaphoresAsync_ptsz);
  return Submit(semaphores, params, count, stream, true, WaitOp);
}
