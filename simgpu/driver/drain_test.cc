// SPDX-License-Identifier: Apache-2.0
// Memory is not taken away under work that uses it: whoever takes it waits. On the virtual clock nothing of a stream
// happens before somebody waits, so that work which is done afterwards was waited for.
#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

class DrainTest : public TimedTest {
 protected:
  static constexpr std::size_t kSize = 2 * kMiB;

  // A stream with a fill of `p` that comes only after a kernel.
  static CUstream FillLater(const Gpu& gpu, CUdeviceptr p) {
    CUstream s = NewStream();
    EXPECT_OK(gpu.Launch(s, kMilli));
    EXPECT_OK(cuMemsetD8Async(p, 7, kSize, s));
    EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    return s;
  }

  static CUdeviceptr Map(CUmemGenericAllocationHandle* handle) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    EXPECT_OK(cuMemCreate(handle, kSize, &prop, 0));
    CUdeviceptr p = 0;
    EXPECT_OK(cuMemAddressReserve(&p, kSize, 0, 0, 0));
    EXPECT_OK(cuMemMap(p, kSize, 0, *handle, 0));
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_OK(cuMemSetAccess(p, kSize, &access, 1));
    return p;
  }
};

TEST_F(DrainTest, GivenWorkOnAMapping_WhenItIsUnmapped_ThenTheWorkIsDone) {
  RunWithContext([] {
    const Gpu gpu;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr p = Map(&handle);
    CUstream s = FillLater(gpu, p);
    EXPECT_OK(cuMemUnmap(p, kSize));
    EXPECT_OK(cuStreamQuery(s));
  });
}

TEST_F(DrainTest, GivenPinnedMemory_WhenFreedOrUnregistered_ThenItsWorkIsDone) {
  RunWithContext([] {
    const Gpu gpu;
    void* pinned = nullptr;
    ASSERT_OK(cuMemAllocHost_v2(&pinned, kSize));
    CUstream s = FillLater(gpu, reinterpret_cast<CUdeviceptr>(pinned));
    EXPECT_OK(cuMemFreeHost(pinned));
    EXPECT_OK(cuStreamQuery(s));

    void* own = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(own, MAP_FAILED);
    ASSERT_OK(cuMemHostRegister_v2(own, kSize, 0));
    s = FillLater(gpu, reinterpret_cast<CUdeviceptr>(own));
    EXPECT_OK(cuMemHostUnregister(own));
    EXPECT_OK(cuStreamQuery(s));
  });
}

TEST_F(DrainTest, GivenMemoryOfAnotherProcess_WhenClosed_ThenItsWorkIsDone) {
  Pipe handles;
  Pipe done;
  Child owner([&] {
    UsePrimary(0);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&p, kSize));
    CUipcMemHandle handle{};
    ASSERT_OK(cuIpcGetMemHandle(&handle, p));
    handles.Send(handle);
    done.Receive<int>();
  });
  RunWithContext([&] {
    const Gpu gpu;
    CUdeviceptr p = 0;
    ASSERT_OK(cuIpcOpenMemHandle_v2(&p, handles.Receive<CUipcMemHandle>(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CUstream s = FillLater(gpu, p);
    EXPECT_OK(cuIpcCloseMemHandle(p));
    EXPECT_OK(cuStreamQuery(s));
  });
  done.Send(1);
  EXPECT_EQ(owner.Join(), 0);
}

TEST_F(DrainTest, GivenMemoryOfAnotherContext_WhenFreed_ThenThatOnesWorkIsDone) {
  RunWithContext([] {
    const Gpu gpu;
    CUcontext first = nullptr;
    ASSERT_OK(cuCtxGetCurrent(&first));
    CUcontext second = nullptr;
    ASSERT_OK(cuCtxCreate_v4(&second, nullptr, 0, 0));
    for (const bool managed : {false, true}) {
      ASSERT_OK(cuCtxSetCurrent(first));
      CUdeviceptr p = 0;
      ASSERT_OK(managed ? cuMemAllocManaged(&p, kSize, CU_MEM_ATTACH_GLOBAL) : cuMemAlloc_v2(&p, kSize));
      CUstream s = FillLater(gpu, p);
      ASSERT_OK(cuCtxSetCurrent(second));
      EXPECT_OK(cuMemFree_v2(p));
      EXPECT_OK(cuStreamQuery(s));
    }
  });
}

TEST_F(DrainTest, GivenGreenContext_WhenPrimaryIsRemade_ThenItsEndSparesNewOne) {
  Run([] {
    UsePrimary(0);
    CUdevResource sms{};
    ASSERT_OK(cuDeviceGetDevResource(0, &sms, CU_DEV_RESOURCE_TYPE_SM));
    CUdevResourceDesc desc = nullptr;
    ASSERT_OK(cuDevResourceGenerateDesc(&desc, &sms, 1));
    CUgreenCtx green = nullptr;
    ASSERT_OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ASSERT_OK(cuDevicePrimaryCtxReset_v2(0));
    UsePrimary(0);
    EXPECT_OK(cuGreenCtxDestroy(green));
    CUdeviceptr p = 0;
    EXPECT_OK(cuMemAlloc_v2(&p, 100));
    EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  });
}

TEST_F(DrainTest, GivenLibraryHoldingPrimary_WhenReset_ThenUnloadSparesNewOne) {
  Run([] {
    ASSERT_OK(cuInit(0));
    static constexpr char kManaged[] = "simgpu-image 1\nkernel k\n  param 8\nglobal m 8 managed = 01\n";
    CUlibrary library = nullptr;
    ASSERT_OK(cuLibraryLoadData(&library, kManaged, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUdeviceptr m = 0;
    std::size_t size = 0;
    ASSERT_OK(cuLibraryGetManaged(&m, &size, library, "m"));
    ASSERT_OK(cuDevicePrimaryCtxReset_v2(0));
    ASSERT_OK(cuLibraryGetManaged(&m, &size, library, "m"));
    EXPECT_EQ(*reinterpret_cast<unsigned char*>(m), 1);
    ASSERT_OK(cuDevicePrimaryCtxReset_v2(0));
    UsePrimary(0);
    EXPECT_OK(cuLibraryUnload(library));
    EXPECT_OK(cuMemAlloc_v2(&m, 100));
  });
}

}  // namespace
}  // namespace simgpu::testing
