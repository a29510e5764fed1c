// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: the charge lives as long as the physical memory does.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/handover.h"
#include "test/preload/guest.h"

namespace guest {
namespace {

CUmemAllocationProp OnDevice(int ordinal) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = ordinal;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

// Create, map, release: the mapping keeps the memory, so it keeps the charge (A3).
SCENARIO(vmm_release_while_mapped) {
  Begin();
  const size_t before = Room();
  const CUmemAllocationProp prop = OnDevice(0);
  CUdeviceptr range = 0;
  OK(cuMemAddressReserve(&range, 8 * 400 * kMiB, 0, 0, 0));
  CUmemGenericAllocationHandle handle = 99;
  OK(cuMemCreate(&handle, 400 * kMiB, &prop, 0));
  OK(cuMemMap(range, 400 * kMiB, 0, handle, 0));
  OK(cuMemRelease(handle));
  EXPECT_SAME(before - Room(), 400 * kMiB);
  Balanced();
  CUmemGenericAllocationHandle refused = 99;
  OOM(cuMemCreate(&refused, 400 * kMiB, &prop, 0));
  EXPECT_SAME(refused, 99);
  // A reference taken from the mapping outlives it.
  CUmemGenericAllocationHandle again = 0;
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range)));
  OK(cuMemUnmap(range, 400 * kMiB));
  EXPECT_SAME(before - Room(), 400 * kMiB);
  OK(cuMemRelease(again));
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(vmm_segments) {
  Begin();
  const size_t before = Room();
  const CUmemAllocationProp prop = OnDevice(0);
  CUdeviceptr range = 0;
  OK(cuMemAddressReserve(&range, 16 * 20 * kMiB, 0, 0, 0));
  for (size_t i = 0; i < 16; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate(&handle, 20 * kMiB, &prop, 0));
    OK(cuMemMap(range + i * 20 * kMiB, 20 * kMiB, 0, handle, 0));
    OK(cuMemRelease(handle));
  }
  EXPECT_SAME(before - Room(), 320 * kMiB);
  Balanced();
  OK(cuMemUnmap(range, 20 * kMiB));
  EXPECT_SAME(before - Room(), 300 * kMiB);
  for (size_t i = 1; i < 16; ++i) OK(cuMemUnmap(range + i * 20 * kMiB, 20 * kMiB));
  EXPECT_SAME(Room(), before);
}

// The device named in the properties pays, not the current one.
SCENARIO(vmm_other_device) {
  Begin(0);
  const size_t before = Room();
  const CUmemAllocationProp prop = OnDevice(1);
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, 100 * kMiB, &prop, 0));
  EXPECT_SAME(Room(), before);
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  OK(cuCtxSetCurrent(other));
  EXPECT(MemInfo().used() >= 100 * kMiB);
  OK(cuMemRelease(handle));
}

SCENARIO(vmm_failures) {
  Begin();
  const size_t before = Room();
  const CUmemAllocationProp prop = OnDevice(0);
  EXPECT(cuMemRelease(0xdead) != CUDA_SUCCESS);
  EXPECT(cuMemUnmap(0x1000, 2 * kMiB) != CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT(cuMemCreate(&handle, 12345, &prop, 0) != CUDA_SUCCESS);
  OK(cuMemCreate(&handle, 20 * kMiB, &prop, 0));
  EXPECT(cuMemMap(0x1000, 20 * kMiB, 0, handle, 0) != CUDA_SUCCESS);
  EXPECT_SAME(before - Room(), 20 * kMiB);
  OK(cuMemRelease(handle));
  EXPECT(cuMemRelease(handle) != CUDA_SUCCESS);
  EXPECT_SAME(Room(), before);
}

int Export(CUmemGenericAllocationHandle handle) {
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return fd;
}

// The driver keeps memory while a descriptor of it is open, so that counts without a handle or a mapping.
SCENARIO(vmm_exported) {
  Begin();
  const size_t before = Room();
  const CUmemAllocationProp prop = OnDevice(0);
  for (int round = 0; round < 2; ++round) {
    std::vector<int> kept;
    for (int i = 0; i < 8; ++i) {
      CUmemGenericAllocationHandle handle = 0;
      if (kept.size() == before / (256 * kMiB)) {
        OOM(cuMemCreate(&handle, 256 * kMiB, &prop, 0));
        continue;
      }
      OK(cuMemCreate(&handle, 256 * kMiB, &prop, 0));
      kept.push_back(Export(handle));
      OK(cuMemRelease(handle));
      EXPECT(Truth() <= kGiB);
    }
    EXPECT_SAME(before - Room(), kept.size() * 256 * kMiB);
    Balanced(kGiB);  // simgpu lets go of it, as docs/develop/simgpu.md says
    for (const int fd : kept) close(fd);
    CUdeviceptr all = 0;
    OK(cuMemAlloc_v2(&all, before));  // noticed because it would not fit
    EXPECT_SAME(Room(), 0);
    Balanced();
    OK(cuMemFree_v2(all));
    EXPECT_SAME(Room(), before);
  }
}

SCENARIO(vmm_exported_number_reused) {
  Begin();
  const size_t before = Room();
  const CUmemAllocationProp prop = OnDevice(0);
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, 200 * kMiB, &prop, 0));
  const int fd = Export(handle);
  OK(cuMemRelease(handle));
  EXPECT_SAME(before - Room(), 200 * kMiB);
  EXPECT_SAME(dup2(STDERR_FILENO, fd), fd);  // another file
  EXPECT_SAME(Room(), before);
  close(fd);
  OK(cuMemCreate(&handle, 200 * kMiB, &prop, 0));
  EXPECT_SAME(Export(handle), fd);
  OK(cuMemRelease(handle));
  close(fd);
  OK(cuMemCreate(&handle, 100 * kMiB, &prop, 0));
  EXPECT_SAME(Export(handle), fd);  // the same number, of other memory
  EXPECT_SAME(before - Room(), 100 * kMiB);
  OK(cuMemRelease(handle));
  EXPECT_SAME(before - Room(), 100 * kMiB);
  Balanced(100 * kMiB);
  // The child of a fork has the descriptor, and nothing that its parent is charged for.
  const pid_t child = fork();
  if (child == 0) {
    close(fd);
    CUmemGenericAllocationHandle none = 0;
    cuMemCreate(&none, 100 * kMiB, &prop, 0);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_SAME(before - Room(), 100 * kMiB);
  close(fd);
  EXPECT_SAME(Room(), before);
}

// Memory that another holder may let go of counts while it is mapped here.
SCENARIO(vmm_import) {
  Begin();
  const size_t before = Room();
  const CUmemAllocationProp prop = OnDevice(0);
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, 200 * kMiB, &prop, 0));
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemGenericAllocationHandle imported = 0;
  OK(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CUdeviceptr range = 0;
  OK(cuMemAddressReserve(&range, 200 * kMiB, 0, 0, 0));
  OK(cuMemMap(range, 200 * kMiB, 0, imported, 0));
  OK(cuMemRelease(handle));
  OK(cuMemRelease(imported));
  EXPECT(before - Room() >= 200 * kMiB);
  OK(cuMemUnmap(range, 200 * kMiB));
  EXPECT_SAME(Room(), before);
}

// A process of the same container that makes memory, hands it over, and lets go of it when it is told to.
class Maker {
 public:
  explicit Maker(size_t bytes) {
    EXPECT_SAME(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    child_ = fork();
    if (child_ == 0) Live(bytes);
  }

  // The memory's handle here.
  CUmemGenericAllocationHandle Import() {
    int fd = -1;
    EXPECT(handover::Receive(ends_[0], &byte_, &fd));
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    return handle;
  }

  void LetGoAfter(int milliseconds) {
    EXPECT_SAME(send(ends_[0], &milliseconds, sizeof milliseconds, 0), static_cast<ssize_t>(sizeof milliseconds));
  }
  void AwaitLetGo() {
    char done = 0;
    EXPECT_SAME(recv(ends_[0], &done, sizeof done, 0), 1);
  }
  // It lives on, for what the dead held is counted until somebody looks.
  ~Maker() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

 private:
  [[noreturn]] void Live(size_t bytes) {
    close(ends_[0]);
    Begin();
    const CUmemAllocationProp prop = OnDevice(0);
    CUmemGenericAllocationHandle handle = 0;
    int fd = -1;
    OK(cuMemCreate(&handle, bytes, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(handover::Send(ends_[1], byte_, fd));
    close(fd);
    int milliseconds = 0;
    EXPECT_SAME(recv(ends_[1], &milliseconds, sizeof milliseconds, 0), static_cast<ssize_t>(sizeof milliseconds));
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
    OK(cuMemRelease(handle));
    EXPECT_SAME(send(ends_[1], &byte_, sizeof byte_, 0), 1);
    recv(ends_[1], &byte_, sizeof byte_, 0);  // until the other one is gone
    _exit(0);
  }

  int ends_[2] = {-1, -1};
  pid_t child_ = -1;
  char byte_ = 0;
};

// The driver may show memory that is shared as another holder's as soon as one lets go: what it shows beyond the count
// while a context ends or begins is then neither a module's nor the context's.
SCENARIO(vmm_import_unmapped) {
  Maker maker(100 * kMiB);
  Begin();
  CUcontext context = nullptr;
  OK(cuCtxCreate_v2(&context, 0, 0));
  const CUmemGenericAllocationHandle handle = maker.Import();
  maker.LetGoAfter(0);
  maker.AwaitLetGo();
  OK(cuCtxDestroy_v2(context));
  OK(cuMemRelease(handle));
  EXPECT_SAME(MemInfo().used(), simgpu_used_bytes(0));
}

SCENARIO(vmm_import_while_a_context_is_made) {
  Maker maker(20 * kMiB);
  Begin();
  CUdeviceptr range = 0;
  const CUmemGenericAllocationHandle handle = maker.Import();
  OK(cuMemAddressReserve(&range, 20 * kMiB, 0, 0, 0));
  OK(cuMemMap(range, 20 * kMiB, 0, handle, 0));
  EXPECT_SAME(simgpu_inject("fault call=cuCtxCreate_v2 delay_ms=400", nullptr, 0), 1);
  maker.LetGoAfter(200);
  CUcontext context = nullptr;
  OK(cuCtxCreate_v2(&context, 0, 0));
  maker.AwaitLetGo();
  EXPECT_SAME(MemInfo().used(), simgpu_used_bytes(0));
}

}  // namespace
}  // namespace guest
