// SPDX-License-Identifier: Apache-2.0
// Plain memory, pitch, managed, arrays, external memory, modules. The limit is 1 GiB unless a test says otherwise.
#include <cstring>
#include <fstream>

#include "test/preload/guest.h"

namespace guest {
namespace {

SCENARIO(plain_limit) {
  Begin();
  CUdeviceptr untouched = 42;
  OOM(cuMemAlloc_v2(&untouched, kGiB));
  EXPECT_SAME(untouched, 42);
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  while (cuMemAlloc_v2(&block, 64 * kMiB) == CUDA_SUCCESS) blocks.push_back(block);
  EXPECT(Truth() <= kGiB);
  EXPECT(Room() < 64 * kMiB);
  // What fits to the byte is granted.
  const size_t rest = Room() / 512 * 512;
  OK(cuMemAlloc_v2(&block, rest));
  OOM(cuMemAlloc_v2(&untouched, 1));
  OK(cuMemFree_v2(block));
  for (const CUdeviceptr b : blocks) OK(cuMemFree_v2(b));
  Balanced();
}

// A program that clears or changes its own environment, as php-fpm's workers do, before it uses a GPU.
SCENARIO(changed_own_environment) {
  for (const char* name : {"CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_SHARED_CACHE"}) unsetenv(name);
  for (const std::string& setting : arguments) {
    const size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.c_str() + equals + 1, 1);
  }
  Scenario_plain_limit({});
}

SCENARIO(small_blocks) {
  Begin();
  std::vector<CUdeviceptr> blocks(1000);
  for (CUdeviceptr& block : blocks) OK(cuMemAlloc_v2(&block, 1));
  Balanced();
  for (const CUdeviceptr block : blocks) OK(cuMemFree_v2(block));
  Balanced();
}

// The real pitch counts: 4 MiB of payload in 488 MiB of rows (A1-like escape of cuMemAllocPitch).
SCENARIO(pitch) {
  Begin();
  CUdeviceptr block = 0;
  size_t pitch = 0;
  const size_t before = Room();
  OK(cuMemAllocPitch_v2(&block, &pitch, 4, 1'000'000, 4));
  EXPECT(before - Room() >= pitch * 1'000'000);
  Balanced();
  CUdeviceptr second = 7;
  size_t untouched = 9;
  OOM(cuMemAllocPitch_v2(&second, &untouched, 4, 1'000'000, 4));
  EXPECT_SAME(second, 7);
  EXPECT_SAME(untouched, 9);
  OK(cuMemFree_v2(block));
  Balanced();
  // An element size of 0 is the driver's to refuse; nothing is divided by it (B9).
  EXPECT(cuMemAllocPitch_v2(&second, &pitch, 64, 64, 0) == CUDA_ERROR_INVALID_VALUE);
  Balanced();
}

SCENARIO(managed) {
  Begin();
  const size_t before = Room();
  CUdeviceptr block = 0;
  OK(cuMemAllocManaged(&block, 256 * kMiB, CU_MEM_ATTACH_GLOBAL));
  EXPECT_SAME(before - Room(), 256 * kMiB);
  // The attribute is the driver's (C3).
  unsigned is_managed = 0;
  OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, block));
  EXPECT_SAME(is_managed, 1);
  CUdeviceptr second = 0;
  OOM(cuMemAllocManaged(&second, kGiB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemFree_v2(block));
  EXPECT_SAME(Room(), before);
}

SCENARIO(host_is_free) {
  Begin();
  const size_t before = Room();
  void* block = nullptr;
  OK(cuMemHostAlloc(&block, 2 * kGiB, 0));
  EXPECT_SAME(Room(), before);
  OK(cuMemFreeHost(block));
}

SCENARIO(arrays) {
  Begin();
  const size_t before = Room();
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = 4096;
  shape.Height = 4096;
  shape.Depth = 0;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 4;
  CUarray array = nullptr;
  OK(cuArray3DCreate_v2(&array, &shape));
  EXPECT_SAME(before - Room(), 256 * kMiB);
  Balanced();
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = 16384;
  flat.Height = 16384;
  flat.Format = CU_AD_FORMAT_FLOAT;
  flat.NumChannels = 4;  // 4 GiB
  auto* const marker = reinterpret_cast<CUarray>(uintptr_t{16});
  CUarray refused = marker;
  OOM(cuArrayCreate_v2(&refused, &flat));
  EXPECT(refused == marker);
  OK(cuArrayDestroy(array));
  // A single row takes whole blocks.
  CUDA_ARRAY_DESCRIPTOR row{};
  row.Width = 4096;
  row.Height = 1;
  row.Format = CU_AD_FORMAT_FLOAT;
  row.NumChannels = 4;
  OK(cuArrayCreate_v2(&array, &row));
  Balanced(512 * 1024);
  OK(cuArrayDestroy(array));
  CUmipmappedArray mipmap = nullptr;
  OK(cuMipmappedArrayCreate(&mipmap, &shape, 4));
  Balanced(kMiB);
  OK(cuMipmappedArrayDestroy(mipmap));
  EXPECT_SAME(Room(), before);
}

// The driver says what a free is worth: unknown pointers are its business, with its result (C1, C9).
SCENARIO(free_results) {
  Begin();
  EXPECT_SAME(cuMemFree_v2(0), CUDA_SUCCESS);
  EXPECT_SAME(cuMemFree_v2(0x123456000), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, kMiB));
  const size_t with = Room();
  EXPECT_SAME(cuMemFree_v2(block + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_SAME(Room(), with);
  OK(cuMemFree_v2(block));
  EXPECT_SAME(cuMemFree_v2(block), CUDA_ERROR_INVALID_VALUE);
  Balanced();
}

// The driver's free fails: the memory is still there, so it still counts (A14).
SCENARIO(failing_free) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  const size_t with = Room();
  EXPECT_SAME(simgpu_inject("fault call=cuMemFree_v2 error=719", nullptr, 0), 1);
  EXPECT_SAME(cuMemFree_v2(block), 719);
  EXPECT_SAME(simgpu_inject("clear", nullptr, 0), 1);
  EXPECT_SAME(Room(), with);
  OK(cuMemFree_v2(block));
  Balanced();
}

// The driver declines what we granted: its error, and nothing stays charged.
SCENARIO(failing_allocation) {
  Begin();
  const size_t before = Room();
  EXPECT_SAME(simgpu_inject("fault call=cuMemAlloc_v2 error=719", nullptr, 0), 1);
  CUdeviceptr block = 5;
  EXPECT_SAME(cuMemAlloc_v2(&block, kMiB), 719);
  EXPECT_SAME(simgpu_inject("clear", nullptr, 0), 1);
  EXPECT_SAME(Room(), before);
}

// cuMemGetInfo with what programs really pass (B8).
SCENARIO(null_outputs) {
  Begin();
  size_t value = 0;
  size_t real = 0;
  const auto driver = reinterpret_cast<decltype(&::cuMemGetInfo_v2)>(simgpu_own_function("cuMemGetInfo_v2"));
  EXPECT_SAME(cuMemGetInfo_v2(nullptr, nullptr), driver(nullptr, nullptr));
  EXPECT_SAME(cuMemGetInfo_v2(&value, nullptr), driver(&real, nullptr));
  if (real != 0) EXPECT(value != 0 && value <= kGiB);
  value = real = 0;
  EXPECT_SAME(cuMemGetInfo_v2(nullptr, &value), driver(nullptr, &real));
  EXPECT_SAME(value, real == 0 ? 0 : kGiB);
  EXPECT(cuMemAlloc_v2(nullptr, 4) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuDeviceTotalMem_v2(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  EXPECT(cuDeviceTotalMem_v2(&value, 99) == CUDA_ERROR_INVALID_DEVICE);
  Balanced();
}

// Before cuInit, and without a context, the driver's own errors (B8, B10).
SCENARIO(before_init) {
  int count = 0;
  CUdeviceptr block = 0;
  size_t bytes = 0;
  EXPECT_SAME(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_SAME(cuMemAlloc_v2(&block, 4), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_SAME(cuMemGetInfo_v2(&bytes, &bytes), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_SAME(cuDeviceTotalMem_v2(&bytes, 0), CUDA_ERROR_NOT_INITIALIZED);
  OK(cuInit(0));
  EXPECT_SAME(cuMemAlloc_v2(&block, 4), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_SAME(cuMemGetInfo_v2(&bytes, &bytes), CUDA_ERROR_INVALID_CONTEXT);
  CUarray array = nullptr;
  CUDA_ARRAY_DESCRIPTOR shape{16, 16, CU_AD_FORMAT_FLOAT, 1};
  EXPECT_SAME(cuArrayCreate_v2(&array, &shape), CUDA_ERROR_INVALID_CONTEXT);
  Begin();
  OK(cuMemAlloc_v2(&block, 4));
}

// A module's globals and code are measured and count; one that passes the limit is taken back (A8).
SCENARIO(modules) {
  Begin();
  const size_t before = Room();
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, "simgpu-image 1\nkernel k\nglobal g 104857600\n"));
  EXPECT(before - Room() >= 100 * kMiB);
  Balanced();
  auto* const marker = reinterpret_cast<CUmodule>(uintptr_t{24});
  CUmodule refused = marker;
  OOM(cuModuleLoadData(&refused, "simgpu-image 1\nkernel k\nglobal g 2147483648\n"));
  EXPECT(refused == marker);
  Balanced();
  OK(cuModuleUnload(module));
  EXPECT_SAME(Room(), before);
}

SCENARIO(libraries) {
  Begin();
  const size_t before = Room();
  CUlibrary library = nullptr;
  OK(cuLibraryLoadData(&library, "simgpu-image 1\nkernel k\nglobal g 104857600\n", nullptr, nullptr, 0, nullptr,
                       nullptr, 0));
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "k"));
  OK(cuKernelGetFunction(&function, kernel));
  Balanced();
  EXPECT(before - Room() >= 100 * kMiB);
  OK(cuLibraryUnload(library));
  EXPECT_SAME(Room(), before);
}

// Growing stack or heap is memory too.
SCENARIO(context_limits) {
  Begin();
  const size_t before = Room();
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 200 * kMiB));
  Balanced();
  EXPECT(before - Room() >= 150 * kMiB);
  OOM(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * kGiB));
  size_t heap = 0;
  OK(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
  EXPECT_SAME(heap, 200 * kMiB);
  Balanced();
}

// total = min(limit, physical) everywhere; no wrap and no error when more is used than allowed (C4, C5).
SCENARIO(total_is_limit) {
  Begin();
  size_t total = 0;
  OK(cuDeviceTotalMem_v2(&total, 0));
  EXPECT_SAME(total, kGiB);
  EXPECT_SAME(MemInfo().total, kGiB);
}

SCENARIO(no_limit) {
  Begin();
  size_t total = 0;
  OK(cuDeviceTotalMem_v2(&total, 0));
  EXPECT(total > 60 * kGiB);
  EXPECT_SAME(MemInfo().total, total);
  EXPECT(MemInfo().free > 60 * kGiB);
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 20 * kGiB));
  EXPECT(MemInfo().free < total - 20 * kGiB);
  OK(cuMemFree_v2(block));
}

SCENARIO(external_memory) {
  Begin();
  const size_t before = Room();
  // Somebody else's memory, as a file descriptor: exported VMM memory serves.
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, 64 * kMiB, &prop, 0));
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC what{};
  what.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  what.handle.fd = fd;
  what.size = 64 * kMiB;
  CUexternalMemory memory = nullptr;
  const size_t middle = Room();
  OK(cuImportExternalMemory(&memory, &what));
  EXPECT_SAME(middle - Room(), 64 * kMiB);
  what.size = 2 * kGiB;
  OOM(cuImportExternalMemory(&memory, &what));
  OK(cuDestroyExternalMemory(memory));
  OK(cuMemRelease(handle));
  EXPECT_SAME(Room(), before);
}

}  // namespace
}  // namespace guest
