// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, kernels and linking through the built library, with hand-made images.

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/image/fatbin.h"
#include "simgpu/image/image_builder.h"

namespace {

using simgpu::test::Blob;
using simgpu::test::BlobOf;
using simgpu::test::BuildCubin;
using simgpu::test::BuildFatbin;
using simgpu::test::CubinSpec;
using simgpu::test::Packing;

constexpr const char* kText = R"(simgpu-image 1
code 64K
kernel spin
  param 8
  cost param 0
kernel fill
  param 8
  param 8
  param 1
  cost total 1us
  action fill
kernel wide
  param 4
  param 8
  regs 64
  shared 8K
  local 32
  max-threads 256
global counter 8 = 0500000000000000
global big 16M
global table 4 constant = 01020304
global shared_number 4 managed = 4d000000
)";

// A machine of its own for this process, with an H100 (9.0) and a T4 (7.5).
class Environment : public testing::Environment {
 public:
  void SetUp() override {
    path_ = "/dev/shm/simgpu-module-test-" + std::to_string(getpid());
    setenv("SIMGPU", "1xH100,1xT4", 1);
    setenv("SIMGPU_STATE", path_.c_str(), 1);
    setenv("SIMGPU_PROFILE", "ideal", 1);
    unsetenv("SIMGPU_CONFIG");
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  }
  void TearDown() override { unlink(path_.c_str()); }

 private:
  std::string path_;
};

class ModuleTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cuCtxCreate_v2(&ctx_, 0, 0), CUDA_SUCCESS); }
  void TearDown() override { EXPECT_EQ(cuCtxDestroy_v2(ctx_), CUDA_SUCCESS); }

  static std::size_t Free() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    return free;
  }

  CUcontext ctx_ = nullptr;
};

CubinSpec SomeCubin(int sm) {
  CubinSpec spec;
  spec.sm = sm;
  spec.kernels = {{"tile", {{0, 48}, {48, 1}, {56, 8}}, 28, 48, 1200 + (sm >= 80 ? 1024u : 0u), {128, 1, 1}}};
  spec.variables = {{"number", ".nv.global.init", 4, BlobOf("abcd"), false}};
  return spec;
}

int Attribute(CUfunction function, CUfunction_attribute attribute) {
  int value = -1;
  EXPECT_EQ(cuFuncGetAttribute(&value, attribute, function), CUDA_SUCCESS);
  return value;
}

TEST_F(ModuleTest, GivenTextImageWhenLoadedThenItsMemoryIsChargedAndComesBack) {
  const std::size_t before = Free();
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kText), CUDA_SUCCESS);
  EXPECT_GE(before - Free(), (16u << 20) + (64u << 10) + 12u);
  EXPECT_LT(before - Free(), (19u << 20));
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(Free(), before);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, GivenGlobalsWhenReadThenTheyHoldTheirInitialBytes) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kText), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  std::size_t size = 0;
  ASSERT_EQ(cuModuleGetGlobal_v2(&address, &size, module, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(size, 8u);
  std::uint64_t counter = 0;
  EXPECT_EQ(cuMemcpyDtoH_v2(&counter, address, sizeof counter), CUDA_SUCCESS);
  EXPECT_EQ(counter, 5u);
  ASSERT_EQ(cuModuleGetGlobal_v2(&address, nullptr, module, "shared_number"), CUDA_SUCCESS);
  // Managed memory is read by the host itself.
  EXPECT_EQ(*reinterpret_cast<const int*>(static_cast<std::uintptr_t>(address)), 77);
  unsigned managed = 0;
  EXPECT_EQ(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address), CUDA_SUCCESS);
  EXPECT_EQ(managed, 1u);
  EXPECT_EQ(cuModuleGetGlobal_v2(nullptr, &size, module, "big"), CUDA_SUCCESS);
  EXPECT_EQ(size, 16u << 20);
  EXPECT_EQ(cuModuleGetGlobal_v2(&address, &size, module, "none"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetGlobal_v2(nullptr, nullptr, module, "big"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(ModuleTest, GivenReusedMemoryWhenLoadedAgainThenGlobalsAreFresh) {
  for (int round = 0; round < 2; ++round) {
    CUmodule module = nullptr;
    ASSERT_EQ(cuModuleLoadData(&module, kText), CUDA_SUCCESS);
    CUdeviceptr big = 0;
    ASSERT_EQ(cuModuleGetGlobal_v2(&big, nullptr, module, "big"), CUDA_SUCCESS);
    std::uint32_t word = 1;
    EXPECT_EQ(cuMemcpyDtoH_v2(&word, big + 4096, sizeof word), CUDA_SUCCESS);
    EXPECT_EQ(word, 0u);
    EXPECT_EQ(cuMemsetD8_v2(big, 0xff, 16u << 20), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  }
}

TEST_F(ModuleTest, GivenFunctions_ThenAttributesNamesAndParametersAreTheImages) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kText), CUDA_SUCCESS);
  CUfunction wide = nullptr;
  CUfunction again = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&wide, module, "wide"), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&again, module, "wide"), CUDA_SUCCESS);
  EXPECT_EQ(wide, again);
  EXPECT_EQ(cuModuleGetFunction(&again, module, "none"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Attribute(wide, CU_FUNC_ATTRIBUTE_NUM_REGS), 64);
  EXPECT_EQ(Attribute(wide, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 8192);
  EXPECT_EQ(Attribute(wide, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 32);
  EXPECT_EQ(Attribute(wide, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
  EXPECT_EQ(Attribute(wide, CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);
  EXPECT_EQ(Attribute(wide, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 48 * 1024 - 8192);
  const char* name = nullptr;
  EXPECT_EQ(cuFuncGetName(&name, wide), CUDA_SUCCESS);
  EXPECT_STREQ(name, "wide");
  std::size_t offset = 0;
  std::size_t size = 0;
  EXPECT_EQ(cuFuncGetParamInfo(wide, 1, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(size, 8u);
  EXPECT_EQ(cuFuncGetParamInfo(wide, 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
  CUmodule home = nullptr;
  EXPECT_EQ(cuFuncGetModule(&home, wide), CUDA_SUCCESS);
  EXPECT_EQ(home, module);
  unsigned count = 0;
  EXPECT_EQ(cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  CUfunction all[3] = {};
  EXPECT_EQ(cuModuleEnumerateFunctions(all, 3, module), CUDA_SUCCESS);
  EXPECT_EQ(all[2], wide);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncGetName(&name, wide), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, GivenAttributesThatMayBeSetWhenSetThenTheyStayAndLimitsHold) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kText), CUDA_SUCCESS);
  CUfunction wide = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&wide, module, "wide"), CUDA_SUCCESS);
  const auto dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_EQ(cuFuncSetAttribute(wide, dynamic, 100 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(wide, dynamic), 100 * 1024);
  EXPECT_EQ(cuFuncSetAttribute(wide, dynamic, 227 * 1024), CUDA_ERROR_INVALID_VALUE);  // with its own 8 KiB too much
  EXPECT_EQ(cuFuncSetAttribute(wide, dynamic, -1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Attribute(wide, dynamic), 100 * 1024);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(ModuleTest, GivenEveryKindOfImageWhenLoadedThenTheKernelIsThere) {
  const Blob cubin = BuildCubin(SomeCubin(90));
  const std::string ptx = "\n\n\n\n.version 8.0\n.target sm_75\n.entry tile(.param .u64 a) { ret; }\n";
  const Blob raw = BuildFatbin({{true, 90, Packing::kRaw, 64, cubin}});
  const Blob zstd = BuildFatbin({{true, 90, Packing::kZstd, 104, cubin}});
  const Blob lz4 = BuildFatbin({{false, 75, Packing::kLz4, 72, BlobOf(ptx)}});
  simgpu::FatbinWrapper wrapper{simgpu::kFatbinWrapperMagic, 1, reinterpret_cast<std::uintptr_t>(zstd.data()), 0};
  const void* objects[] = {raw.data(), lz4.data(), nullptr};
  simgpu::FatbinWrapper linked{simgpu::kFatbinWrapperMagic, 2, 0, reinterpret_cast<std::uintptr_t>(objects)};
  const void* const images[] = {cubin.data(), ptx.c_str(), raw.data(), zstd.data(), lz4.data(), &wrapper, &linked};
  for (const void* image : images) {
    CUmodule module = nullptr;
    ASSERT_EQ(cuModuleLoadFatBinary(&module, image), CUDA_SUCCESS);
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module, "tile"), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  }
}

TEST_F(ModuleTest, GivenBadImagesWhenLoadedThenEachIsRefusedForItsReason) {
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoadData(&module, "no image at all"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.entry k("), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(cuModuleLoadData(&module, "simgpu-image 1\nkernell k\n"), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(cuModuleLoadData(&module, BuildCubin(SomeCubin(75)).data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  const Blob fatbin = BuildFatbin({{true, 75, Packing::kRaw, 64, BuildCubin(SomeCubin(75))}});
  EXPECT_EQ(cuModuleLoadData(&module, fatbin.data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cuModuleLoad(&module, "/nonexistent/file.cubin"), CUDA_ERROR_FILE_NOT_FOUND);
  const simgpu::FatbinWrapper wrapper{simgpu::kFatbinWrapperMagic, 1, 8, 0};
  EXPECT_EQ(cuModuleLoadData(&module, &wrapper), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(module, nullptr);
}

TEST_F(ModuleTest, GivenImageBeyondItsMemory_WhenLoaded_ThenInvalidWithoutFault) {
  // The image lies at the end of a mapping; its header promises more than there is.
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* pages =
      static_cast<std::byte*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(munmap(pages + page, page), 0);
  const Blob cubin = BuildCubin(SomeCubin(90));
  for (const Blob& image : {cubin, BuildFatbin({{true, 90, Packing::kRaw, 64, cubin}}),
                            BlobOf(".version 8.0 .target sm_90 .entry k() { ret; }")}) {
    const std::size_t kept = image.size() - 20;
    std::byte* start = pages + page - kept;
    std::memcpy(start, image.data(), kept);
    CUmodule module = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, start), CUDA_ERROR_INVALID_IMAGE);
  }
  munmap(pages, page);
}

TEST_F(ModuleTest, GivenErrorLogBufferWhenTextIsWrongThenItSaysWhere) {
  char log[200] = "untouched";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log), nullptr};
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadDataEx(&module, "simgpu-image 1\nkernell k\n", 3, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log, testing::HasSubstr("line 2"));
  EXPECT_EQ(reinterpret_cast<std::size_t>(values[1]), std::strlen(log));
  EXPECT_EQ(cuModuleLoadDataEx(&module, kText, 3, nullptr, values), CUDA_ERROR_INVALID_VALUE);
  CUjit_option unknown = static_cast<CUjit_option>(60);
  EXPECT_EQ(cuModuleLoadDataEx(&module, kText, 1, &unknown, values), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, GivenTooLargeImage_WhenLoaded_ThenOutOfMemoryAndNothingStays) {
  const std::size_t before = Free();
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, "simgpu-image 1\nglobal a 1G\nglobal b 200G\n"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Free(), before);
}

TEST_F(ModuleTest, GivenContextThatEndsWhenItHasModulesThenTheirHandlesEndToo) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kText), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&function, module, "spin"), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "spin"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  // The function is another context's, and gone.
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, GivenFillKernelWhenLaunchedThenItReallyFills) {
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, kText), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetFunction(&fill, module, "fill"), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
  std::uint64_t bytes = 64;
  std::uint8_t value = 0x5a;
  void* params[] = {&memory, &bytes, &value};
  EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr), CUDA_SUCCESS);
  std::uint8_t host[64] = {};
  EXPECT_EQ(cuMemcpyDtoH_v2(host, memory, sizeof host), CUDA_SUCCESS);
  EXPECT_EQ(host[0], 0x5a);
  EXPECT_EQ(host[63], 0x5a);
  EXPECT_EQ(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(memory), CUDA_SUCCESS);
}

TEST(Library, GivenNoContext_ThenLoadedKernelsAndManagedVariablesAreThere) {
  CUcontext current = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  ASSERT_EQ(current, nullptr);
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  CUkernel wide = nullptr;
  ASSERT_EQ(cuLibraryGetKernel(&wide, library, "wide"), CUDA_SUCCESS);
  unsigned count = 0;
  EXPECT_EQ(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  int regs = 0;
  EXPECT_EQ(cuKernelGetAttribute(&regs, CU_FUNC_ATTRIBUTE_NUM_REGS, wide, 0), CUDA_SUCCESS);
  EXPECT_EQ(regs, 64);
  EXPECT_EQ(cuKernelGetAttribute(&regs, CU_FUNC_ATTRIBUTE_NUM_REGS, wide, 9), CUDA_ERROR_INVALID_DEVICE);
  std::size_t offset = 0;
  EXPECT_EQ(cuKernelGetParamInfo(wide, 1, &offset, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(offset, 8u);
  CUlibrary home = nullptr;
  EXPECT_EQ(cuKernelGetLibrary(&home, wide), CUDA_SUCCESS);
  EXPECT_EQ(home, library);
  CUdeviceptr managed = 0;
  std::size_t size = 0;
  ASSERT_EQ(cuLibraryGetManaged(&managed, &size, library, "shared_number"), CUDA_SUCCESS);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(*reinterpret_cast<const int*>(static_cast<std::uintptr_t>(managed)), 77);
  EXPECT_EQ(cuLibraryGetManaged(&managed, &size, library, "counter"), CUDA_ERROR_NOT_FOUND);
  CUmodule module = nullptr;
  EXPECT_EQ(cuLibraryGetModule(&module, library), CUDA_ERROR_INVALID_CONTEXT);
  void* host = nullptr;
  EXPECT_EQ(cuLibraryGetUnifiedFunction(&host, library, "wide"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuKernelGetLibrary(&home, wide), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, GivenLibrary_WhenFirstUsedInContext_ThenMemoryChargedThere) {
  const std::size_t before = Free();
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "wide"), CUDA_SUCCESS);
  EXPECT_EQ(Free(), before);
  CUfunction function = nullptr;
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  EXPECT_GE(before - Free(), 16u << 20);
  CUmodule module = nullptr;
  EXPECT_EQ(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
  CUdeviceptr of_library = 0;
  CUdeviceptr of_module = 0;
  EXPECT_EQ(cuLibraryGetGlobal(&of_library, nullptr, library, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetGlobal_v2(&of_module, nullptr, module, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(of_library, of_module);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(Free(), before);
  int regs = 0;
  EXPECT_EQ(cuFuncGetAttribute(&regs, CU_FUNC_ATTRIBUTE_NUM_REGS, function), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, GivenKernelSettings_WhenSet_ThenHoldUntilFunctionHasItsOwn) {
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "wide"), CUDA_SUCCESS);
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  const auto dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_EQ(cuKernelSetAttribute(dynamic, 50'000, kernel, 0), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(function, dynamic), 50'000);
  EXPECT_EQ(cuFuncSetAttribute(function, dynamic, 60'000), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(function, dynamic), 60'000);
  int value = 0;
  EXPECT_EQ(cuKernelGetAttribute(&value, dynamic, kernel, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, 50'000);
  EXPECT_EQ(cuKernelGetAttribute(&value, dynamic, kernel, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, 48 * 1024 - 8192);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_F(ModuleTest, GivenKernelHandleWhenLaunchedAsAFunctionThenItRuns) {
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "spin"), CUDA_SUCCESS);
  std::uint64_t nanos = 1000;
  void* params[] = {&nanos};
  EXPECT_EQ(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_F(ModuleTest, GivenSeveralInputsWhenLinkedThenTheResultLoadsWithAllOfThem) {
  CUlinkState link = nullptr;
  ASSERT_EQ(cuLinkCreate_v2(0, nullptr, nullptr, &link), CUDA_SUCCESS);
  Blob cubin = BuildCubin(SomeCubin(90));
  std::string text(kText);
  EXPECT_EQ(cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, cubin.data(), cubin.size(), "a", 0, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "b", 0, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, cubin.data(), cubin.size(), "c", 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_PTX);
  void* result = nullptr;
  std::size_t size = 0;
  ASSERT_EQ(cuLinkComplete(link, &result, &size), CUDA_SUCCESS);
  EXPECT_GT(size, 64u);
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, result), CUDA_SUCCESS);
  EXPECT_EQ(cuLinkDestroy(link), CUDA_SUCCESS);
  EXPECT_EQ(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, module, "tile"), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1200);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "wide"), CUDA_SUCCESS);
  CUdeviceptr number = 0;
  ASSERT_EQ(cuModuleGetGlobal_v2(&number, nullptr, module, "number"), CUDA_SUCCESS);
  char bytes[4] = {};
  EXPECT_EQ(cuMemcpyDtoH_v2(bytes, number, 4), CUDA_SUCCESS);
  EXPECT_EQ(std::string(bytes, 4), "abcd");
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(ModuleTest, GivenWildHandlesWhenUsedThenTheyAreRefused) {
  int mine = 0;
  for (const std::uintptr_t value : {std::uintptr_t{0}, std::uintptr_t{1}, reinterpret_cast<std::uintptr_t>(&mine)}) {
    CUfunction function = nullptr;
    CUkernel kernel = nullptr;
    unsigned count = 0;
    int attribute = 0;
    EXPECT_EQ(cuModuleGetFunction(&function, reinterpret_cast<CUmodule>(value), "x"), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLibraryGetKernel(&kernel, reinterpret_cast<CUlibrary>(value), "x"), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLibraryGetKernelCount(&count, reinterpret_cast<CUlibrary>(value)), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuFuncGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_NUM_REGS, reinterpret_cast<CUfunction>(value)),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(value)), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuLinkDestroy(reinterpret_cast<CUlinkState>(value)), CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST_F(ModuleTest, GivenFileWhenLoadedThenItIsTheSameImage) {
  const std::string path = testing::TempDir() + "simgpu-module-" + std::to_string(getpid());
  {
    std::ofstream out(path, std::ios::binary);
    out << kText;
  }
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoad(&module, path.c_str()), CUDA_SUCCESS);
  CUlibrary library = nullptr;
  EXPECT_EQ(cuLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  unlink(path.c_str());
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new Environment);
  return RUN_ALL_TESTS();
}
