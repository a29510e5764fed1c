// SPDX-License-Identifier: Apache-2.0
//
// A process of a container that does what it is told, for scenarios about what several hold. It is forked before the
// scenario uses a GPU, and dies with it.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "test/handover.h"
#include "test/preload/guest.h"

namespace guest {

inline constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

enum class Do : uint64_t {
  kCreate,
  kExport,
  kImport,
  kRelease,
  kMap,
  kUnmap,
  kAllocate,
  kFree,
  kUsed,
  kTotal,
  kFork,
  kArray,
  kGone
};

struct Order {
  Do what;
  uint64_t subject;  // a handle, an address, or nothing
  uint64_t bytes;
};

struct Answer {
  uint64_t result;  // CUresult
  uint64_t value;
};

// A process of the container, or of another one.
class Peer {
 public:
  explicit Peer(const char* region = nullptr) {
    EXPECT_SAME(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when the scenario fails
      if (region != nullptr) setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", region, 1);
      Live(ends_[1]);
    }
    close(ends_[1]);
  }
  ~Peer() {
    Kill();
    close(ends_[0]);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }

  uint64_t Create(uint64_t bytes) { return Good({Do::kCreate, 0, bytes}); }
  uint64_t CreateTilePool(uint64_t bytes) { return Good({Do::kCreate, CU_MEM_CREATE_USAGE_TILE_POOL, bytes}); }
  int Export(uint64_t handle) {
    int fd = -1;
    EXPECT_SAME(Ask({Do::kExport, handle, 0}, -1, &fd).result, CUDA_SUCCESS);
    EXPECT(fd >= 0);
    return fd;
  }
  uint64_t Import(int fd) {
    int none = -1;
    const Answer answer = Ask({Do::kImport, 0, 0}, fd, &none);
    EXPECT_SAME(answer.result, CUDA_SUCCESS);
    return answer.value;
  }
  bool TryImport(int fd) {
    int none = -1;
    return Ask({Do::kImport, 0, 0}, fd, &none).result == CUDA_SUCCESS;
  }
  void CannotImport(int fd) { EXPECT(!TryImport(fd)); }
  void Release(uint64_t handle) { Good({Do::kRelease, handle, 0}); }
  uint64_t Map(uint64_t handle, uint64_t bytes) { return Good({Do::kMap, handle, bytes}); }
  void Unmap(uint64_t address, uint64_t bytes) { Good({Do::kUnmap, address, bytes}); }
  uint64_t Used() { return Good({Do::kUsed, 0, 0}); }
  // An array of `bytes` that lies in the memory as a whole, and its end.
  uint64_t MapArray(uint64_t handle, uint64_t bytes) { return Good({Do::kArray, handle, bytes}); }
  void DestroyArray(uint64_t array) { Good({Do::kGone, array, 0}); }
  // In a child of its own: whether that one may free what this one has.
  void Fork() { Good({Do::kFork, 0, 0}); }

  // All that is left under the limit can be had, to the last byte, and no byte more.
  void Fill() {
    const uint64_t held = simgpu_used_bytes(0);
    const uint64_t limit = Good({Do::kTotal, 0, 0});
    EXPECT(held < limit);
    const uint64_t rest = Good({Do::kAllocate, 0, limit - held});
    EXPECT_SAME(simgpu_used_bytes(0), limit);
    int none = -1;
    EXPECT_SAME(Ask({Do::kAllocate, 0, 512}, -1, &none).result, CUDA_ERROR_OUT_OF_MEMORY);
    Good({Do::kFree, rest, 0});
    EXPECT_SAME(Used(), held);
  }

 private:
  Answer Ask(const Order& order, int fd, int* received) {
    Answer answer{};
    EXPECT(handover::Send(ends_[0], order, fd));
    EXPECT(handover::Receive(ends_[0], &answer, received));
    return answer;
  }
  uint64_t Good(const Order& order) {
    int none = -1;
    const Answer answer = Ask(order, -1, &none);
    EXPECT_SAME(answer.result, CUDA_SUCCESS);
    return answer.value;
  }

  static CUresult MapAnywhere(const Order& order, uint64_t* out) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, order.bytes, 0, 0, 0));
    *out = address;
    return cuMemMap(address, order.bytes, 0, order.subject, 0);
  }

  static CUresult MapWhole(const Order& order, uint64_t* out) {
    CUDA_ARRAY3D_DESCRIPTOR desc{};
    desc.Width = desc.Height = 1024;
    desc.Depth = order.bytes / (4 * kMiB);
    desc.Format = CU_AD_FORMAT_FLOAT;
    desc.NumChannels = 1;
    desc.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
    CUarrayMapInfo map{};
    map.resourceType = CU_RESOURCE_TYPE_ARRAY;
    OK(cuArray3DCreate_v2(&map.resource.array, &desc));
    map.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    map.memHandle.memHandle = order.subject;
    map.deviceBitMask = 1;
    *out = reinterpret_cast<uintptr_t>(map.resource.array);
    return cuMemMapArrayAsync(&map, 1, nullptr);
  }

  static CUresult InAChild() {
    const pid_t child = fork();
    if (child == 0) {
      MemInfoOfChild();
      std::_Exit(0);
    }
    waitpid(child, nullptr, 0);
    return CUDA_SUCCESS;
  }
  static void MemInfoOfChild() {
    size_t free = 0;
    size_t total = 0;
    cuMemGetInfo_v2(&free, &total);
  }

  static CUresult Obey(const Order& order, int received, int* sent, uint64_t* value) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = kDescriptor;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr block = 0;
    CUresult result = CUDA_SUCCESS;
    switch (order.what) {
      case Do::kCreate:
        prop.allocFlags.usage = static_cast<unsigned short>(order.subject);
        result = cuMemCreate(&handle, order.bytes, &prop, 0);
        *value = handle;
        return result;
      case Do::kExport:
        return cuMemExportToShareableHandle(sent, order.subject, kDescriptor, 0);
      case Do::kImport:
        result = cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(received)),
                                                kDescriptor);
        *value = handle;
        return result;
      case Do::kRelease:
        return cuMemRelease(order.subject);
      case Do::kMap:
        return MapAnywhere(order, value);
      case Do::kUnmap:
        return cuMemUnmap(order.subject, order.bytes);
      case Do::kAllocate:
        result = cuMemAlloc_v2(&block, order.bytes);
        *value = block;
        return result;
      case Do::kFree:
        return cuMemFree_v2(order.subject);
      case Do::kUsed:
        *value = MemInfo().used();
        return CUDA_SUCCESS;
      case Do::kTotal:
        *value = MemInfo().total;
        return CUDA_SUCCESS;
      case Do::kFork:
        return InAChild();
      case Do::kArray:
        return MapWhole(order, value);
      case Do::kGone:
        return cuArrayDestroy(reinterpret_cast<CUarray>(order.subject));
    }
    return CUDA_ERROR_UNKNOWN;
  }

  [[noreturn]] static void Live(int wire) {
    Order order{};
    int received = -1;
    bool begun = false;
    while (handover::Receive(wire, &order, &received)) {
      if (!begun) Begin();
      begun = true;
      Answer answer{};
      int sent = -1;
      answer.result = static_cast<uint64_t>(Obey(order, received, &sent, &answer.value));
      if (received >= 0) close(received);  // before the answer, for it keeps the memory
      EXPECT(handover::Send(wire, answer, sent));
      if (sent >= 0) close(sent);
    }
    std::_Exit(0);
  }

  int ends_[2] = {-1, -1};
  pid_t pid_ = -1;
};

}  // namespace guest
