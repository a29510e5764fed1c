// SPDX-License-Identifier: Apache-2.0
// What the registry says of contexts, and whom it tells, with a driver and listeners made of a few lines.
#include "vgpu/runtime/contexts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {
namespace {

CUcontext ContextAt(uintptr_t address) { return reinterpret_cast<CUcontext>(address); }
const CUcontext kFirst = ContextAt(0x100);
const CUcontext kSecond = ContextAt(0x200);

CUcontext g_current = nullptr;
int g_asked = 0;
int g_kept_for = 0;
std::vector<std::string> g_heard;

CUresult GetCurrent(CUcontext* out) {
  *out = g_current;
  return CUDA_SUCCESS;
}
CUresult GetDevice(CUdevice* out) {
  ++g_asked;
  *out = g_current == kFirst ? 0 : 1;
  return CUDA_SUCCESS;
}

uint32_t IdOf(CUcontext handle) {
  g_current = handle;
  ContextRef context;
  EXPECT_TRUE(CurrentContext(&context));
  return context.id;
}

bool Leave(uint32_t id) {
  bool left = false;
  const bool taken = LeaveToContextEnd(
      id, [](void* what) { *static_cast<bool*>(what) = true; }, &left);
  EXPECT_EQ(taken, left);
  return taken;
}

class ContextsTest : public testing::Test {
 protected:
  ContextsTest() {
    ResetContexts();
    g_current = nullptr;
    g_asked = g_kept_for = 0;
    g_heard.clear();
  }
};

TEST_F(ContextsTest, NoCurrentContext_IsNoPlace) {
  ContextRef context;
  EXPECT_FALSE(CurrentContext(&context));
}

TEST_F(ContextsTest, CurrentContext_IsAskedOnceUntilAHandleMayBeAnothers) {
  ContextMade(kFirst, 0, ContextKind::kCreated, 7);
  const uint32_t id = IdOf(kFirst);
  EXPECT_EQ(IdOf(kFirst), id);
  EXPECT_EQ(g_asked, 1);
  EXPECT_NE(IdOf(kSecond), id) << "a context that was not seen being made has a number, too";
  g_asked = 0;
  { const StreamEnd end; }
  EXPECT_NE(IdOf(kSecond), id);
  EXPECT_EQ(g_asked, 1);
}

TEST_F(ContextsTest, NvmlIsKept_WhileThereAreContexts) {
  ContextMade(kFirst, 0, ContextKind::kCreated, 0);
  ContextMade(kSecond, 1, ContextKind::kCreated, 0);
  EXPECT_EQ(g_kept_for, 2);
  EXPECT_EQ(ContextsOn(1), 1);
  EXPECT_FALSE(ContextsOnlyOn(1));
  EndedContext ended;
  EXPECT_TRUE(ForgetContext(kFirst, &ended));
  EXPECT_TRUE(ContextsOnlyOn(1));
  EXPECT_TRUE(ForgetContext(kSecond, &ended));
  EXPECT_EQ(g_kept_for, 0);
  EXPECT_FALSE(ForgetContext(kSecond, &ended));
}

TEST_F(ContextsTest, End_IsToldBeforeTheDriverEndsIt) {
  ContextMade(kFirst, 0, ContextKind::kCreated, 7);
  const uint32_t id = IdOf(kFirst);
  EXPECT_TRUE(ContextLives(kFirst));
  EndedContext ended;
  {
    const ContextEnd end(kFirst);
    EXPECT_FALSE(ContextLives(kFirst));
    EXPECT_EQ(g_heard, std::vector<std::string>{"ending"});
    EXPECT_TRUE(Leave(id)) << "what is freed meanwhile counts until it has ended";
    ASSERT_TRUE(ForgetContext(kFirst, &ended));
  }
  EXPECT_EQ(ended.id, id);
  EXPECT_EQ(ended.bytes, 7u);
  EXPECT_EQ(g_heard, std::vector<std::string>{"ending"}) << "it is gone: nothing stays";
}

TEST_F(ContextsTest, EndThatWasNone_IsToldWhereSomethingWasLeftToIt) {
  ContextMade(kFirst, 0, ContextKind::kCreated, 7);
  const uint32_t id = IdOf(kFirst);
  { const ContextEnd end(kFirst); }
  EXPECT_EQ(g_heard, std::vector<std::string>{"ending"});
  {
    const ContextEnd outer(kFirst);
    {
      const ContextEnd inner(kFirst);
      EXPECT_TRUE(Leave(id));
    }
    EXPECT_EQ(g_heard.size(), 3u) << "the outer one may be the end yet";
  }
  EXPECT_EQ(g_heard.back(), "stays " + std::to_string(id));
  EXPECT_TRUE(ContextLives(kFirst));
  EXPECT_FALSE(Leave(id)) << "nothing ends it now";
}

TEST_F(ContextsTest, EndOfOneUnknown_TellsNobody) {
  const ContextEnd end(kSecond);
  EXPECT_TRUE(g_heard.empty());
  EXPECT_FALSE(Leave(0));
}

TEST_F(ContextsTest, PrimaryContext_CountsItsReferences) {
  ContextMade(kFirst, 0, ContextKind::kPrimary, 7);
  ContextMade(kFirst, 0, ContextKind::kPrimary, 0);
  EXPECT_EQ(PrimaryOf(0), kFirst);
  EXPECT_EQ(PrimaryOf(1), nullptr);
  EXPECT_FALSE(LastOfPrimary(0));
  PrimaryReleased(0);
  EXPECT_TRUE(LastOfPrimary(0));
}

}  // namespace

// What the registry is built on, and whom it tells.
int DeviceOfOrdinal(CUdevice ordinal) { return ordinal; }
void KeepNvmlWhile(int contexts) { g_kept_for = contexts; }
void TellContextEnding() { g_heard.push_back("ending"); }
void TellContextStays(uint32_t id) { g_heard.push_back("stays " + std::to_string(id)); }

void* DriverSymbol(Sym sym) {
  switch (sym) {
    case Sym::cuCtxGetCurrent:
      return reinterpret_cast<void*>(&GetCurrent);
    case Sym::cuCtxGetDevice:
      return reinterpret_cast<void*>(&GetDevice);
    default:
      return nullptr;
  }
}

}  // namespace hami::vgpu
