// SPDX-License-Identifier: Apache-2.0
// Several processes on one GPU: whose memory it is, and what death and fork do to it.
#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

class ShareTest : public DriverTest {
 protected:
  static CUmemAllocationProp Prop(CUmemAllocationHandleType types) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = types;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = 0;
    return prop;
  }

  // Maps the handle somewhere with access for device 0.
  static CUdeviceptr Map(CUmemGenericAllocationHandle handle, std::size_t size) {
    CUdeviceptr p = 0;
    EXPECT_OK(cuMemAddressReserve(&p, size, 0, 0, 0));
    EXPECT_OK(cuMemMap(p, size, 0, handle, 0));
    CUmemAccessDesc access{};
    access.location = Prop(CU_MEM_HANDLE_TYPE_NONE).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_OK(cuMemSetAccess(p, size, &access, 1));
    return p;
  }
};

TEST_F(ShareTest, GivenTwoProcessesWhenOneIsKilledThenItsMemoryIsFree) {
  Pipe ready;
  Child victim([&] {
    UsePrimary(0);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&p, 500 * kMiB));
    ready.Send(1);
    pause();
  });
  ready.Receive<int>();
  Run([&] {
    UsePrimary(0);
    EXPECT_EQ(Used(), 2 * kContext + 500 * kMiB);
    CUdeviceptr p = 0;
    EXPECT_EQ(cuMemAlloc_v2(&p, 500 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    victim.Kill();
    // The victim is our parent's child: it is dead as soon as the signal was delivered, reaped or not.
    while (cuMemAlloc_v2(&p, 500 * kMiB) != CUDA_SUCCESS) usleep(100);
    EXPECT_EQ(Used(), kContext + 500 * kMiB);
  });
  EXPECT_EQ(victim.Join(), 128 + SIGKILL);
}

TEST_F(ShareTest, GivenAnIpcHandleWhenOpenedThenBothSeeTheBytesAndTheOwnerPays) {
  Pipe handles;
  Pipe done;
  Child owner([&] {
    UsePrimary(0);
    CUdeviceptr first = 0;
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&first, 700));
    ASSERT_OK(cuMemAlloc_v2(&p, 700));
    ASSERT_OK(cuMemsetD8_v2(p, 3, 700));
    CUipcMemHandle handle{};
    ASSERT_OK(cuIpcGetMemHandle(&handle, p));
    CUdeviceptr own = 0;
    EXPECT_EQ(cuIpcOpenMemHandle_v2(&own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
    handles.Send(handle);
    EXPECT_EQ(done.Receive<int>(), 1);
    unsigned char seen[700] = {};
    EXPECT_OK(cuMemcpyDtoH_v2(seen, p, 700));
    EXPECT_EQ(seen[0], 9);
    EXPECT_EQ(seen[699], 9);
  });
  Run([&] {
    UsePrimary(0);
    const auto handle = handles.Receive<CUipcMemHandle>();
    const std::uint64_t before = Used();
    CUdeviceptr p = 0;
    CUdeviceptr again = 0;
    ASSERT_OK(cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ASSERT_OK(cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT_EQ(p, again);
    EXPECT_EQ(Used(), before);
    unsigned char seen = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&seen, p + 699, 1));
    EXPECT_EQ(seen, 3);
    EXPECT_OK(cuMemsetD8_v2(p, 9, 700));
    EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuIpcCloseMemHandle(p));
    EXPECT_OK(cuIpcCloseMemHandle(p));
    EXPECT_EQ(cuIpcCloseMemHandle(p), CUDA_ERROR_INVALID_VALUE);
    done.Send(1);
  });
  EXPECT_EQ(owner.Join(), 0);
  Run([&] {
    UsePrimary(0);
    CUipcMemHandle junk{};
    CUdeviceptr p = 0;
    EXPECT_EQ(cuIpcOpenMemHandle_v2(&p, junk, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(ShareTest, GivenAnIpcHandleOfFreedMemory_WhenOpened_ThenItIsRefused) {
  Pipe handles;
  Pipe done;
  Child owner([&] {
    UsePrimary(0);
    for (const std::size_t size : {std::size_t{700}, 3 * kMiB}) {
      CUdeviceptr p = 0;
      ASSERT_OK(cuMemAlloc_v2(&p, size));
      CUipcMemHandle handle{};
      ASSERT_OK(cuIpcGetMemHandle(&handle, p));
      ASSERT_OK(cuMemFree_v2(p));
      ASSERT_OK(cuMemAlloc_v2(&p, size));  // there again, and somebody else's
      handles.Send(handle);
      done.Receive<int>();
      ASSERT_OK(cuIpcGetMemHandle(&handle, p));
      handles.Send(handle);
      done.Receive<int>();
    }
  });
  Run([&] {
    UsePrimary(0);
    for (int i = 0; i < 2; ++i) {
      CUdeviceptr p = 0;
      EXPECT_EQ(cuIpcOpenMemHandle_v2(&p, handles.Receive<CUipcMemHandle>(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                CUDA_ERROR_INVALID_VALUE);
      done.Send(1);
      EXPECT_OK(cuIpcOpenMemHandle_v2(&p, handles.Receive<CUipcMemHandle>(), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
      done.Send(1);
    }
  });
  EXPECT_EQ(owner.Join(), 0);
}

TEST_F(ShareTest, GivenVmmAllocation_WhenHandleReleased_ThenMappingHoldsMemory) {
  RunWithContext([] {
    const CUmemAllocationProp prop = Prop(CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_OK(cuMemCreate(&handle, 4 * kMiB, &prop, 0));
    EXPECT_EQ(Used(), kContext + 4 * kMiB);
    const CUdeviceptr p = Map(handle, 4 * kMiB);
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Used(), kContext + 4 * kMiB);
    EXPECT_OK(cuMemsetD8_v2(p, 5, 4 * kMiB));
    CUmemGenericAllocationHandle retained = 0;
    EXPECT_OK(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(p + kMiB)));
    EXPECT_EQ(retained, handle);
    EXPECT_EQ(cuMemAddressFree(p, 4 * kMiB), CUDA_ERROR_INVALID_VALUE) << "still mapped";
    EXPECT_OK(cuMemUnmap(p, 4 * kMiB));
    EXPECT_EQ(Used(), kContext + 4 * kMiB) << "the retained handle holds it";
    const CUdeviceptr q = Map(retained, 4 * kMiB);
    unsigned char seen = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&seen, q + 4 * kMiB - 1, 1));
    EXPECT_EQ(seen, 5);
    EXPECT_OK(cuMemUnmap(q, 4 * kMiB));
    EXPECT_OK(cuMemRelease(retained));
    EXPECT_EQ(Used(), kContext);
    EXPECT_OK(cuMemAddressFree(p, 4 * kMiB));
    EXPECT_OK(cuMemAddressFree(q, 4 * kMiB));
  });
}

TEST_F(ShareTest, GivenNoAccessWhenAMappingIsCopiedThenItIsRefused) {
  RunWithContext([] {
    const CUmemAllocationProp prop = Prop(CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_OK(cuMemCreate(&handle, 2 * kMiB, &prop, 0));
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAddressReserve(&p, 4 * kMiB, 0, 0, 0));
    EXPECT_EQ(cuMemMap(p + kMiB, 2 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CUmemGenericAllocationHandle wide = 0;
    ASSERT_OK(cuMemCreate(&wide, 4 * kMiB, &prop, 0));
    EXPECT_EQ(cuMemMap(p, 2 * kMiB, 2 * kMiB, wide, 0), CUDA_ERROR_INVALID_VALUE) << "only from the beginning";
    ASSERT_OK(cuMemMap(p, 2 * kMiB, 0, handle, 0));
    EXPECT_EQ(cuMemMap(p, 2 * kMiB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "taken";
    EXPECT_EQ(cuMemsetD8_v2(p, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(cuMemSetAccess(p, 4 * kMiB, &access, 1), CUDA_ERROR_INVALID_VALUE) << "half of it is not mapped";
    EXPECT_OK(cuMemSetAccess(p, 2 * kMiB, &access, 1));
    EXPECT_OK(cuMemsetD8_v2(p, 1, 2 * kMiB));
    EXPECT_EQ(cuMemsetD8_v2(p, 1, 2 * kMiB + 1), CUDA_ERROR_INVALID_VALUE);
    unsigned long long flags = 0;
    EXPECT_OK(cuMemGetAccess(&flags, &prop.location, p));
    EXPECT_EQ(flags, 3U);
    CUmemAllocationProp wrong = prop;
    wrong.location.id = 7;
    EXPECT_EQ(cuMemCreate(&handle, 2 * kMiB, &wrong, 0), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuMemCreate(&handle, kMiB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemCreate(&handle, 2 * kTotal, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  });
}

TEST_F(ShareTest, GivenExportedHandle_WhenOwnerDies_ThenImporterKeepsOneCharge) {
  struct Message {
    pid_t pid;
    int fd;
  };
  Pipe exported;
  Pipe imported;
  Child owner([&] {
    UsePrimary(0);
    const CUmemAllocationProp prop = Prop(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_OK(cuMemCreate(&handle, 100 * kMiB, &prop, 0));
    ASSERT_OK(cuMemsetD8_v2(Map(handle, 100 * kMiB), 6, 100));
    Message message{getpid(), -1};
    ASSERT_OK(cuMemExportToShareableHandle(&message.fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    exported.Send(message);
    imported.Receive<int>();
  });
  const auto message = exported.Receive<Message>();
  const std::string path = "/proc/" + std::to_string(message.pid) + "/fd/" + std::to_string(message.fd);
  const int fd = open(path.c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  Run([&] {
    UsePrimary(0);
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_OK(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{fd}),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT_EQ(Used(), 2 * kContext + 100 * kMiB);
    imported.Send(1);
    EXPECT_EQ(owner.pid() > 0, true);
    while (Used() != kContext + 100 * kMiB) usleep(100);
    const CUdeviceptr p = Map(handle, 100 * kMiB);
    unsigned char seen = 0;
    EXPECT_OK(cuMemcpyDtoH_v2(&seen, p + 99, 1));
    EXPECT_EQ(seen, 6);
    EXPECT_OK(cuMemUnmap(p, 100 * kMiB));
    EXPECT_EQ(Used(), kContext + 100 * kMiB);
    EXPECT_OK(cuMemRelease(handle));
    EXPECT_EQ(Used(), kContext);
  });
  EXPECT_EQ(owner.Join(), 0);
  close(fd);
}

TEST_F(ShareTest, GivenInitialised_WhenForked_ThenChildToldAndParentUnharmed) {
  Run([] {
    UsePrimary(0);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAlloc_v2(&p, kMiB));
    ASSERT_OK(cuMemsetD8_v2(p, 1, 16));
    Child child([&] {
      EXPECT_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
      EXPECT_EQ(cuMemFree_v2(p), CUDA_ERROR_NOT_INITIALIZED);
      EXPECT_EQ(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    });
    EXPECT_EQ(child.Join(), 0);
    EXPECT_EQ(Used(), kContext + kMiB);
    EXPECT_OK(cuMemFree_v2(p));
  });
}

TEST_F(ShareTest, GivenAParentThatDidNotInitialiseWhenItForksThenBothMay) {
  Run([] {
    int version = 0;
    EXPECT_OK(cuDriverGetVersion(&version));
    EXPECT_EQ(version, 13000);
    Child child([] {
      UsePrimary(0);
      EXPECT_EQ(Used(), kContext);
    });
    EXPECT_EQ(child.Join(), 0);
    UsePrimary(0);
    EXPECT_EQ(Used(), kContext) << "the child's context went with it";
  });
}

}  // namespace
}  // namespace simgpu::testing
