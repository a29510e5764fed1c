// SPDX-License-Identifier: Apache-2.0
// Memory as the driver gives it out: in blocks, which small allocations share. Its books are looked at whenever they
// grow, and the count in the region must not be below them then.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "region/layout.h"
#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

constexpr size_t kBlock = 2 * kMiB;

const hami::region::PrivateArea* g_area = nullptr;

uint64_t Counted() { return __atomic_load_n(&g_area->devices[0].charged, __ATOMIC_SEQ_CST); }

void Audit(int, uint64_t used) {
  if (const uint64_t counted = Counted(); counted < used) {
    Fail(__FILE__, __LINE__, "counted >= what the driver holds", static_cast<long long>(counted),
         static_cast<long long>(used));
  }
}

// From now on, with what is there counted already.
void BeginAudit() {
  const int fd = open(std::getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDONLY | O_CLOEXEC);  // never closed: its locks
  void* const at = mmap(nullptr, hami::region::kFileBytes, PROT_READ, MAP_SHARED, fd, 0);
  EXPECT(at != MAP_FAILED);
  g_area =
      reinterpret_cast<const hami::region::PrivateArea*>(static_cast<const char*>(at) + hami::region::kPrivateOffset);
  Audit(0, Truth());
  simgpu_look_at_books(&Audit, nullptr);
}

void AgreesTo(uint64_t tolerance) {
  const uint64_t truth = Truth();
  Audit(0, truth);
  EXPECT(Counted() - truth <= tolerance);
  EXPECT(MemInfo().used() - truth <= tolerance);
}

// Sizes of every kind: bytes, near a block, odd multiples, whole blocks.
size_t AnySize(std::minstd_rand& random) {
  const auto below = [&](size_t n) { return random() % n; };
  switch (below(6)) {
    case 0:
      return 1 + below(4096);
    case 1:
      return 1 + below(kMiB);
    case 2:
      return kBlock - 2 + below(5);
    case 3:
      return 1 + below(8 * kMiB);
    case 4:
      return (1 + below(4)) * kBlock;
    default:
      return size_t{1} << below(22);
  }
}

class Holder {
 public:
  Holder(unsigned seed, size_t most) : random_(seed), most_(most) { OK(cuStreamCreate(&stream_, CU_STREAM_DEFAULT)); }

  void Step() {
    if (held_.size() > most_ || (!held_.empty() && random_() % 2 == 0)) {
      const size_t at = random_() % held_.size();
      Free(held_[at]);
      held_[at] = held_.back();
      held_.pop_back();
      return;
    }
    Held made{0, random_() % 16};
    const size_t bytes = AnySize(random_);
    size_t pitch = 0;
    CUresult result = CUDA_SUCCESS;
    if (made.how == kPooled) {
      result = cuMemAllocAsync(&made.address, bytes, stream_);
    } else if (made.how == kPitched) {
      result = cuMemAllocPitch_v2(&made.address, &pitch, 1 + bytes % 4096, 1 + bytes / 4096, 4);
    } else if (made.how == kManaged) {
      result = cuMemAllocManaged(&made.address, bytes, CU_MEM_ATTACH_GLOBAL);
    } else {
      result = cuMemAlloc_v2(&made.address, bytes);
    }
    if (result == CUDA_SUCCESS) {
      held_.push_back(made);
    } else {
      EXPECT_SAME(result, CUDA_ERROR_OUT_OF_MEMORY);
    }
  }

  size_t managed() const {
    return static_cast<size_t>(
        std::count_if(held_.begin(), held_.end(), [](const Held& h) { return h.how == kManaged; }));
  }

  void FreeAll() {
    for (const Held& held : held_) Free(held);
    held_.clear();
    OK(cuStreamSynchronize(stream_));
  }

 private:
  enum : size_t { kPooled, kPitched, kManaged, kFreedInOrder };
  struct Held {
    CUdeviceptr address;
    size_t how;
  };

  void Free(const Held& held) {
    if (held.how == kPooled || held.how == kFreedInOrder) {
      OK(cuMemFreeAsync(held.address, stream_));
    } else {
      OK(cuMemFree_v2(held.address));
    }
  }

  std::minstd_rand random_;
  const size_t most_;
  CUstream stream_ = nullptr;
  std::vector<Held> held_;
};

// OPERATIONS SEED THREADS
SCENARIO(any_sizes) {
  const CUcontext context = Begin();
  const size_t operations = std::strtoull(arguments.at(0).c_str(), nullptr, 10);
  const auto seed = static_cast<unsigned>(std::atoi(arguments.at(1).c_str()));
  const size_t threads = std::strtoull(arguments.at(2).c_str(), nullptr, 10);
  std::vector<Holder> holders;
  for (unsigned i = 0; i < threads; ++i) holders.emplace_back(seed * 100 + i, 200 / threads);
  OK(cuCtxSynchronize());
  MemInfo();
  BeginAudit();
  const auto work = [&](Holder& holder) {
    OK(cuCtxSetCurrent(context));
    for (size_t i = 0; i < operations / threads; ++i) {
      holder.Step();
      if (threads == 1 && i % 1024 == 0) {
        OK(cuCtxSynchronize());
        AgreesTo((1 + holder.managed()) * kBlock);  // whose pages this driver counts one by one
      }
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work, std::ref(holders[i]));
  work(holders[0]);
  for (std::thread& other : others) other.join();
  for (Holder& holder : holders) holder.FreeAll();
  OK(cuCtxSynchronize());
  AgreesTo(0);
}

// Without what the driver does not account for in blocks, to the block.
SCENARIO(blocks_agree) {
  Begin();
  OK(cuCtxSynchronize());
  for (int i = 0; i < 3000 && MemInfo().used() != Truth(); ++i) usleep(1000);  // one may have died before
  BeginAudit();
  AgreesTo(0);
  std::minstd_rand random(1);
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 5000; ++i) {
    if (held.size() < 100 || random() % 2 == 0) {
      CUdeviceptr address = 0;
      if (cuMemAlloc_v2(&address, AnySize(random)) == CUDA_SUCCESS) held.push_back(address);
    } else {
      std::swap(held[random() % held.size()], held.back());
      OK(cuMemFree_v2(held.back()));
      held.pop_back();
    }
    AgreesTo(0);
  }
  for (const CUdeviceptr address : held) OK(cuMemFree_v2(address));
  AgreesTo(0);
}

// Sizes as PyTorch's allocator asks for: segments of 2 and 20 MiB, and larger ones in steps of 2 MiB.
SCENARIO(usable_to_99_percent) {
  Begin();
  OK(cuCtxSynchronize());
  BeginAudit();
  const size_t limit = MemInfo().total;
  std::minstd_rand random(7);
  std::vector<CUdeviceptr> held;
  CUdeviceptr address = 0;
  for (size_t bytes = kBlock; cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS;) {
    held.push_back(address);
    const size_t kind = random() % 3;
    bytes = kind == 0 ? kBlock : kind == 1 ? 20 * kMiB : (5 + random() % 30) * kBlock;
    while (bytes > kBlock && bytes > Room()) bytes -= kBlock;
  }
  EXPECT(Truth() <= limit);
  EXPECT(Truth() >= limit / 100 * 99);
  AgreesTo(0);
  for (const CUdeviceptr one : held) OK(cuMemFree_v2(one));
}

// A block that is there has room for another small one, however little is left of the limit.
SCENARIO(small_one_into_a_block_that_is_there) {
  Begin();
  OK(cuCtxSynchronize());
  BeginAudit();
  CUdeviceptr small = 0;
  CUdeviceptr address = 0;
  OK(cuMemAlloc_v2(&small, 1));
  OK(cuMemAlloc_v2(&address, Room() / kBlock * kBlock));
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < 100; ++i) {
    held.push_back(0);
    OK(cuMemAlloc_v2(&held.back(), 4096));
  }
  CUdeviceptr refused = 7;
  OOM(cuMemAlloc_v2(&refused, kBlock));
  OOM(cuMemAlloc_v2(&refused, kBlock - 1));
  EXPECT_SAME(refused, 7);
  EXPECT(Truth() <= MemInfo().total);
  AgreesTo(0);
  for (const CUdeviceptr one : held) OK(cuMemFree_v2(one));
  OK(cuMemFree_v2(small));
  OK(cuMemFree_v2(address));
  AgreesTo(0);
}

// What a context's own memory grows by shows in the region once the program has synchronised.
SCENARIO(context_grows_beside_allocations) {
  Begin();
  const CUfunction local = KernelOf(LoadImage("simgpu-image 1\nkernel k\n  local 4096\n"), "k");
  const CUfunction allocates = KernelOf(LoadImage("simgpu-image 1\nkernel k\n  allocates\n"), "k");
  MemInfo();
  BeginAudit();
  simgpu_look_at_books(nullptr, nullptr);  // launches are the driver's own functions: seen at the next synchronisation
  const auto agrees = [](uint64_t at_least) {
    static uint64_t before = 0;
    usleep(1'050'000);  // the pace of measurements that nothing asked for
    OK(cuCtxSynchronize());
    Audit(0, Truth());
    EXPECT(Counted() - Truth() <= kBlock);
    EXPECT(Counted() >= before + at_least);
    before = Counted();
  };
  agrees(0);
  CUstream stream = nullptr;
  for (int i = 0; i < 64; ++i) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  agrees(34 * kMiB);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  OK(cuGraphCreate(&graph, 0));
  for (int i = 0; i < 1000; ++i) OK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  agrees(2 * kMiB);
  OK(cuLaunchKernel(allocates, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  agrees(10 * kMiB);
  OK(cuLaunchKernel(local, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  agrees(700 * kMiB);
}

}  // namespace
}  // namespace guest
