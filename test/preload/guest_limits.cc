// SPDX-License-Identifier: Apache-2.0
// What the environment asks for, and which device a limit belongs to.
#include <cstdlib>

#include "test/preload/guest.h"

namespace guest {
namespace {

// limits MIB…: the total of each CUDA device, in its order.
SCENARIO(limits) {
  OK(cuInit(0));
  int count = 0;
  OK(cuDeviceGetCount(&count));
  EXPECT_SAME(count, static_cast<int>(arguments.size()));
  for (int i = 0; i < count; ++i) {
    const size_t want = std::strtoull(arguments[static_cast<size_t>(i)].c_str(), nullptr, 10) * kMiB;
    size_t total = 0;
    OK(cuDeviceTotalMem_v2(&total, i));
    EXPECT_SAME(total, want);
    Begin(i);
    EXPECT_SAME(MemInfo().total, want);
    CUdeviceptr block = 0;
    OOM(cuMemAlloc_v2(&block, want));
    OK(cuMemAlloc_v2(&block, Room()));
    OOM(cuMemAlloc_v2(&block, 1));
    OK(cuDevicePrimaryCtxReset_v2(i));
  }
}

SCENARIO(unlimited) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 20 * kGiB));
  EXPECT(MemInfo().total > 60 * kGiB);
}

// Nothing is granted, by any way.
SCENARIO(refused_for_ever) {
  EXPECT_SAME(cuInit(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_SAME(cuInit(0), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr block = 0;
  EXPECT(cuMemAlloc_v2(&block, 1 * kMiB) != CUDA_SUCCESS);
  CUcontext context = nullptr;
  EXPECT(cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS);
}

// One request each that is refused, by several ways to ask.
SCENARIO(refused_five_times) {
  Begin();
  CUdeviceptr block = 0;
  size_t pitch = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp props{};
  props.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OOM(cuMemAlloc_v2(&block, 2 * kGiB));
  OOM(cuMemAllocAsync(&block, 2 * kGiB, nullptr));
  OOM(cuMemAllocManaged(&block, 2 * kGiB, CU_MEM_ATTACH_GLOBAL));
  OOM(cuMemAllocPitch_v2(&block, &pitch, 1 * kMiB, 2048, 4));
  OOM(cuMemCreate(&handle, 2 * kGiB, &props, 0));
}

// Past the physical memory, managed memory stands in, charged all the same; at the limit it is over.
SCENARIO(oversubscribed) {
  Begin();
  const size_t limit = MemInfo().total;
  EXPECT_SAME(limit, 120 * kGiB);
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  CUresult result = CUDA_SUCCESS;
  while ((result = cuMemAlloc_v2(&block, 8 * kGiB)) == CUDA_SUCCESS) blocks.push_back(block);
  EXPECT_SAME(result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_SAME(blocks.size(), 14);  // 112 of 120 GiB, beside a context
  unsigned managed = 0;
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, blocks.front()));
  EXPECT_SAME(managed, 0);
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, blocks.back()));
  EXPECT_SAME(managed, 1);
  OK(cuMemsetD8_v2(blocks.back(), 1, kMiB));
  // What lies on the host has no name for other processes, as no managed memory has.
  CUipcMemHandle handle{};
  OK(cuIpcGetMemHandle(&handle, blocks.front()));
  EXPECT_SAME(cuIpcGetMemHandle(&handle, blocks.back()), CUDA_ERROR_INVALID_VALUE);
  for (const CUdeviceptr b : blocks) OK(cuMemFree_v2(b));
  // Stream-ordered memory spills too, and is freed in order.
  blocks.clear();
  while (cuMemAllocAsync(&block, 8 * kGiB, nullptr) == CUDA_SUCCESS) blocks.push_back(block);
  EXPECT_SAME(blocks.size(), 14);
  for (const CUdeviceptr b : blocks) OK(cuMemFreeAsync(b, nullptr));
  OK(cuCtxSynchronize());
  EXPECT(MemInfo().used() < kGiB);
}

// Off by default: the driver's own out of memory, at the physical size.
SCENARIO(not_oversubscribed) {
  Begin();
  CUdeviceptr block = 0;
  size_t held = 0;
  while (cuMemAlloc_v2(&block, 4 * kGiB) == CUDA_SUCCESS) held += 4 * kGiB;
  EXPECT(held < 80 * kGiB);
}

}  // namespace
}  // namespace guest
