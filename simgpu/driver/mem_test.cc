// SPDX-License-Identifier: Apache-2.0
// What every way to allocate costs in the machine's books, and that all of it comes back.
#include <vector>

#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

class MemTest : public DriverTest {};

// Expects that `make` charges exactly `bytes` and that `undo` gives them back.
void ExpectCost(std::uint64_t bytes, const std::function<void()>& make, const std::function<void()>& undo) {
  const std::uint64_t before = simgpu_used_bytes(0);
  make();
  EXPECT_EQ(simgpu_used_bytes(0) - before, bytes);
  undo();
  EXPECT_EQ(simgpu_used_bytes(0), before);
}

TEST_F(MemTest, GivenContext_WhenRetained_ThenChargedOnceAndGivenBack) {
  Run([] {
    ASSERT_OK(cuInit(0));
    EXPECT_EQ(Used(), 0U);
    CUcontext a = nullptr;
    CUcontext b = nullptr;
    EXPECT_OK(cuDevicePrimaryCtxRetain(&a, 0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&b, 0));
    EXPECT_EQ(a, b);
    EXPECT_EQ(Used(), kContext);
    EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT_EQ(Used(), kContext);
    EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT_EQ(Used(), 0U);
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(MemTest, GivenPlainMemoryWhenAllocatedThenItIsRoundedTo512Bytes) {
  RunWithContext([] {
    for (const std::size_t size : {std::size_t{1}, std::size_t{512}, std::size_t{513}, kMiB, kMiB + 1, 3 * kMiB + 5}) {
      CUdeviceptr p = 0;
      ExpectCost((size + 511) / 512 * 512, [&] { ASSERT_OK(cuMemAlloc_v2(&p, size)); },
                 [&] { ASSERT_OK(cuMemFree_v2(p)); });
      EXPECT_EQ(p % 512, 0U);
    }
  });
}

TEST_F(MemTest, GivenAPitchWhenAllocatedThenRowsAreMultiplesOf512) {
  RunWithContext([] {
    CUdeviceptr p = 0;
    std::size_t pitch = 0;
    ExpectCost(
        1024 * 7, [&] { ASSERT_OK(cuMemAllocPitch_v2(&p, &pitch, 600, 7, 4)); }, [&] { ASSERT_OK(cuMemFree_v2(p)); });
    EXPECT_EQ(pitch, 1024U);
    EXPECT_EQ(cuMemAllocPitch_v2(&p, &pitch, 600, 7, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAllocPitch_v2(&p, &pitch, SIZE_MAX, 2, 4), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemAllocPitch_v2(&p, &pitch, std::size_t{1} << 39, std::size_t{1} << 40, 4), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST_F(MemTest, GivenArraysWhenCreatedThenTheirPaddedStorageIsCharged) {
  RunWithContext([] {
    CUDA_ARRAY3D_DESCRIPTOR desc{};
    desc.Width = 100;
    desc.Height = 9;
    desc.Depth = 2;
    desc.Format = CU_AD_FORMAT_FLOAT;
    desc.NumChannels = 1;
    CUarray array = nullptr;
    // 400 bytes a row are 448, 9 rows are 16, 2 slices.
    ExpectCost(
        448 * 16 * 2, [&] { ASSERT_OK(cuArray3DCreate_v2(&array, &desc)); }, [&] { ASSERT_OK(cuArrayDestroy(array)); });
    EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);

    CUDA_ARRAY_DESCRIPTOR flat{};
    flat.Width = 1000;
    flat.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    flat.NumChannels = 4;
    ExpectCost(
        4096, [&] { ASSERT_OK(cuArrayCreate_v2(&array, &flat)); }, [&] { ASSERT_OK(cuArrayDestroy(array)); });

    CUmipmappedArray mipmap = nullptr;
    CUarray level = nullptr;
    desc.Width = desc.Height = 64;
    desc.Depth = 0;
    ExpectCost(
        64 * 4 * 64 + 128 * 32 + 64 * 16, [&] { ASSERT_OK(cuMipmappedArrayCreate(&mipmap, &desc, 3)); },
        [&] {
          EXPECT_OK(cuMipmappedArrayGetLevel(&level, mipmap, 2));
          EXPECT_EQ(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
          EXPECT_EQ(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
          ASSERT_OK(cuMipmappedArrayDestroy(mipmap));
        });
  });
}

TEST_F(MemTest, GivenManaged_WhenPreferredLocationChanges_ThenChargeMoves) {
  RunWithContext([] {
    CUdeviceptr p = 0;
    ExpectCost(
        5 * kMiB, [&] { ASSERT_OK(cuMemAllocManaged(&p, 5 * kMiB, CU_MEM_ATTACH_GLOBAL)); },
        [&] {
          EXPECT_OK(cuMemAdvise(p, 5 * kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
          EXPECT_EQ(Used(0), kContext);
          CUmemLocation second{};
          second.type = CU_MEM_LOCATION_TYPE_DEVICE;
          second.id = 1;
          EXPECT_OK(cuMemAdvise_v2(p, 2 * kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, second));
          EXPECT_EQ(Used(0), kContext);
          EXPECT_EQ(Used(1), 2 * kMiB);
          EXPECT_OK(cuMemPrefetchAsync(p, 5 * kMiB, 0, nullptr));
          EXPECT_OK(cuCtxSynchronize());
          EXPECT_EQ(Used(0), kContext + 5 * kMiB);
          EXPECT_EQ(Used(1), 0U);
          ASSERT_OK(cuMemFree_v2(p));
        });
  });
}

TEST_F(MemTest, GivenManagedAboveDeviceSize_WhenAllocated_ThenRestIsOnHost) {
  RunWithContext([] {
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAllocManaged(&p, 3 * kTotal, CU_MEM_ATTACH_GLOBAL));
    EXPECT_EQ(Free(), 0U);
    EXPECT_OK(cuMemFree_v2(p));
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(MemTest, GivenHostMemoryWhenPinnedThenItCostsNoDeviceMemory) {
  RunWithContext([] {
    void* p = nullptr;
    ASSERT_OK(cuMemHostAlloc(&p, 10 * kMiB, CU_MEMHOSTALLOC_PORTABLE));
    EXPECT_EQ(Used(), kContext);
    unsigned flags = 0;
    EXPECT_OK(cuMemHostGetFlags(&flags, p));
    EXPECT_EQ(flags & CU_MEMHOSTALLOC_PORTABLE, unsigned{CU_MEMHOSTALLOC_PORTABLE});
    CUdeviceptr mapped = 0;
    EXPECT_OK(cuMemHostGetDevicePointer_v2(&mapped, p, 0));
    EXPECT_EQ(mapped, reinterpret_cast<CUdeviceptr>(p));
    EXPECT_OK(cuMemFreeHost(p));
    EXPECT_EQ(cuMemFreeHost(p), CUDA_ERROR_INVALID_VALUE);

    std::vector<char> own(4096);
    EXPECT_OK(cuMemHostRegister_v2(own.data(), own.size(), 0));
    EXPECT_EQ(cuMemHostRegister_v2(own.data() + 8, 16, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_OK(cuMemHostUnregister(own.data()));
    EXPECT_EQ(cuMemHostUnregister(own.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  });
}

TEST_F(MemTest, GivenExternalMemory_WhenImported_ThenChargedUntilDestroyed) {
  RunWithContext([] {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc{};
    desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    desc.handle.fd = memfd_create("test", 0);
    desc.size = 3 * kMiB;
    CUexternalMemory memory = nullptr;
    EXPECT_EQ(cuImportExternalMemory(&memory, &desc), CUDA_ERROR_INVALID_VALUE) << "the file is shorter than that";
    ASSERT_EQ(ftruncate(desc.handle.fd, static_cast<off_t>(desc.size)), 0);
    ExpectCost(
        3 * kMiB, [&] { ASSERT_OK(cuImportExternalMemory(&memory, &desc)); },
        [&] {
          CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
          buffer.offset = 100;
          buffer.size = 1000;
          CUdeviceptr p = 0;
          ASSERT_OK(cuExternalMemoryGetMappedBuffer(&p, memory, &buffer));
          EXPECT_OK(cuMemsetD8_v2(p, 7, 1000));
          char seen = 0;
          EXPECT_EQ(pread(desc.handle.fd, &seen, 1, 1099), 1);
          EXPECT_EQ(seen, 7);
          EXPECT_OK(cuMemFree_v2(p));
          ASSERT_OK(cuDestroyExternalMemory(memory));
        });
  });
}

TEST_F(MemTest, GivenFullDevice_WhenOneUnitMoreAsked_ThenRefusedNothingLeft) {
  RunWithContext([] {
    CUdeviceptr big = 0;
    CUdeviceptr last = 0;
    CUdeviceptr none = 0;
    ASSERT_OK(cuMemAlloc_v2(&big, kTotal - kContext - 512));
    ASSERT_OK(cuMemAlloc_v2(&last, 512));
    EXPECT_EQ(Free(), 0U);
    EXPECT_EQ(cuMemAlloc_v2(&none, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(none, 0U);
    std::size_t free_bytes = 1;
    std::size_t total = 0;
    EXPECT_OK(cuMemGetInfo_v2(&free_bytes, &total));
    EXPECT_EQ(free_bytes, 0U);
    EXPECT_EQ(total, kTotal);
    EXPECT_OK(cuMemFree_v2(last));
    EXPECT_OK(cuMemAlloc_v2(&last, 512));
  });
}

TEST_F(MemTest, GivenACreatedContextWhenDestroyedThenAllOfItsMemoryIsFree) {
  Run([] {
    ASSERT_OK(cuInit(0));
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxCreate_v2(&ctx, 0, 0));
    CUdeviceptr p = 0;
    void* host = nullptr;
    EXPECT_OK(cuMemAlloc_v2(&p, kMiB));
    EXPECT_OK(cuMemAllocManaged(&p, kMiB, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuMemAllocAsync(&p, kMiB, nullptr));
    EXPECT_OK(cuMemAllocHost_v2(&host, kMiB));
    CUDA_ARRAY_DESCRIPTOR desc{};
    desc.Width = 64;
    desc.Format = CU_AD_FORMAT_FLOAT;
    desc.NumChannels = 1;
    CUarray array = nullptr;
    EXPECT_OK(cuArrayCreate_v2(&array, &desc));
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 100 * kMiB));
    EXPECT_GT(Used(), kContext + 92 * kMiB);
    EXPECT_OK(cuCtxDestroy_v2(ctx));
    EXPECT_EQ(Used(), 0U);
    EXPECT_EQ(cuCtxDestroy_v2(ctx), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(MemTest, GivenContextThatDiedElsewhere_WhenUsed_ThenErrorAndNoCrash) {
  Run([] {
    ASSERT_OK(cuInit(0));
    CUcontext ctx = nullptr;
    CUdeviceptr p = 0;
    ASSERT_OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    ASSERT_OK(cuCtxSetCurrent(ctx));
    EXPECT_OK(cuMemAlloc_v2(&p, kMiB));
    EXPECT_OK(cuDevicePrimaryCtxReset_v2(0));
    EXPECT_EQ(Used(), 0U);
    EXPECT_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    EXPECT_OK(cuMemAlloc_v2(&p, 1)) << "the handle means the new context";
    EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(&p)), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(MemTest, GivenGreenContext_WhenCreated_ThenContextCostAndShareOfSms) {
  Run([] {
    ASSERT_OK(cuInit(0));
    CUdevResource whole{};
    ASSERT_OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
    CUdevResource part{};
    CUdevResource rest{};
    unsigned groups = 1;
    ASSERT_OK(cuDevSmResourceSplitByCount(&part, &groups, &whole, &rest, 0, 9));
    EXPECT_EQ(groups, 1U);
    EXPECT_EQ(part.sm.smCount, 10U);
    EXPECT_EQ(rest.sm.smCount, whole.sm.smCount - 10);
    CUdevResourceDesc desc = nullptr;
    ASSERT_OK(cuDevResourceGenerateDesc(&desc, &part, 1));
    CUgreenCtx green = nullptr;
    ASSERT_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT_EQ(Used(), 2 * kContext) << "itself and the primary context";
    CUcontext ctx = nullptr;
    EXPECT_OK(cuCtxFromGreenCtx(&ctx, green));
    EXPECT_OK(cuCtxSetCurrent(ctx));
    CUdeviceptr p = 0;
    EXPECT_OK(cuMemAlloc_v2(&p, kMiB));
    EXPECT_OK(cuGreenCtxDestroy(green));
    EXPECT_EQ(Used(), 0U);
    EXPECT_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST_F(MemTest, GivenTenThousandAllocations_WhenFreedAnyOrder_ThenBooksExact) {
  RunWithContext([] {
    std::vector<CUdeviceptr> live(10000);
    for (std::size_t i = 0; i < live.size(); ++i) ASSERT_OK(cuMemAlloc_v2(&live[i], 1 + i * 7 % 9000));
    for (std::size_t i = 0; i < live.size(); i += 2) ASSERT_OK(cuMemFree_v2(live[i]));
    for (std::size_t i = 1; i < live.size(); i += 2) {
      CUdeviceptr base = 0;
      std::size_t size = 0;
      const std::size_t last = 1 + i * 7 % 9000 - 1;
      ASSERT_OK(cuMemGetAddressRange_v2(&base, &size, live[i] + last));
      ASSERT_EQ(base, live[i]);
      ASSERT_EQ(size, last + 1);
      ASSERT_OK(cuMemFree_v2(live[i]));
    }
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(MemTest, GivenWrongArgumentsThenTheDriversErrorsComeBack) {
  Run([] {
    CUdeviceptr p = 0;
    std::size_t size = 0;
    int number = 0;
    EXPECT_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    ASSERT_OK(cuInit(0));
    EXPECT_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemGetInfo_v2(&size, &size), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuMemFree_v2(0x1000), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuDeviceGet(&number, 2), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGet(&number, -1), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGetCount(nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuDeviceTotalMem_v2(&size, 9), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 9), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuCtxPopCurrent_v2(nullptr), CUDA_ERROR_INVALID_CONTEXT);
    UsePrimary(0);
    EXPECT_EQ(cuMemAlloc_v2(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAlloc_v2(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemFree_v2(0x1000), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree_v2(0));
    ASSERT_OK(cuMemAlloc_v2(&p, 1024));
    EXPECT_EQ(cuMemFree_v2(p + 512), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemFree_v2(p));
    EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemAllocManaged(&p, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemGetAddressRange_v2(&p, &size, 0x1000), CUDA_ERROR_NOT_FOUND);
    EXPECT_OK(cuMemGetInfo_v2(nullptr, nullptr));
  });
}

TEST_F(MemTest, GivenUnknownHostMemory_WhenQueried_ThenListZeroSingleRefused) {
  RunWithContext([] {
    int here = 0;
    const auto address = reinterpret_cast<CUdeviceptr>(&here);
    unsigned type = 9;
    int ordinal = 9;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* values[] = {&type, &ordinal};
    EXPECT_OK(cuPointerGetAttributes(2, names, values, address));
    EXPECT_EQ(type, 0U);
    EXPECT_EQ(ordinal, -2);
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_ERROR_INVALID_VALUE);

    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&p, 1000));
    EXPECT_OK(cuPointerGetAttributes(2, names, values, p + 999));
    EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
    EXPECT_EQ(ordinal, 0);
    EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1000), CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
}  // namespace simgpu::testing
