// SPDX-License-Identifier: Apache-2.0
// Events of several processes: order that holds across them. The machine's clock is virtual: time moves with whoever
// waits, so that a process that sits at a pipe leaves its work undone.
#include <cstring>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

constexpr unsigned kFlags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

class IpcEventTest : public TimedTest {
 protected:
  static CUipcEventHandle HandleOf(CUevent event) {
    CUipcEventHandle handle{};
    EXPECT_OK(cuIpcGetEventHandle(&handle, event));
    return handle;
  }
  static CUevent Open(const CUipcEventHandle& handle) {
    CUevent event = nullptr;
    EXPECT_OK(cuIpcOpenEventHandle(&event, handle));
    return event;
  }
};

TEST_F(IpcEventTest, GivenRecordBehindWork_WhenPeerWaits_ThenPeerGoesOnAfterIt) {
  Pipe handles;
  Pipe go;
  Pipe done;
  Child owner([&] {
    UsePrimary(0);
    const Gpu gpu;
    const CUstream stream = NewStream();
    const CUevent event = NewEvent(kFlags);
    EXPECT_OK(gpu.Launch(stream, 5 * kMilli));
    EXPECT_OK(cuEventRecord(event, stream));
    handles.Send(HandleOf(event));
    go.Receive<int>();
    EXPECT_OK(cuStreamSynchronize(stream));
    done.Receive<int>();
  });
  Run([&] {
    UsePrimary(1);
    const Gpu gpu;
    const CUevent event = Open(handles.Receive<CUipcEventHandle>());
    const CUstream stream = NewStream();
    const CUevent start = Mark(stream);
    EXPECT_OK(cuStreamWaitEvent(stream, event, 0));
    EXPECT_OK(gpu.Launch(stream, 1 * kMilli));
    const CUevent end = Mark(stream);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    go.Send(1);
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuEventQuery(event));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT_EQ(Between(start, end), 6 * kMilli);
    float ms = 0;
    EXPECT_EQ(cuEventElapsedTime(&ms, start, event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_OK(cuEventDestroy_v2(event));
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    done.Send(1);
  });
  EXPECT_EQ(owner.Join(), 0);
}

TEST_F(IpcEventTest, GivenOpenedEvent_WhenOpenerRecords_ThenOwnerWaitsForIt) {
  Pipe handles;
  Pipe recorded;
  Pipe asked;
  Child peer([&] {
    UsePrimary(1);
    const Gpu gpu;
    const CUevent event = Open(handles.Receive<CUipcEventHandle>());
    const CUstream stream = NewStream();
    EXPECT_OK(gpu.Launch(stream, 3 * kMilli));
    EXPECT_OK(cuEventRecord(event, stream));
    recorded.Send(1);
    asked.Receive<int>();
    EXPECT_OK(cuStreamSynchronize(stream));
  });
  Run([&] {
    UsePrimary(0);
    const CUevent event = NewEvent(kFlags);
    EXPECT_OK(cuEventQuery(event)) << "never recorded: nothing to wait for";
    EXPECT_OK(cuEventSynchronize(event));
    handles.Send(HandleOf(event));
    recorded.Receive<int>();
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    asked.Send(1);
    EXPECT_OK(cuEventSynchronize(event));
  });
  EXPECT_EQ(peer.Join(), 0);
}

TEST_F(IpcEventTest, GivenWait_WhenEventRecordedAnew_ThenWaitIsForFormerRecord) {
  Pipe handles;
  Pipe waiting;
  Pipe again;
  Pipe done;
  Child owner([&] {
    UsePrimary(0);
    const Gpu gpu;
    const CUstream stream = NewStream();
    const CUevent event = NewEvent(kFlags);
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuEventSynchronize(event));
    handles.Send(HandleOf(event));
    waiting.Receive<int>();
    EXPECT_OK(gpu.Launch(stream, 5 * kMilli));
    EXPECT_OK(cuEventRecord(event, stream));
    again.Send(1);
    done.Receive<int>();
  });
  Run([&] {
    UsePrimary(1);
    const CUevent event = Open(handles.Receive<CUipcEventHandle>());
    const CUstream stream = NewStream();
    EXPECT_OK(cuStreamWaitEvent(stream, event, 0));
    waiting.Send(1);
    again.Receive<int>();
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_OK(cuStreamSynchronize(stream)) << "the second record is nobody's business here";
    done.Send(1);
  });
  EXPECT_EQ(owner.Join(), 0);
}

TEST_F(IpcEventTest, GivenOneProcess_WhenItUsesIpcEvent_ThenItOrdersAsAnyOther) {
  RunWithContext([] {
    const Gpu gpu;
    const CUstream first = NewStream();
    const CUstream second = NewStream();
    const CUevent event = NewEvent(kFlags);
    const CUevent start = Mark(second);
    EXPECT_OK(gpu.Launch(first, 2 * kMilli));
    EXPECT_OK(cuEventRecord(event, first));
    EXPECT_OK(cuStreamWaitEvent(second, event, 0));
    const CUevent end = Mark(second);
    EXPECT_OK(cuStreamSynchronize(second));
    EXPECT_EQ(Between(start, end), 2 * kMilli);
    EXPECT_OK(cuEventDestroy_v2(event));
    // Its place is used again, and nothing is left of it.
    const CUevent fresh = NewEvent(kFlags);
    EXPECT_OK(cuEventQuery(fresh));
    EXPECT_OK(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_OK(cuStreamWaitEvent(first, fresh, 0)) << "never recorded: the capture does not depend on it";
    CUgraph graph = nullptr;
    EXPECT_OK(cuStreamEndCapture(first, &graph));
  });
}

TEST_F(IpcEventTest, GivenPendingRecord_WhenItsContextIsDestroyed_ThenNobodyWaits) {
  Pipe handles;
  Pipe opened;
  Pipe seen;
  Child owner([&] {
    UsePrimary(0);
    CUdeviceptr gate = 0;
    ASSERT_OK(cuMemAlloc_v2(&gate, 512));
    ASSERT_OK(cuMemsetD32_v2(gate, 0, 1));
    CUcontext ctx = nullptr;
    ASSERT_OK(cuCtxCreate_v2(&ctx, 0, 0));
    const CUstream stream = NewStream();
    const CUevent event = NewEvent(kFlags);
    EXPECT_OK(cuStreamWaitValue32_v2(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_OK(cuEventRecord(event, stream));
    handles.Send(HandleOf(event));
    opened.Receive<int>();
    EXPECT_OK(cuCtxDestroy_v2(ctx));
    seen.Receive<int>();
  });
  Run([&] {
    UsePrimary(1);
    const CUevent event = Open(handles.Receive<CUipcEventHandle>());
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    opened.Send(1);
    EXPECT_OK(cuEventSynchronize(event));
    seen.Send(1);
  });
  EXPECT_EQ(owner.Join(), 0);
}

TEST_F(IpcEventTest, GivenRealClock_WhenRecorderIsIdle_ThenItsRecordIsReached) {
  std::ofstream(folder_ + "/config", std::ios::app) << "option clock=real\n";
  Pipe handles;
  Pipe done;
  Child owner([&] {
    UsePrimary(0);
    const Gpu gpu;
    const CUstream stream = NewStream();
    const CUevent event = NewEvent(kFlags);
    EXPECT_OK(gpu.Launch(stream, 2 * kMilli));
    EXPECT_OK(cuEventRecord(event, stream));
    handles.Send(HandleOf(event));
    done.Receive<int>();
  });
  Run([&] {
    UsePrimary(1);
    const CUevent event = Open(handles.Receive<CUipcEventHandle>());
    EXPECT_OK(cuEventSynchronize(event));
    EXPECT_OK(cuEventQuery(event));
    done.Send(1);
  });
  EXPECT_EQ(owner.Join(), 0);
}

TEST_F(IpcEventTest, GivenWhatIsNoHandleOfALiveEventWhenOpenedThenItIsRefused) {
  Pipe handles;
  Pipe done;
  Child owner([&] {
    UsePrimary(0);
    const CUevent event = NewEvent(kFlags);
    CUipcEventHandle handle = HandleOf(event);
    CUevent own = nullptr;
    EXPECT_EQ(cuIpcOpenEventHandle(&own, handle), CUDA_ERROR_INVALID_CONTEXT) << "of this very process";
    EXPECT_EQ(cuIpcOpenEventHandle(nullptr, handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuIpcGetEventHandle(nullptr, event), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuIpcGetEventHandle(&handle, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuIpcGetEventHandle(&handle, NewEvent(CU_EVENT_DISABLE_TIMING)), CUDA_ERROR_INVALID_HANDLE);
    CUevent timed = nullptr;
    EXPECT_EQ(cuEventCreate(&timed, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    int supported = 0;
    EXPECT_OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
    EXPECT_EQ(supported, 1);
    EXPECT_OK(cuEventDestroy_v2(event));
    handles.Send(handle);
    CUdeviceptr p = 0;
    CUipcMemHandle memory{};
    ASSERT_OK(cuMemAlloc_v2(&p, 512));
    ASSERT_OK(cuIpcGetMemHandle(&memory, p));
    handles.Send(memory);
    done.Receive<int>();
  });
  Run([&] {
    UsePrimary(1);
    CUevent event = nullptr;
    const auto gone = handles.Receive<CUipcEventHandle>();
    EXPECT_EQ(cuIpcOpenEventHandle(&event, gone), CUDA_ERROR_INVALID_HANDLE) << "destroyed";
    CUipcEventHandle other{};
    const auto memory = handles.Receive<CUipcMemHandle>();
    std::memcpy(&other, &memory, sizeof other);
    EXPECT_EQ(cuIpcOpenEventHandle(&event, other), CUDA_ERROR_INVALID_HANDLE) << "memory";
    EXPECT_EQ(cuIpcOpenEventHandle(&event, CUipcEventHandle{}), CUDA_ERROR_INVALID_HANDLE);
    done.Send(1);
  });
  EXPECT_EQ(owner.Join(), 0);
}

TEST_F(IpcEventTest, GivenAProcessThatIsGoneWhenItsEventIsOpenedThenItIsRefused) {
  Pipe handles;
  Run([&] {
    UsePrimary(0);
    handles.Send(HandleOf(NewEvent(kFlags)));
  });
  Run([&] {
    UsePrimary(1);
    CUevent event = nullptr;
    EXPECT_EQ(cuIpcOpenEventHandle(&event, handles.Receive<CUipcEventHandle>()), CUDA_ERROR_INVALID_HANDLE);
  });
}

}  // namespace
}  // namespace simgpu::testing
