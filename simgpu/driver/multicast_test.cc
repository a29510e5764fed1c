// SPDX-License-Identifier: Apache-2.0
// Multicast objects: which devices make a team, and how long what is bound to them counts.
#include <atomic>
#include <thread>

#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

constexpr std::size_t kPiece = 4 * kMiB;

CUmemAllocationProp MemoryOf(int ordinal, CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = types;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = ordinal;
  return prop;
}

CUmulticastObjectProp TeamOf(unsigned devices, std::size_t size = 2 * kPiece, unsigned long long types = 0) {
  CUmulticastObjectProp prop{};
  prop.numDevices = devices;
  prop.size = size;
  prop.handleTypes = types;
  return prop;
}

class MulticastTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    Configure("2xH100");
  }

  static CUmemGenericAllocationHandle NewMemory(int ordinal, std::size_t size = kPiece,
                                                CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp prop = MemoryOf(ordinal, types);
    EXPECT_OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
  }

  // An object of both devices.
  static CUmemGenericAllocationHandle NewObject(std::size_t size = 2 * kPiece) {
    CUmemGenericAllocationHandle object = 0;
    const CUmulticastObjectProp prop = TeamOf(2, size);
    EXPECT_OK(cuMulticastCreate(&object, &prop));
    EXPECT_OK(cuMulticastAddDevice(object, 0));
    EXPECT_OK(cuMulticastAddDevice(object, 1));
    return object;
  }

  static int Supported(int ordinal) {
    int value = -1;
    EXPECT_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, ordinal));
    return value;
  }

  // Passes a descriptor of process `pid` on, as a socket would.
  static int Descriptor(pid_t pid, int fd) {
    return open(("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd)).c_str(), O_RDWR);
  }
};

TEST_F(MulticastTest, GivenModelsThenThoseOnAnNvSwitchOfTheFourthGenerationHaveIt) {
  const auto supported = [&](const std::string& gpus) {
    Configure(gpus);
    unlink((folder_ + "/state").c_str());
    int answer = -1;
    Pipe told;
    Run([&] {
      ASSERT_OK(cuInit(0));
      told.Send(Supported(0));
    });
    answer = told.Receive<int>();
    return answer;
  };
  EXPECT_EQ(supported("2xH100"), 1);
  EXPECT_EQ(supported("2xH200"), 1);
  EXPECT_EQ(supported("2xB200"), 1);
  EXPECT_EQ(supported("1xH100"), 0) << "its links are down";
  EXPECT_EQ(supported("2xA100-80"), 0);
  EXPECT_EQ(supported("2xRTXPRO6000"), 0);
}

TEST_F(MulticastTest, GivenADeviceWithoutItWhenAskedThenNotSupported) {
  Configure("2xA100-40");
  RunWithContext([] {
    std::size_t granularity = 0;
    CUmemGenericAllocationHandle object = 0;
    const CUmulticastObjectProp prop = TeamOf(2);
    EXPECT_EQ(cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_MINIMUM),
              CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuMulticastCreate(&object, &prop), CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST_F(MulticastTest, GivenProperties_ThenGranularityOfSwitchAndNonsenseRefused) {
  RunWithContext([] {
    std::size_t granularity = 0;
    CUmemGenericAllocationHandle object = 0;
    CUmulticastObjectProp prop = TeamOf(2);
    EXPECT_OK(cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, 2 * kMiB);
    EXPECT_OK(cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_RECOMMENDED));
    EXPECT_EQ(granularity, 512 * kMiB);
    EXPECT_EQ(cuMulticastGetGranularity(nullptr, &prop, CU_MULTICAST_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastGetGranularity(&granularity, nullptr, CU_MULTICAST_GRANULARITY_MINIMUM),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastCreate(nullptr, &prop), CUDA_ERROR_INVALID_VALUE);
    prop.size = kMiB;
    EXPECT_EQ(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_VALUE) << "less than the granularity";
    prop = TeamOf(0);
    EXPECT_EQ(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_VALUE);
    prop = TeamOf(2, kPiece, CU_MEM_HANDLE_TYPE_FABRIC);
    EXPECT_EQ(cuMulticastCreate(&object, &prop), CUDA_ERROR_NOT_SUPPORTED);
    prop = TeamOf(2);
    prop.flags = 1;
    EXPECT_EQ(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(MulticastTest, GivenATeamWhenDevicesAreAddedThenEachOnceAndNoMoreThanItHas) {
  RunWithContext([] {
    CUmemGenericAllocationHandle object = 0;
    const CUmulticastObjectProp prop = TeamOf(1);
    ASSERT_OK(cuMulticastCreate(&object, &prop));
    EXPECT_EQ(Used(), kContext) << "it has no memory of its own";
    EXPECT_EQ(cuMulticastAddDevice(object, 7), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuMulticastAddDevice(0xdead, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMulticastAddDevice(object, 0));
    EXPECT_EQ(cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastAddDevice(object, 1), CUDA_ERROR_INVALID_VALUE) << "full";
    CUmemAllocationProp memory{};
    EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&memory, object), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemRelease(object));
    EXPECT_EQ(cuMemRelease(object), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastAddDevice(object, 1), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(MulticastTest, GivenBoundMemoryOfTwoGpus_WhenReleased_ThenHeldUntilUnbound) {
  RunWithContext([] {
    const CUmemGenericAllocationHandle object = NewObject();
    const CUmemGenericAllocationHandle first = NewMemory(0);
    const CUmemGenericAllocationHandle second = NewMemory(1);
    EXPECT_OK(cuMulticastBindMem(object, 0, first, 0, kPiece, 0));
    EXPECT_OK(cuMulticastBindMem_v2(object, 1, 0, second, 0, kPiece, 0));
    EXPECT_OK(cuMemRelease(first));
    EXPECT_OK(cuMemRelease(second));
    EXPECT_EQ(Used(0), kContext + kPiece);
    EXPECT_EQ(Used(1), kPiece);
    EXPECT_OK(cuMulticastUnbind(object, 1, 0, kPiece));
    EXPECT_EQ(Used(0), kContext + kPiece);
    EXPECT_EQ(Used(1), 0U);
    EXPECT_OK(cuMulticastUnbind(object, 0, 0, kPiece));
    EXPECT_EQ(Used(0), kContext);
    EXPECT_OK(cuMemRelease(object));
  });
}

TEST_F(MulticastTest, GivenBoundMemoryWhenTheObjectEndsThenSoDoesItsHold) {
  RunWithContext([] {
    const CUmemGenericAllocationHandle object = NewObject();
    const CUmemGenericAllocationHandle memory = NewMemory(0);
    EXPECT_OK(cuMulticastBindMem(object, kPiece, memory, 0, kPiece, 0));
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAddressReserve(&p, 2 * kPiece, 0, 0, 0));
    ASSERT_OK(cuMemMap(p, 2 * kPiece, 0, object, 0));
    EXPECT_OK(cuMemRelease(memory));
    EXPECT_OK(cuMemRelease(object));
    EXPECT_EQ(Used(), kContext + kPiece) << "the object's mapping holds it, and what is bound to it";
    CUmemGenericAllocationHandle again = 0;
    EXPECT_OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(p)));
    EXPECT_EQ(again, object);
    EXPECT_OK(cuMemRelease(again));
    EXPECT_OK(cuMemUnmap(p, 2 * kPiece));
    EXPECT_EQ(Used(), kContext);
    EXPECT_OK(cuMemAddressFree(p, 2 * kPiece));
  });
}

TEST_F(MulticastTest, GivenMappedObject_WhenCopiedTo_ThenRefusedWhateverTheAccess) {
  RunWithContext([] {
    const CUmemGenericAllocationHandle object = NewObject();
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAddressReserve(&p, 2 * kPiece, 0, 0, 0));
    ASSERT_OK(cuMemMap(p, 2 * kPiece, 0, object, 0));
    CUmemAccessDesc access{};
    access.location = MemoryOf(0).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_OK(cuMemSetAccess(p, 2 * kPiece, &access, 1));
    unsigned long long flags = 0;
    EXPECT_OK(cuMemGetAccess(&flags, &access.location, p));
    EXPECT_EQ(flags, 3U);
    EXPECT_EQ(cuMemsetD8_v2(p, 1, 16), CUDA_ERROR_INVALID_VALUE);
    unsigned type = 0;
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
    EXPECT_OK(cuMemUnmap(p, 2 * kPiece));
    EXPECT_OK(cuMemRelease(object));
  });
}

TEST_F(MulticastTest, GivenAnAddressInsideAMappingWhenBoundThenThatMemoryIsHeld) {
  RunWithContext([] {
    const CUmemGenericAllocationHandle object = NewObject();
    const CUmemGenericAllocationHandle memory = NewMemory(0, 2 * kPiece);
    CUdeviceptr p = 0;
    ASSERT_OK(cuMemAddressReserve(&p, 2 * kPiece, 0, 0, 0));
    ASSERT_OK(cuMemMap(p, 2 * kPiece, 0, memory, 0));
    EXPECT_OK(cuMulticastBindAddr(object, 0, p + kPiece, kPiece, 0));
    EXPECT_EQ(cuMulticastBindAddr(object, kPiece, p + kPiece + 2 * kMiB, kPiece, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindAddr_v2(object, 1, kPiece, p, kPiece, 0), CUDA_ERROR_INVALID_DEVICE) << "not its memory";
    EXPECT_OK(cuMulticastBindAddr_v2(object, 0, kPiece, p, kPiece, 0));
    EXPECT_OK(cuMemUnmap(p, 2 * kPiece));
    EXPECT_OK(cuMemRelease(memory));
    EXPECT_EQ(Used(), kContext + 2 * kPiece);
    EXPECT_OK(cuMulticastUnbind(object, 0, 0, 2 * kPiece)) << "both bindings, whole";
    EXPECT_EQ(Used(), kContext);
    CUdeviceptr plain = 0;
    ASSERT_OK(cuMemAlloc_v2(&plain, kPiece));
    EXPECT_EQ(cuMulticastBindAddr(object, 0, plain, kPiece, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemRelease(object));
  });
}

TEST_F(MulticastTest, GivenWhatDoesNotFitWhenBoundOrUnboundThenNothingChanges) {
  RunWithContext([] {
    const CUmemGenericAllocationHandle object = NewObject();
    const CUmemGenericAllocationHandle memory = NewMemory(0);
    EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, kPiece, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, kMiB, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 2 * kMiB, kPiece, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 3 * kPiece, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(object, 0, object, 0, kPiece, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem(memory, 0, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMulticastBindMem_v2(object, 1, 0, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuMulticastBindMem_v2(object, 9, 0, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuMulticastUnbind(object, 0, 0, kPiece), CUDA_ERROR_INVALID_VALUE) << "nothing is bound there";
    EXPECT_OK(cuMulticastBindMem(object, 0, memory, 0, kPiece, 0));
    EXPECT_EQ(cuMulticastBindMem(object, 2 * kMiB, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_VALUE) << "taken";
    EXPECT_EQ(cuMulticastUnbind(object, 0, 0, 2 * kMiB), CUDA_ERROR_INVALID_VALUE) << "half a binding";
    EXPECT_EQ(cuMulticastUnbind(object, 1, 0, kPiece), CUDA_ERROR_INVALID_VALUE) << "the other device";
    EXPECT_OK(cuMulticastUnbind(object, 0, 0, kPiece));
    CUmemGenericAllocationHandle one = 0;
    const CUmulticastObjectProp prop = TeamOf(1);
    ASSERT_OK(cuMulticastCreate(&one, &prop));
    ASSERT_OK(cuMulticastAddDevice(one, 1));
    EXPECT_EQ(cuMulticastBindMem(one, 0, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_DEVICE) << "not of the team";
    const CUmulticastObjectProp shareable = TeamOf(1, kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle exported = 0;
    ASSERT_OK(cuMulticastCreate(&exported, &shareable));
    ASSERT_OK(cuMulticastAddDevice(exported, 0));
    EXPECT_EQ(cuMulticastBindMem(exported, 0, memory, 0, kPiece, 0), CUDA_ERROR_INVALID_VALUE)
        << "memory that nobody else could hold";
    for (const auto handle : {one, exported, object, memory}) EXPECT_OK(cuMemRelease(handle));
    EXPECT_EQ(Used(), kContext);
  });
}

TEST_F(MulticastTest, GivenIncompleteTeam_WhenBound_ThenItWaitsForLastDevice) {
  RunWithContext([] {
    CUmemGenericAllocationHandle object = 0;
    const CUmulticastObjectProp prop = TeamOf(2);
    ASSERT_OK(cuMulticastCreate(&object, &prop));
    ASSERT_OK(cuMulticastAddDevice(object, 0));
    const CUmemGenericAllocationHandle memory = NewMemory(0);
    std::atomic<bool> adding{false};
    std::thread binder([&] {
      EXPECT_OK(cuMulticastBindMem(object, 0, memory, 0, kPiece, 0));
      EXPECT_TRUE(adding.load());
    });
    adding.store(true);
    EXPECT_OK(cuMulticastAddDevice(object, 1));
    binder.join();
    EXPECT_OK(cuMemRelease(object));
    EXPECT_OK(cuMemRelease(memory));
    EXPECT_EQ(Used(), kContext);
  });
}

// One process a device, as collectives libraries do it.
TEST_F(MulticastTest, GivenProcessPerDevice_WhenEachBinds_ThenEachHoldsUntilItEnds) {
  struct Message {
    pid_t pid;
    int fd;
  };
  Pipe exported;
  Pipe bound;
  Pipe leave;
  Child peer([&] {
    const auto message = exported.Receive<Message>();
    const int fd = Descriptor(message.pid, message.fd);
    ASSERT_GE(fd, 0);
    UsePrimary(1);
    CUmemGenericAllocationHandle object = 0;
    ASSERT_OK(cuMemImportFromShareableHandle(&object, reinterpret_cast<void*>(std::intptr_t{fd}),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    ASSERT_OK(cuMulticastAddDevice(object, 1));
    const auto memory = NewMemory(1, kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ASSERT_OK(cuMulticastBindMem(object, 0, memory, 0, kPiece, 0));
    ASSERT_OK(cuMemRelease(memory));
    bound.Send(1);
    leave.Receive<int>();
  });
  Run([&] {
    UsePrimary(0);
    CUmemGenericAllocationHandle object = 0;
    const CUmulticastObjectProp prop = TeamOf(2, 2 * kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ASSERT_OK(cuMulticastCreate(&object, &prop));
    Message message{getpid(), -1};
    ASSERT_OK(cuMemExportToShareableHandle(&message.fd, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    exported.Send(message);
    ASSERT_OK(cuMulticastAddDevice(object, 0));
    const auto memory = NewMemory(0, kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ASSERT_OK(cuMulticastBindMem(object, 0, memory, 0, kPiece, 0)) << "when the other one has added its device";
    CUmemGenericAllocationHandle same = 0;
    ASSERT_OK(cuMemImportFromShareableHandle(&same, reinterpret_cast<void*>(std::intptr_t{message.fd}),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT_EQ(same, object);
    EXPECT_OK(cuMemRelease(same));
    bound.Receive<int>();
    EXPECT_EQ(Used(1), kContext + kPiece);
    peer.Kill();
    while (Used(1) != 0) usleep(100);
    EXPECT_OK(cuMemRelease(memory));
    EXPECT_EQ(Used(0), kContext + kPiece);
    EXPECT_OK(cuMemRelease(object));
    EXPECT_EQ(Used(0), kContext);
  });
  EXPECT_EQ(peer.Join(), 128 + SIGKILL);
}

TEST_F(MulticastTest, GivenAnythingElseThanAnExportWhenImportedThenItIsRefused) {
  RunWithContext([] {
    CUmemGenericAllocationHandle handle = 0;
    const auto import = [&handle](int fd) {
      return cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(std::intptr_t{fd}),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    };
    const int loose = memfd_create("loose", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(loose, 4096), 0);
    EXPECT_EQ(import(loose), CUDA_ERROR_INVALID_VALUE) << "it could be cut short";
    const int sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(sealed, 4096), 0);
    ASSERT_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_EQ(import(sealed), CUDA_ERROR_INVALID_VALUE) << "no team in it";
    EXPECT_EQ(import(-1), CUDA_ERROR_INVALID_VALUE);
    CUmemGenericAllocationHandle object = 0;
    const CUmulticastObjectProp prop = TeamOf(2);
    ASSERT_OK(cuMulticastCreate(&object, &prop));
    int fd = -1;
    EXPECT_EQ(cuMemExportToShareableHandle(&fd, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_ERROR_INVALID_VALUE)
        << "not asked to be shareable";
    EXPECT_OK(cuMemRelease(object));
  });
}

}  // namespace
}  // namespace simgpu::testing
