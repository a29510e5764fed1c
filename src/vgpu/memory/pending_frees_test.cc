// SPDX-License-Identifier: Apache-2.0
// What may still be under way, against the order of frees and waits.
#include "vgpu/memory/pending_frees.h"

#include <gtest/gtest.h>

#include "vgpu/loader/driver.h"

namespace hami::vgpu {

namespace {

// The driver: one stream, whose handle is its number.
struct Asked {
  bool idle = true;
  bool capturing = false;
  bool lives = true;
  int queries = 0;
};
constinit Asked g_asked{};

uintptr_t NumberOf(CUstream stream) { return reinterpret_cast<uintptr_t>(stream); }
CUresult GetId(CUstream stream, unsigned long long* number) {
  *number = NumberOf(stream);
  return CUDA_SUCCESS;
}
CUresult GetContext(CUstream, CUcontext* out) {
  *out = reinterpret_cast<CUcontext>(uintptr_t{16});
  return CUDA_SUCCESS;
}
CUresult Capturing(CUstream, CUstreamCaptureStatus* out) {
  *out = g_asked.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult Query(CUstream) {
  ++g_asked.queries;
  return g_asked.idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult Push(CUcontext) { return CUDA_SUCCESS; }
CUresult Pop(CUcontext*) { return CUDA_SUCCESS; }
CUresult Exchange(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
bool Lives(CUcontext) { return g_asked.lives; }

}  // namespace

void* DriverSymbol(Sym sym) {
  if (sym == Sym::cuStreamGetId) return reinterpret_cast<void*>(&GetId);
  if (sym == Sym::cuStreamGetCtx) return reinterpret_cast<void*>(&GetContext);
  if (sym == Sym::cuStreamIsCapturing) return reinterpret_cast<void*>(&Capturing);
  if (sym == Sym::cuStreamQuery) return reinterpret_cast<void*>(&Query);
  if (sym == Sym::cuCtxPushCurrent_v2) return reinterpret_cast<void*>(&Push);
  if (sym == Sym::cuCtxPopCurrent_v2) return reinterpret_cast<void*>(&Pop);
  if (sym == Sym::cuThreadExchangeStreamCaptureMode) return reinterpret_cast<void*>(&Exchange);
  return nullptr;
}

namespace {

constexpr uint64_t kPool = 7;

class PendingFreesTest : public testing::Test {
 protected:
  ~PendingFreesTest() override {
    frees_.Reset();
    g_asked = {};
  }
  static CUstream Handle(uintptr_t number) { return reinterpret_cast<CUstream>(number); }
  static CUcontext Context(uintptr_t number) { return reinterpret_cast<CUcontext>(number * 16); }
  static StreamId Stream(uint64_t number, uintptr_t context = 1) { return {number, Context(context)}; }
  void Free(uint64_t bytes, const StreamId& stream, uint64_t pool = kPool) {
    frees_.Begin(pool, bytes);
    frees_.End(pool, bytes, stream, Handle(stream.number), true);
  }
  void WaitFor(uint64_t stream) { frees_.Reached({frees_.SoFar(), {stream, nullptr}}); }
  void WaitFor(CUcontext context) { frees_.Reached({frees_.SoFar(), {0, context}}); }

  PendingFrees frees_;
};

TEST_F(PendingFreesTest, GivenAFree_ThenItIsUnderWayForEveryOtherStream) {
  Free(100, Stream(1));
  EXPECT_EQ(frees_.Unreached(kPool), 100u);
  EXPECT_EQ(frees_.Unreached(kPool, Stream(2)), 100u);
  EXPECT_EQ(frees_.Unreached(kPool, Stream(1)), 0u);
  EXPECT_EQ(frees_.Unreached(kPool + 1), 0u);
}

TEST_F(PendingFreesTest, GivenStreamsThatTheDriverDoesNotName_ThenNoneIsTheSame) {
  Free(100, Stream(0));
  EXPECT_EQ(frees_.Unreached(kPool, Stream(0)), 100u);
  WaitFor(uint64_t{0});
  EXPECT_EQ(frees_.Unreached(kPool), 100u);
  WaitFor(Context(1));
  EXPECT_EQ(frees_.Unreached(kPool), 0u);
}

TEST_F(PendingFreesTest, GivenAWait_ThenOnlyWhatItWaitedForIsReached) {
  Free(1, Stream(1));
  Free(10, Stream(2));
  Free(100, Stream(3, 2));
  Free(1000, {});
  WaitFor(2);
  EXPECT_EQ(frees_.Unreached(kPool), 1101u);
  WaitFor(Context(1));
  EXPECT_EQ(frees_.Unreached(kPool), 1100u);
  frees_.ForgetContext(Context(2));
  EXPECT_EQ(frees_.Unreached(kPool), 1000u);
  frees_.ForgetPool(kPool);
  EXPECT_EQ(frees_.Unreached(kPool), 0u);
}

TEST_F(PendingFreesTest, GivenAFreeAfterTheWaitBegan_ThenItIsNotReached) {
  Free(1, Stream(1));
  const Waited waited{frees_.SoFar(), {1, nullptr}};
  Free(10, Stream(1));
  frees_.Reached(waited);
  EXPECT_GE(frees_.Unreached(kPool), 10u);
  WaitFor(1);
  EXPECT_EQ(frees_.Unreached(kPool), 0u);
}

TEST_F(PendingFreesTest, GivenFreeInDriversCall_ThenNoWaitReachesItAndNoStreamHasIt) {
  frees_.Begin(kPool, 10);
  WaitFor(1);
  WaitFor(Context(1));
  frees_.ForgetPool(kPool);
  EXPECT_EQ(frees_.Unreached(kPool, Stream(1)), 10u);
  frees_.End(kPool, 10, Stream(1), nullptr, false);  // declined
  EXPECT_EQ(frees_.Unreached(kPool), 0u);
}

TEST_F(PendingFreesTest, GivenStreamsNotToldApart_ThenNothingIsLostAndContextEndsIt) {
  for (uint64_t stream = 1; stream <= 100; ++stream) Free(1, Stream(stream));
  EXPECT_EQ(frees_.Unreached(kPool), 100u);
  EXPECT_EQ(frees_.Unreached(kPool, Stream(100)), 100u);
  for (uint64_t stream = 1; stream <= 100; ++stream) WaitFor(stream);
  EXPECT_GT(frees_.Unreached(kPool), 0u);
  WaitFor(Context(1));
  EXPECT_EQ(frees_.Unreached(kPool), 0u);
}

TEST_F(PendingFreesTest, GivenIdleStream_WhenAsked_ThenOnlyItsFreesAreReached) {
  Free(1, Stream(1));
  Free(10, Stream(1), kPool + 1);
  Free(100, {0, Context(1)});
  g_asked.idle = false;
  frees_.AskStreams(&Lives);
  EXPECT_EQ(frees_.Unreached(kPool), 101u);
  g_asked.idle = true;
  frees_.AskStreams(&Lives);
  EXPECT_EQ(frees_.Unreached(kPool), 100u) << "a stream without a number is not known to be the one";
  EXPECT_EQ(frees_.Unreached(kPool + 1), 0u);
}

TEST_F(PendingFreesTest, GivenAStreamThatMayNotBeTouched_WhenAsked_ThenItIsNot) {
  Free(1, Stream(1));
  g_asked.lives = false;
  frees_.AskStreams(&Lives);
  g_asked.lives = true;
  g_asked.capturing = true;
  frees_.AskStreams(&Lives);
  g_asked.capturing = false;
  frees_.ForgetStream(Handle(1));
  frees_.AskStreams(&Lives);
  EXPECT_EQ(g_asked.queries, 0);
  EXPECT_EQ(frees_.Unreached(kPool), 1u);
  Free(1, Stream(1));  // it was another handle's end, or there is a new one
  frees_.ForgetStream(nullptr);
  frees_.AskStreams(&Lives);
  EXPECT_EQ(g_asked.queries, 0);
}

TEST_F(PendingFreesTest, GivenHandleOfOtherStreamHere_WhenAsked_ThenNothingIsReached) {
  frees_.Begin(kPool, 1);
  frees_.End(kPool, 1, Stream(1), Handle(2), true);
  frees_.AskStreams(&Lives);
  EXPECT_EQ(g_asked.queries, 0);
  EXPECT_EQ(frees_.Unreached(kPool), 1u);
}

TEST_F(PendingFreesTest, GivenAFreeInTheDriversCall_WhenAsked_ThenItIsNotReached) {
  frees_.Begin(kPool, 1);
  frees_.AskStreams(&Lives);
  EXPECT_EQ(frees_.Unreached(kPool), 1u);
}

}  // namespace
}  // namespace hami::vgpu
