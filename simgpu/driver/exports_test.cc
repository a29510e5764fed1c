// SPDX-License-Identifier: Apache-2.0
// The built library from outside: every symbol of the list is exported, look-ups answer the library's own addresses,
// and what is not simulated declines whatever it is given.
//   exports_test LIBRARY

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

namespace {

void* g_library = nullptr;

constexpr const char* kSymbols[] = {
#define SIMGPU_NAME(symbol, asked_as, since, flavour) #symbol,
#define HAMI_CUDA_HOOK SIMGPU_NAME
#define HAMI_CUDA_PASS SIMGPU_NAME
#define HAMI_CUDA_ALIAS(symbol, asked_as, since, flavour)
#include "abi/cuda_api.inc"
};

constexpr const char* kForeign[] = {
#define SIMGPU_FOREIGN(symbol) #symbol,
#include "simgpu/driver/foreign_api.inc"
};

using Lookup = int (*)(const char*, void**, int, unsigned long long, int*);
using LookupV1 = int (*)(const char*, void**, int, unsigned long long);

template <typename Function>
Function Get(const char* name) {
  return reinterpret_cast<Function>(dlsym(g_library, name));
}

TEST(Exports, GivenTheListWhenLookedUpThenEveryNameIsExported) {
  ASSERT_GT(std::size(kSymbols), 680u);
  for (const char* symbol : kSymbols) EXPECT_NE(dlsym(g_library, symbol), nullptr) << symbol;
}

// So that the file can be copied anywhere and loaded into anything. (An instrumented build needs its sanitizer, too.)
TEST(Exports, GivenTheLibraryWhenLoadedThenItNeedsTheCLibraryOnly) {
  const link_map* map = nullptr;
  ASSERT_EQ(dlinfo(g_library, RTLD_DI_LINKMAP, &map), 0);
  const char* names = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  }
  ASSERT_NE(names, nullptr);
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag != DT_NEEDED) continue;
    const std::string needed = names + entry->d_un.d_val;
    if (needed.find("san.so") != std::string::npos) GTEST_SKIP() << "instrumented: needs " << needed;
    EXPECT_TRUE(needed == "libc.so.6" || needed == "libm.so.6" || needed.rfind("ld-linux", 0) == 0) << needed;
  }
}

TEST(Exports, GivenForeignNamesWhenLookedUpThenNothingElseIsExported) {
  EXPECT_EQ(dlsym(g_library, "LZ4_decompress_safe"), nullptr);
  EXPECT_EQ(dlsym(g_library, "ZSTD_decompress"), nullptr);
}

TEST(Exports, GivenOwnFunctionWhenAskedThenByExportedNameOnly) {
  const auto own = Get<void* (*)(const char*)>("simgpu_own_function");
  ASSERT_NE(own, nullptr);
  for (const char* name : {"cuInit", "cuMemAlloc_v2", "cuMemcpyHtoD_v2_ptds"})
    EXPECT_EQ(own(name), dlsym(g_library, name));
  EXPECT_EQ(own("cuNoSuchFunction"), nullptr);
  EXPECT_EQ(own(nullptr), nullptr);
}

TEST(Exports, GivenLookupsWhenAnsweredThenAddressesAreTheLibrarysOwn) {
  const auto lookup = Get<Lookup>("cuGetProcAddress_v2");
  ASSERT_NE(lookup, nullptr);
  void* address = nullptr;
  int status = -1;
  EXPECT_EQ(lookup("cuMemAlloc", &address, 12000, 0, &status), 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(address, dlsym(g_library, "cuMemAlloc_v2"));
  EXPECT_EQ(lookup("cuMemcpyHtoD", &address, 12000, 2, &status), 0);
  EXPECT_EQ(address, dlsym(g_library, "cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(lookup("cuMemcpyHtoD", &address, 12000, 1, nullptr), 0);
  EXPECT_EQ(address, dlsym(g_library, "cuMemcpyHtoD_v2"));
}

TEST(Exports, GivenRefusedLookupsWhenAnsweredThenPointerAndStatusSayWhy) {
  const auto lookup = Get<Lookup>("cuGetProcAddress_v2");
  int here = 0;
  void* address = &here;
  int status = -1;
  EXPECT_EQ(lookup("", &address, 0, 0, &status), 500);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(address, nullptr);
  address = &here;
  EXPECT_EQ(lookup("cuLibraryLoadData", &address, 11000, 0, &status), 500);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(lookup(nullptr, &address, 12000, 0, &status), 1);
  EXPECT_EQ(lookup("cuInit", nullptr, 12000, 0, &status), 1);
  EXPECT_EQ(lookup("cuInit", &address, 12000, 4, &status), 1);
}

TEST(Exports, GivenLookupAskedForItselfWhenOldThenTheFourArgumentFormWorks) {
  void* address = nullptr;
  EXPECT_EQ(Get<Lookup>("cuGetProcAddress_v2")("cuGetProcAddress", &address, 11030, 0, nullptr), 0);
  EXPECT_EQ(address, dlsym(g_library, "cuGetProcAddress"));
  const auto old = reinterpret_cast<LookupV1>(address);
  EXPECT_EQ(old("cuInit", &address, 2000, 0), 0);
  EXPECT_EQ(address, dlsym(g_library, "cuInit"));
  EXPECT_EQ(old("cuNothing", &address, 12000, 0), 500);
  EXPECT_EQ(address, nullptr);
}

TEST(Exports, GivenWhatIsNotSimulatedWhenCalledWithAnythingThenItDeclines) {
  using Any = int (*)(std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t);
  std::vector<const char*> symbols(std::begin(kForeign), std::end(kForeign));
  symbols.insert(symbols.end(), {"cuCheckpointProcessLock", "cuTexRefCreate", "cuCoredumpGetAttribute"});
  for (const char* symbol : symbols) {
    const auto call = Get<Any>(symbol);
    ASSERT_NE(call, nullptr) << symbol;
    EXPECT_EQ(call(0, 0, 0, 0, 0, 0), 801) << symbol;
    EXPECT_EQ(call(1, 2, 3, 4, 5, ~std::uintptr_t{0}), 801) << symbol;
  }
}

// The names that FFmpeg's loader of the driver asks for; without each of them it finds no CUDA at all.
TEST(Exports, GivenOtherApis_WhenDriverIsLoaded_ThenTheirNamesAreThere) {
  for (const char* symbol : {"cuGLGetDevices_v2", "cuGraphicsGLRegisterImage", "cuEGLStreamProducerConnect",
                             "cuEGLStreamProducerPresentFrame", "cuEGLStreamConsumerDisconnect"}) {
    EXPECT_NE(dlsym(g_library, symbol), nullptr) << symbol;
  }
}

TEST(Exports, GivenExportTables_WhenAsked_ThenDeclinedAndOneLineSaysWhy) {
  unsetenv("SIMGPU_QUIET");
  const auto table = Get<int (*)(const void**, const void*)>("cuGetExportTable");
  const char id[16] = {};
  const void* out = &id;
  testing::internal::CaptureStderr();
  EXPECT_EQ(table(&out, id), 1);
  EXPECT_EQ(table(&out, id), 1);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_EQ(table(nullptr, nullptr), 1);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return std::fputs("usage: exports_test LIBRARY\n", stderr), 2;
  g_library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (g_library == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  return RUN_ALL_TESTS();
}
