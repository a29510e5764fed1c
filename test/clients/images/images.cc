// SPDX-License-Identifier: Apache-2.0
//
// Loads one real image through the driver API and holds what the driver tells of it against the source (kernels.cu,
// huge.cu). One line a check: `ok NAME` or `FAIL NAME why`.
// Then it fills the GPU's memory until it is refused.
//   images LABEL KIND FILE LIMIT   KIND: cubin (a fatbin, too), ptx, huge, wrapper or rdc-wrapper
//                                  LIMIT: what must be the device's memory, in MiB; 0: anything
// Links nothing of CUDA: the driver is what LD_LIBRARY_PATH finds as libcuda.so.1.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "abi/cuda_abi.h"

namespace {

std::string g_label;
bool g_failed = false;

void Report(const std::string& name, bool good, const std::string& why) {
  if (good) {
    std::printf("ok %s/%s\n", g_label.c_str(), name.c_str());
  } else {
    std::printf("FAIL %s/%s %s\n", g_label.c_str(), name.c_str(), why.c_str());
    g_failed = true;
  }
}

void Equal(const std::string& name, long long got, long long wanted) {
  Report(name, got == wanted, "got " + std::to_string(got) + ", not " + std::to_string(wanted));
}

void Within(const std::string& name, long long got, long long low, long long high) {
  Report(name, got >= low && got <= high, "got " + std::to_string(got));
}

void* g_driver = nullptr;

// The driver's function, by the name it is exported under.
#define DRIVER(function) reinterpret_cast<decltype(&function)>(Symbol(#function))

void* Symbol(const char* name) {
  void* address = dlsym(g_driver, name);
  if (address == nullptr) {
    std::printf("FAIL %s/symbol %s\n", g_label.c_str(), name);
    std::exit(1);
  }
  return address;
}

void Succeeds(const std::string& name, CUresult result) { Equal(name, result, CUDA_SUCCESS); }

struct Expected {
  const char* name;
  std::vector<std::pair<int, int>> params;
  int shared;
  int max_threads;  // of its launch bounds; 0: none
  int least_local;
};

const Expected kKernels[] = {
    {"saxpy", {{0, 4}, {8, 8}, {16, 8}, {24, 4}}, 0, 0, 0},
    {"tile", {{0, 48}, {48, 1}, {50, 2}, {56, 8}}, 1200, 128, 0},
    {"nothing", {}, 0, 0, 0},
    {"_Z9templatedIiEvPT_", {{0, 8}}, 0, 0, 0},
    {"spills", {{0, 8}}, 0, 0, 256},
};
const Expected kHuge[] = {{"huge", {{0, 20000}, {20000, 4}, {20008, 8}}, 0, 0, 0}};
const Expected kWrapped[] = {{"wrapped_kernel", {{0, 8}}, 0, 0, 0}};

int Attribute(CUfunction function, CUfunction_attribute attribute) {
  int value = -1;
  DRIVER(cuFuncGetAttribute)(&value, attribute, function);
  return value;
}

void CheckParams(const Expected& kernel, CUfunction function) {
  const std::string name = kernel.name;
  std::size_t offset = 0;
  std::size_t size = 0;
  for (std::size_t i = 0; i < kernel.params.size(); ++i) {
    const std::string which = name + ".param" + std::to_string(i);
    Succeeds(which, DRIVER(cuFuncGetParamInfo)(function, i, &offset, &size));
    Equal(which + ".offset", static_cast<long long>(offset), kernel.params[i].first);
    Equal(which + ".size", static_cast<long long>(size), kernel.params[i].second);
  }
  Equal(name + ".params", DRIVER(cuFuncGetParamInfo)(function, kernel.params.size(), &offset, &size),
        CUDA_ERROR_INVALID_VALUE);
}

void Launch(const Expected& kernel, CUfunction function) {
  std::vector<std::byte> zeros(32768);
  std::vector<void*> params(kernel.params.size() + 1, zeros.data());
  Succeeds(std::string(kernel.name) + ".launch",
           DRIVER(cuLaunchKernel)(function, 2, 1, 1, 64, 1, 1, 0, nullptr, params.data(), nullptr));
  if (kernel.max_threads == 0) return;
  const auto threads = static_cast<unsigned>(kernel.max_threads + 1);
  Report(std::string(kernel.name) + ".too_many_threads",
         DRIVER(cuLaunchKernel)(function, 1, 1, 1, threads, 1, 1, 0, nullptr, params.data(), nullptr) != CUDA_SUCCESS,
         "launched beyond its launch bounds");
}

void CheckKernel(const Expected& kernel, CUmodule module, bool compiled) {
  const std::string name = kernel.name;
  CUfunction function = nullptr;
  const CUresult found = DRIVER(cuModuleGetFunction)(&function, module, kernel.name);
  Succeeds(name, found);
  if (found != CUDA_SUCCESS) return;
  CheckParams(kernel, function);
  Equal(name + ".shared", Attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), kernel.shared);
  Within(name + ".registers", Attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS), compiled ? 4 : 1, 64);
  Within(name + ".local", Attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), kernel.least_local, 1024);
  Equal(name + ".max_threads", Attribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        kernel.max_threads != 0 ? kernel.max_threads : 1024);
  Launch(kernel, function);
}

template <typename T, std::size_t N>
void CheckGlobal(CUmodule module, const char* name, const T (&wanted)[N]) {
  CUdeviceptr address = 0;
  std::size_t size = 0;
  const CUresult found = DRIVER(cuModuleGetGlobal_v2)(&address, &size, module, name);
  Succeeds(name, found);
  if (found != CUDA_SUCCESS) return;
  Equal(std::string(name) + ".size", static_cast<long long>(size), sizeof wanted);
  if (size != sizeof wanted) return;
  T got[N];
  Succeeds(std::string(name) + ".read", DRIVER(cuMemcpyDtoH_v2)(got, address, sizeof got));
  Report(std::string(name) + ".value", std::memcmp(got, wanted, sizeof got) == 0, "differs from its initialiser");
}

void CheckGlobals(CUmodule module) {
  CheckGlobal(module, "counters", {1, 2, 3, 4});
  static const float zeros[1000] = {};
  CheckGlobal(module, "zeroed", zeros);
  CheckGlobal(module, "table", {1.5, 2.5, 3.5});
  CheckGlobal(module, "shared_number", {77});
  CheckGlobal(module, "tag", {static_cast<unsigned char>(0xab)});
  CUdeviceptr address = 0;
  unsigned managed = 0;
  if (DRIVER(cuModuleGetGlobal_v2)(&address, nullptr, module, "shared_number") == CUDA_SUCCESS) {
    DRIVER(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
  }
  Equal("shared_number.managed", managed, 1);
}

void CheckNames(CUmodule module, std::set<std::string> wanted) {
  unsigned count = 0;
  Succeeds("count", DRIVER(cuModuleGetFunctionCount)(&count, module));
  Equal("kernels", count, static_cast<long long>(wanted.size()));
  std::vector<CUfunction> functions(count);
  Succeeds("enumerate", DRIVER(cuModuleEnumerateFunctions)(functions.data(), count, module));
  for (const CUfunction function : functions) {
    const char* name = nullptr;
    DRIVER(cuFuncGetName)(&name, function);
    Report("known_name", name != nullptr && wanted.erase(name) == 1, name != nullptr ? name : "null");
  }
}

template <std::size_t N>
void CheckModule(CUmodule module, const Expected (&kernels)[N], bool compiled) {
  std::set<std::string> names;
  for (const Expected& kernel : kernels) names.insert(kernel.name);
  CheckNames(module, names);
  for (const Expected& kernel : kernels) CheckKernel(kernel, module, compiled);
}

// The same image as a library, loaded without asking for a context.
void CheckLibrary(const void* image, const char* kernel) {
  CUlibrary library = nullptr;
  Succeeds("library", DRIVER(cuLibraryLoadData)(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel found = nullptr;
  Succeeds("library.kernel", DRIVER(cuLibraryGetKernel)(&found, library, kernel));
  CUfunction function = nullptr;
  Succeeds("library.function", DRIVER(cuKernelGetFunction)(&function, found));
  Succeeds("library.unload", DRIVER(cuLibraryUnload)(library));
}

std::string Contents(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

// What a program hands over for its embedded images: a wrapper around a fatbin, or, when it was compiled with
// -rdc=true, around a list of them. `path` holds the section that nvcc put into the host object.
int CheckWrapper(bool relocatable, const char* path) {
  struct {
    std::uint32_t magic = 0x466243b1;
    std::uint32_t version = 1;
    const void* data = nullptr;
    const void* extra = nullptr;
  } wrapper;
  const std::string section = Contents(path);
  const std::vector<char> fatbin(section.begin(), section.end());
  const void* const objects[] = {fatbin.data(), nullptr};
  wrapper.version = relocatable ? 2 : 1;
  (relocatable ? wrapper.extra : wrapper.data) = relocatable ? static_cast<const void*>(objects) : fatbin.data();
  CUmodule module = nullptr;
  Succeeds("load", DRIVER(cuModuleLoadFatBinary)(&module, &wrapper));
  if (module == nullptr) return 1;
  CheckModule(module, kWrapped, true);
  CheckGlobal(module, "answer", {42});
  CheckLibrary(&wrapper, "wrapped_kernel");
  Succeeds("unload", DRIVER(cuModuleUnload)(module));
  return 0;
}

int CheckFile(const std::string& kind, const char* path) {
  const std::string bytes = Contents(path);
  // The program's copy ends where the file ends: nothing may be read behind it but the NUL of text.
  std::vector<char> image(bytes.begin(), bytes.end());
  if (kind == "ptx") image.push_back('\0');
  CUmodule module = nullptr;
  Succeeds("load", DRIVER(cuModuleLoadData)(&module, image.data()));
  if (module == nullptr) return 1;
  if (kind == "huge") {
    CheckModule(module, kHuge, true);
    CheckLibrary(image.data(), "huge");
  } else {
    CheckModule(module, kKernels, kind != "ptx");
    CheckGlobals(module);
    CheckLibrary(image.data(), "tile");
  }
  Succeeds("synchronize", DRIVER(cuCtxSynchronize)());
  Succeeds("unload", DRIVER(cuModuleUnload)(module));
  return 0;
}

// Nearly all that is said to be free can be had, no more than that, and the refusal is the driver's own.
void CheckMemory(std::size_t limit) {
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  Succeeds("memory", DRIVER(cuMemGetInfo_v2)(&free_bytes, &total));
  if (limit != 0) Equal("memory.total", static_cast<long long>(total), static_cast<long long>(limit));
  std::vector<CUdeviceptr> taken;
  std::size_t sum = 0;
  CUresult refusal = CUDA_SUCCESS;
  for (std::size_t chunk = std::size_t{256} << 20; chunk >= std::size_t{64} << 10; chunk /= 16) {
    CUdeviceptr address = 0;
    while ((refusal = DRIVER(cuMemAlloc_v2)(&address, chunk)) == CUDA_SUCCESS) {
      taken.push_back(address);
      sum += chunk;
    }
  }
  Equal("memory.refusal", refusal, CUDA_ERROR_OUT_OF_MEMORY);
  Within("memory.taken", static_cast<long long>(sum), static_cast<long long>(free_bytes / 100 * 99),
         static_cast<long long>(free_bytes));
  bool freed = true;
  for (const CUdeviceptr address : taken) freed = DRIVER(cuMemFree_v2)(address) == CUDA_SUCCESS && freed;
  Report("memory.freed", freed, "a pointer was refused");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fputs("usage: images LABEL cubin|ptx|huge|wrapper|rdc-wrapper FILE LIMIT\n", stderr), 2;
  g_label = argv[1];
  g_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (g_driver == nullptr) return std::printf("FAIL %s/driver %s\n", argv[1], dlerror()), 1;
  CUcontext ctx = nullptr;
  Succeeds("init", DRIVER(cuInit)(0));
  Succeeds("context", DRIVER(cuDevicePrimaryCtxRetain)(&ctx, 0));
  Succeeds("current", DRIVER(cuCtxSetCurrent)(ctx));
  const std::string kind = argv[2];
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  DRIVER(cuMemGetInfo_v2)(&before, &total);
  const bool wrapped = kind == "wrapper" || kind == "rdc-wrapper";
  const int result = wrapped ? CheckWrapper(kind == "rdc-wrapper", argv[3]) : CheckFile(kind, argv[3]);
  CheckMemory(std::strtoull(argv[4], nullptr, 10) << 20);
  DRIVER(cuMemGetInfo_v2)(&after, &total);
  Equal("memory_given_back", static_cast<long long>(after), static_cast<long long>(before));
  return result != 0 || g_failed ? 1 : 0;
}
