// SPDX-License-Identifier: Apache-2.0
#include "vgpu/loader/symbols.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hami::vgpu {
namespace {

TEST(FindHook, GivenEveryReplacedName_ThenFound) {
  for (int i = 0; i < kHooks; ++i) {
    const Sym sym = static_cast<Sym>(i);
    EXPECT_EQ(FindHook(NameOf(sym)), sym) << NameOf(sym);
  }
}

TEST(FindHook, GivenEveryNameThatIsPassedOn_ThenNotFound) {
  for (const char* name : {
#define HAMI_CUDA_HOOK(...)
#define HAMI_CUDA_PASS(symbol, ...) #symbol,
#define HAMI_CUDA_ALIAS(...)
#include "abi/cuda_api.inc"
#define HAMI_NVML_HOOK(...)
#define HAMI_NVML_PASS(symbol) #symbol,
#include "abi/nvml_api.inc"
           "", "cu", "cuda", "cublasCreate", "curl_easy_init", "nvmlX", "cuMemAlloc_v22"}) {
    EXPECT_EQ(FindHook(name), Sym::kNone) << name;
  }
}

TEST(FindVariants, GivenNameWithSeveralMeanings_ThenAllOfThemAreTogether) {
  const VariantRange range = FindVariants("cuMemAlloc");
  std::set<std::pair<int, Sym>> seen;
  for (const Variant* v = range.first; v != range.last; ++v) {
    EXPECT_STREQ(v->asked_as, "cuMemAlloc");
    seen.insert({v->since, v->sym});
  }
  EXPECT_EQ(seen, (std::set<std::pair<int, Sym>>{{2000, Sym::kNone}, {3020, Sym::cuMemAlloc_v2}}));
}

TEST(FindVariants, GivenNameWithoutReplacement_ThenEmpty) {
  const VariantRange range = FindVariants("cuLaunchHostFunc");
  EXPECT_EQ(range.first, range.last);
}

TEST(FindVariants, GivenReplacedRow_ThenItsNameFindsIt) {
  struct Row {
    const char* asked_as;
    Sym sym;
  };
  for (const Row& row : {
#define HAMI_CUDA_HOOK(symbol, asked_as, ...) Row{#asked_as, Sym::symbol},
#define HAMI_CUDA_PASS(...)
#define HAMI_CUDA_ALIAS(...)
#include "abi/cuda_api.inc"
       }) {
    bool found = false;
    const VariantRange range = FindVariants(row.asked_as);
    for (const Variant* v = range.first; v != range.last; ++v) found = found || v->sym == row.sym;
    EXPECT_TRUE(found) << row.asked_as;
  }
}

}  // namespace
}  // namespace hami::vgpu
