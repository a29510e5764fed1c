// SPDX-License-Identifier: Apache-2.0
// Stream-ordered pools: what they reserve, keep and give back.
#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

class MemPoolTest : public DriverTest {
 protected:
  static std::uint64_t Attribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    EXPECT_OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
  }
  static std::uint64_t Reserved(CUmemoryPool pool) { return Attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  static std::uint64_t InUse(CUmemoryPool pool) { return Attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

  static CUmemoryPool Default() {
    CUmemoryPool pool = nullptr;
    EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
  }
  static CUmemoryPool Create(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE, std::size_t max = 0) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = types;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = 0;
    props.maxSize = max;
    CUmemoryPool pool = nullptr;
    EXPECT_OK(cuMemPoolCreate(&pool, &props));
    return pool;
  }
  static void SetThreshold(CUmemoryPool pool, cuuint64_t bytes) {
    EXPECT_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
  }
};

TEST_F(MemPoolTest, GivenThreshold0_WhenFreed_ThenReserveKeptUntilSynchronised) {
  RunWithContext([] {
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocAsync(&p, 3 * kMiB, nullptr));
    EXPECT_EQ(Reserved(Default()), 4 * kMiB) << "in chunks of 2 MiB";
    EXPECT_EQ(InUse(Default()), 3 * kMiB);
    EXPECT_EQ(Used(), kContext + 4 * kMiB);
    ASSERT_OK(cuMemFreeAsync(p, nullptr));
    EXPECT_EQ(InUse(Default()), 0U);
    EXPECT_EQ(Used(), kContext + 4 * kMiB);
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_EQ(Used(), kContext);
    EXPECT_EQ(Attribute(Default(), CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 4 * kMiB);
    EXPECT_EQ(Attribute(Default(), CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * kMiB);
    cuuint64_t zero = 0;
    EXPECT_OK(cuMemPoolSetAttribute(Default(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    EXPECT_EQ(Attribute(Default(), CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0U);
  });
}

TEST_F(MemPoolTest, GivenEndlessThreshold_WhenSynchronised_ThenOnlyTrimTakesIt) {
  RunWithContext([] {
    CUdeviceptr p = 0;
    SetThreshold(Default(), UINT64_MAX);
    ASSERT_OK(cuMemAllocAsync(&p, 10 * kMiB, nullptr));
    ASSERT_OK(cuMemFreeAsync(p, nullptr));
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_EQ(Used(), kContext + 10 * kMiB);
    ASSERT_OK(cuMemAllocAsync(&p, 10 * kMiB, nullptr));
    EXPECT_EQ(Used(), kContext + 10 * kMiB) << "reused";
    ASSERT_OK(cuMemFreeAsync(p, nullptr));
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemPoolTrimTo(Default(), 4 * kMiB));
    EXPECT_EQ(Used(), kContext + 4 * kMiB);
    EXPECT_OK(cuMemPoolTrimTo(Default(), 0));
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(MemPoolTest, GivenFreeNotReached_WhenAllocated_ThenOnlyItsStreamReusesIt) {
  RunWithContext([] {
    CUstream blocked = nullptr;
    CUstream other = nullptr;
    CUdeviceptr flag = 0;
    CUdeviceptr p = 0;
    CUdeviceptr q = 0;
    ASSERT_OK(cuStreamCreate(&blocked, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuMemAlloc_v2(&flag, 4));
    const std::uint64_t before = Used();
    SetThreshold(Default(), UINT64_MAX);
    ASSERT_OK(cuMemAllocAsync(&p, 10 * kMiB, blocked));
    ASSERT_OK(cuStreamWaitValue32_v2(blocked, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
    ASSERT_OK(cuMemFreeAsync(p, blocked));
    ASSERT_OK(cuMemAllocAsync(&p, 6 * kMiB, blocked));
    EXPECT_EQ(Used(), before + 10 * kMiB) << "reused in order";
    ASSERT_OK(cuMemAllocAsync(&q, 4 * kMiB, other));
    EXPECT_EQ(Used(), before + 14 * kMiB) << "the rest is not there yet";
    ASSERT_OK(cuStreamWriteValue32_v2(other, flag, 1, 0));
    ASSERT_OK(cuStreamSynchronize(blocked));
    EXPECT_EQ(InUse(Default()), 10 * kMiB);
    EXPECT_OK(cuMemPoolTrimTo(Default(), 0));
    EXPECT_EQ(Used(), before + 10 * kMiB) << "what was reused stays";
    EXPECT_OK(cuMemFreeAsync(p, other));
    EXPECT_OK(cuMemFreeAsync(q, other));
    ASSERT_OK(cuStreamSynchronize(other));
    EXPECT_OK(cuMemPoolTrimTo(Default(), 0));
    EXPECT_EQ(Used(), before);
  });
}

TEST_F(MemPoolTest, GivenCreatedPool_WhenSynchronised_ThenItTrimsLikeDefaultOne) {
  RunWithContext([] {
    const CUmemoryPool pool = Create();
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocFromPoolAsync(&p, kMiB, pool, nullptr));
    EXPECT_EQ(Used(), kContext + 2 * kMiB);
    ASSERT_OK(cuMemFreeAsync(p, nullptr));
    ASSERT_OK(cuStreamSynchronize(nullptr));
    EXPECT_EQ(Used(), kContext);
    EXPECT_OK(cuMemPoolDestroy(pool));
    EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemPoolDestroy(Default()), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(MemPoolTest, GivenLivePointer_WhenPoolDestroyed_ThenMemoryLivesUntilFreed) {
  RunWithContext([] {
    const CUmemoryPool pool = Create();
    SetThreshold(pool, UINT64_MAX);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocFromPoolAsync(&p, kMiB, pool, nullptr));
    EXPECT_OK(cuMemPoolDestroy(pool));
    EXPECT_EQ(Used(), kContext + 2 * kMiB);
    EXPECT_OK(cuMemsetD8_v2(p, 1, kMiB));
    EXPECT_OK(cuMemFree_v2(p));
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(MemPoolTest, GivenUnusedReserve_WhenMemoryShort_ThenTakenBackBeforeOom) {
  RunWithContext([] {
    SetThreshold(Default(), UINT64_MAX);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocAsync(&p, kTotal - kContext, nullptr));
    ASSERT_OK(cuMemFreeAsync(p, nullptr));
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_EQ(Free(), 0U);
    ASSERT_OK(cuMemAlloc_v2(&p, kTotal - kContext)) << "plain memory takes what the pool hoards";
    CUdeviceptr none = 0;
    EXPECT_EQ(cuMemAllocAsync(&none, 512, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(cuMemFree_v2(p));
    ASSERT_OK(cuMemAllocAsync(&p, kTotal - kContext - kMiB, nullptr));
    EXPECT_EQ(Free(), 0U) << "rounded up to a chunk";
    ASSERT_OK(cuMemAllocAsync(&none, kMiB, nullptr)) << "from the pool's own rest";
  });
}

TEST_F(MemPoolTest, GivenLessThanChunkFree_WhenPoolGrows_ThenTakesExactlyTheNeed) {
  RunWithContext([] {
    CUdeviceptr plain = 0;
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&plain, kTotal - kContext - kMiB));
    ASSERT_OK(cuMemAllocAsync(&p, kMiB, nullptr));
    EXPECT_EQ(Free(), 0U);
  });
}

TEST_F(MemPoolTest, GivenAMaximumWhenThePoolWouldPassItThenItRefuses) {
  RunWithContext([] {
    const CUmemoryPool pool = Create(CU_MEM_HANDLE_TYPE_NONE, 4 * kMiB);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocFromPoolAsync(&p, 4 * kMiB, pool, nullptr));
    EXPECT_EQ(cuMemAllocFromPoolAsync(&p, 512, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST_F(MemPoolTest, GivenOtherCurrentPool_WhenAllocated_ThenServesUntilDestroyed) {
  RunWithContext([] {
    const CUmemoryPool pool = Create();
    CUmemoryPool current = nullptr;
    EXPECT_OK(cuDeviceSetMemPool(0, pool));
    EXPECT_EQ(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocAsync(&p, kMiB, nullptr));
    EXPECT_EQ(InUse(pool), kMiB);
    EXPECT_EQ(InUse(Default()), 0U);
    CUmemoryPool owner = nullptr;
    EXPECT_OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    EXPECT_EQ(owner, pool);
    EXPECT_OK(cuMemFreeAsync(p, nullptr));
    EXPECT_EQ(cuMemFreeAsync(p, nullptr), CUDA_ERROR_INVALID_VALUE) << "freed twice";
    EXPECT_OK(cuMemPoolDestroy(pool));
    EXPECT_OK(cuDeviceGetMemPool(&current, 0));
    EXPECT_EQ(current, Default());
  });
}

TEST_F(MemPoolTest, GivenPlainMemory_WhenFreedInStreamOrder_ThenGoneAfterStream) {
  RunWithContext([] {
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&p, kMiB));
    ASSERT_OK(cuMemFreeAsync(p, nullptr));
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(MemPoolTest, GivenExportedPool_WhenPointerImported_ThenBytesSeenUncharged) {
  struct Message {
    CUmemPoolPtrExportData data;
    pid_t pid;
    int fd;
  };
  Pipe to_child;
  Pipe to_parent;
  Child owner([&] {
    UsePrimary(0);
    const CUmemoryPool pool = Create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocFromPoolAsync(&p, 1000, pool, nullptr));
    ASSERT_OK(cuMemsetD8_v2(p, 42, 1000));
    Message message{{}, getpid(), -1};
    ASSERT_OK(cuMemPoolExportToShareableHandle(&message.fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASSERT_OK(cuMemPoolExportPointer(&message.data, p));
    to_child.Send(message);
    to_parent.Receive<int>();
  });
  Child importer([&] {
    auto message = to_child.Receive<Message>();
    UsePrimary(0);
    const std::uint64_t before = simgpu_process_bytes(0, getpid());
    const std::string path = "/proc/" + std::to_string(message.pid) + "/fd/" + std::to_string(message.fd);
    const int fd = open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    CUmemoryPool pool = nullptr;
    ASSERT_OK(cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(std::intptr_t{fd}),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUdeviceptr p = 0;
    EXPECT_EQ(cuMemAllocFromPoolAsync(&p, 512, pool, nullptr), CUDA_ERROR_INVALID_VALUE);
    ASSERT_OK(cuMemPoolImportPointer(&p, pool, &message.data));
    unsigned char seen = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&seen, p + 999, 1));
    EXPECT_EQ(seen, 42);
    EXPECT_EQ(simgpu_process_bytes(0, getpid()), before);
    EXPECT_OK(cuMemFree_v2(p));
    EXPECT_OK(cuMemPoolDestroy(pool));
    to_parent.Send(1);
  });
  EXPECT_EQ(importer.Join(), 0);
  EXPECT_EQ(owner.Join(), 0);
}

}  // namespace
}  // namespace simgpu::testing
