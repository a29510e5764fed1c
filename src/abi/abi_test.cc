// SPDX-License-Identifier: Apache-2.0
//
// The declarations stand by themselves, lie as they should, and agree with the two lists. Most of it is said when this
// compiles.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "abi/cuda_abi.h"
#include "abi/nvml_abi.h"

#include "abi/cuda_layout.inc"
#include "abi/nvml_layout.inc"

namespace {

// Every row of the list has a declaration: a misspelt symbol does not compile. (What came with 13 can not be declared
// over NVIDIA's 12.x header.)
#if CUDA_VERSION >= 13000
#define HAMI_CUDA_HOOK(symbol, asked_as, since, flavour) static_assert(sizeof(decltype(&::symbol)) == sizeof(void*));
#define HAMI_CUDA_PASS HAMI_CUDA_HOOK
#define HAMI_CUDA_ALIAS HAMI_CUDA_HOOK
#include "abi/cuda_api.inc"
#endif

struct Row {
  std::string_view kind, symbol, asked_as;
  int since;
  std::string_view flavour;
};

#define HAMI_CUDA_HOOK(symbol, asked_as, since, flavour) Row{"HOOK", #symbol, #asked_as, since, #flavour},
#define HAMI_CUDA_PASS(symbol, asked_as, since, flavour) Row{"PASS", #symbol, #asked_as, since, #flavour},
#define HAMI_CUDA_ALIAS(symbol, asked_as, since, flavour) Row{"ALIAS", #symbol, #asked_as, since, #flavour},
constexpr Row kCuda[] = {
#include "abi/cuda_api.inc"
};

#define HAMI_NVML_HOOK(symbol) #symbol,
#define HAMI_NVML_PASS(symbol) #symbol,
constexpr std::string_view kNvml[] = {
#include "abi/nvml_api.inc"
};

TEST(CudaList, GivenAllRows_ThenEachSymbolHasOneRowAndAliasesPointAtOne) {
  std::set<std::string_view> symbols;
  for (const Row& row : kCuda) {
    if (row.kind != "ALIAS") {
      EXPECT_TRUE(symbols.insert(row.symbol).second) << row.symbol;
    }
  }
  for (const Row& row : kCuda) EXPECT_TRUE(symbols.contains(row.symbol)) << row.symbol;
  EXPECT_GT(symbols.size(), 600u);
}

TEST(CudaList, GivenNameVersionAndFlavour_WhenLookedUp_ThenAtMostOneRow) {
  std::map<std::tuple<std::string_view, int, std::string_view>, std::string_view> rows;
  for (const Row& row : kCuda) {
    auto [it, inserted] = rows.insert({{row.asked_as, row.since, row.flavour}, row.symbol});
    EXPECT_TRUE(inserted) << row.symbol << " and " << it->second;
  }
}

TEST(CudaList, GivenFlavour_WhenComparedWithSymbol_ThenItsSuffixSaysTheSame) {
  for (const Row& row : kCuda) {
    EXPECT_EQ(row.flavour == "PTDS", row.symbol.ends_with("_ptds")) << row.symbol;
    EXPECT_EQ(row.flavour == "PTSZ", row.symbol.ends_with("_ptsz")) << row.symbol;
    EXPECT_TRUE(row.symbol.starts_with(row.asked_as) || row.kind == "ALIAS") << row.symbol;
  }
}

TEST(CudaList, GivenAnyRowWhenReadThenItsVersionIsOneThatCudaHad) {
  for (const Row& row : kCuda) {
    EXPECT_GE(row.since, 2000) << row.symbol;
    EXPECT_LT(row.since, 14000) << row.symbol;
    EXPECT_EQ(row.since % 10, 0) << row.symbol;
  }
}

TEST(NvmlList, GivenAllRowsWhenReadThenNoneComesTwice) {
  std::set<std::string_view> symbols;
  for (std::string_view symbol : kNvml) EXPECT_TRUE(symbols.insert(symbol).second) << symbol;
  EXPECT_GT(symbols.size(), 400u);
}

// A version word is the size, with the version in the top byte: what a client of another language writes by hand.
TEST(NvmlVersions, GivenCommonStructs_WhenTheirWordIsBuilt_ThenTheKnownNumber) {
  EXPECT_EQ(nvmlMemory_v2, 0x02000028u);
  EXPECT_EQ(nvmlTemperature_v1, 0x0100000cu);
  EXPECT_EQ(nvmlGpuFabricInfo_v2, 0x02000024u);
  EXPECT_EQ(nvmlProcessDetailList_v1, 0x01000018u);
}

}  // namespace
