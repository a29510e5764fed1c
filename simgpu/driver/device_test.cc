// SPDX-License-Identifier: Apache-2.0
// Devices and contexts as an application sees them.
#include <cstring>
#include <thread>

#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {
namespace {

class DeviceTest : public DriverTest {
 protected:
  static int Attribute(CUdevice_attribute attribute, CUdevice dev = 0) {
    int value = -77;
    EXPECT_OK(cuDeviceGetAttribute(&value, attribute, dev));
    return value;
  }
};

TEST_F(DeviceTest, GivenAMachineThenItsDevicesAreDescribed) {
  Run([] {
    ASSERT_OK(cuInit(0));
    int count = 0;
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 2);
    char name[100];
    EXPECT_OK(cuDeviceGetName(name, sizeof name, 0));
    EXPECT_NE(std::strstr(name, "A100"), nullptr);
    EXPECT_OK(cuDeviceGetName(name, 4, 0));
    EXPECT_EQ(std::strlen(name), 3U);
    std::size_t bytes = 0;
    EXPECT_OK(cuDeviceTotalMem_v2(&bytes, 0));
    EXPECT_EQ(bytes, kTotal);
    EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
    EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
    EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 108);
    EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
    EXPECT_EQ(Attribute(CU_DEVICE_ATTRIBUTE_NUMA_ID), -1);
    EXPECT_EQ(Attribute(static_cast<CUdevice_attribute>(250)), 1) << "unknown, newer than we are";
    char id[20];
    CUdevice found = -1;
    EXPECT_OK(cuDeviceGetPCIBusId(id, sizeof id, 1));
    EXPECT_OK(cuDeviceGetByPCIBusId(&found, id));
    EXPECT_EQ(found, 1);
    CUuuid first{};
    CUuuid second{};
    EXPECT_OK(cuDeviceGetUuid_v2(&first, 0));
    EXPECT_OK(cuDeviceGetUuid(&second, 0));
    EXPECT_EQ(std::memcmp(&first, &second, sizeof first), 0);
    EXPECT_OK(cuDeviceGetUuid_v2(&second, 1));
    EXPECT_NE(std::memcmp(&first, &second, sizeof first), 0);
    char luid[8];
    unsigned mask = 0;
    EXPECT_EQ(cuDeviceGetLuid(luid, &mask, 0), CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST_F(DeviceTest, GivenVisibleDevices_ThenOrdinalsFollowListAndBooksHardware) {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  RunWithContext([] {
    int count = 0;
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT_EQ(count, 1);
    EXPECT_EQ(Used(0), 0U);
    EXPECT_EQ(Used(1), kContext);
  });
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  Run([] { EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE); });
}

TEST_F(DeviceTest, GivenThreadsThenEachHasItsOwnStackOfContexts) {
  RunWithContext([] {
    CUcontext first = nullptr;
    CUcontext second = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&first));
    EXPECT_OK(cuCtxCreate_v2(&second, 0, 1));
    std::thread([&] {
      CUcontext seen = first;
      EXPECT_OK(cuCtxGetCurrent(&seen));
      EXPECT_EQ(seen, nullptr);
      EXPECT_OK(cuCtxPushCurrent_v2(second));
      CUdevice dev = -1;
      EXPECT_OK(cuCtxGetDevice(&dev));
      EXPECT_EQ(dev, 1);
    }).join();
    for (int i = 0; i < 100; ++i) EXPECT_OK(cuCtxPushCurrent_v2(first));
    CUcontext popped = nullptr;
    for (int i = 0; i < 100; ++i) EXPECT_OK(cuCtxPopCurrent_v2(&popped));
    EXPECT_EQ(popped, first);
    EXPECT_OK(cuCtxGetCurrent(&popped));
    EXPECT_EQ(popped, second);
    EXPECT_OK(cuCtxDestroy_v2(second));
    EXPECT_OK(cuCtxGetCurrent(&popped));
    EXPECT_EQ(popped, first) << "destroying the current context pops it";
    EXPECT_OK(cuCtxSetCurrent(nullptr));
    EXPECT_OK(cuCtxGetCurrent(&popped));
    EXPECT_EQ(popped, nullptr);
  });
}

TEST_F(DeviceTest, GivenRaisedLimit_ThenGrowthIsChargedAndShrinkingGivesItBack) {
  RunWithContext([] {
    std::size_t value = 0;
    EXPECT_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    EXPECT_EQ(value, 1024U);
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
    EXPECT_EQ(Used() - kContext, std::uint64_t{1024} * 108 * 2048);
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024));
    EXPECT_EQ(Used(), kContext);
    EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * kTotal), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    EXPECT_EQ(value, 8 * kMiB);
    EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_MAX, 1), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST_F(DeviceTest, GivenPeersThenAccessIsEnabledOnce) {
  RunWithContext([] {
    int can = 0;
    EXPECT_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    EXPECT_EQ(can, 1);
    EXPECT_OK(cuDeviceCanAccessPeer(&can, 0, 0));
    EXPECT_EQ(can, 0);
    CUcontext peer = nullptr;
    CUcontext self = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&self));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&peer, 1));
    EXPECT_OK(cuCtxEnablePeerAccess(peer, 0));
    EXPECT_EQ(cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    EXPECT_OK(cuCtxDisablePeerAccess(peer));
    EXPECT_EQ(cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    EXPECT_EQ(cuCtxEnablePeerAccess(self, 0), CUDA_ERROR_INVALID_DEVICE);
  });
}

TEST_F(DeviceTest, GivenMoreContextsThanMemory_ThenLastIsRefusedLeavingNothing) {
  Run([] {
    ASSERT_OK(cuInit(0));
    CUcontext ctx = nullptr;
    for (std::size_t i = 0; i < kTotal / kContext; ++i) ASSERT_OK(cuCtxCreate_v2(&ctx, 0, 0));
    CUcontext none = nullptr;
    EXPECT_EQ(cuCtxCreate_v2(&none, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(none, nullptr);
    CUcontext current = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, ctx);
    EXPECT_EQ(Free(), 0U);
  });
}

}  // namespace
}  // namespace simgpu::testing
