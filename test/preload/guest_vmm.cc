// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: the charge lives as long as the physical memory does.
#include <unistd.h>

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

}  // namespace
}  // namespace guest
