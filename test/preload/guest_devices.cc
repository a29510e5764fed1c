// SPDX-License-Identifier: Apache-2.0
// Launches of one thread that go to two GPUs by turns, where what decides which one looks the same both times: a handle
// of a stream that ended is another stream's later.
#include <functional>

#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

constexpr const char* kImage = "simgpu-image 1\nkernel some\n  cost total 10us\n";  // twenty of them are a lease

// Not bound to a context: goes where its stream is.
CUfunction LibraryKernel() {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  OK(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "some"));
  return reinterpret_cast<CUfunction>(kernel);
}

// The driver's own functions, of which the library hears nothing.
template <typename F>
F* Own(const char* name) {
  return reinterpret_cast<F*>(simgpu_own_function(name));
}
#define OWN(name) Own<decltype(::name)>(#name)

CUstream OwnStream() {
  CUstream stream = nullptr;
  OK(OWN(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

// A stream of the current context that has the handle of one that ended: the driver uses each again in the end.
CUstream StreamNamed(CUstream handle) {
  for (int i = 0; i < 100'000; ++i) {
    const CUstream stream = OwnStream();
    if (stream == handle) return stream;
    OK(OWN(cuStreamDestroy_v2)(stream));
  }
  Fail(__FILE__, __LINE__, "the handle is used again", 0, 1);
}

void Use(CUcontext context) { OK(cuCtxSetCurrent(context)); }

// Makes a stream on GPU 0 and gives out how it ends.
struct Ending {
  CUstream stream;
  std::function<void()> end;
};

Ending EndingOf(const std::string& how) {
  CUcontext context = nullptr;
  if (how == "green") {
    const CUgreenCtx green = GreenContext(0);
    CUstream stream = nullptr;
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return {stream, [green] { OK(cuGreenCtxDestroy(green)); }};
  }
  if (how.starts_with("primary")) {
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    Use(context);
    return {NewStream(), [how] {
              if (how == "primary_released") OK(cuDevicePrimaryCtxRelease(0));
              if (how == "primary_released_v2") OK(cuDevicePrimaryCtxRelease_v2(0));
              if (how == "primary_reset") OK(cuDevicePrimaryCtxReset(0));
              if (how == "primary_reset_v2") OK(cuDevicePrimaryCtxReset_v2(0));
            }};
  }
  if (how == "detached" || how.starts_with("context")) {
    OK(cuCtxCreate_v2(&context, 0, 0));
    return {NewStream(), [how, context] {
              if (how == "context") OK(cuCtxDestroy_v2(context));
              if (how == "context_v1") OK(cuCtxDestroy(context));
              if (how == "detached") OK(cuCtxDetach(context));
            }};
  }
  Begin(0);
  const CUstream stream = NewStream();
  return {stream, [how, stream] {
            if (how == "stream") OK(cuStreamDestroy_v2(stream));
            if (how == "stream_v1") OK(cuStreamDestroy(stream));
            if (how == "another_thread") std::thread([stream] { OK(cuStreamDestroy_v2(stream)); }).join();
          }};
}

void LaunchAndWait(CUfunction f, CUstream stream, int times) {
  for (int i = 0; i < times; ++i) Launch(f, stream);
  OK(cuStreamSynchronize(stream));
}

// What the kernel costs becomes known. The first launch on a device waits for its account; who waits is measured, for
// up to two seconds where he waits no more, and while he is every launch is looked at.
void WarmUp(CUfunction f) {
  CUstream streams[2];
  for (int device = 0; device < 2; ++device) {
    Begin(device);
    streams[device] = NewStream();
  }
  for (const auto begin = Clock::now(); Seconds(begin) < 2.2;) {
    for (const CUstream stream : streams) LaunchAndWait(f, stream, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (const CUstream stream : streams) OK(cuStreamDestroy_v2(stream));
  Use(nullptr);  // not one that ends
  for (int device = 0; device < 2; ++device) OK(cuDevicePrimaryCtxRelease_v2(device));
}

void TellBusy() {
  Tell("busy0", simgpu_busy_ns(0, 0));
  Tell("busy1", simgpu_busy_ns(1, 0));
}

constexpr int kRounds = 200;
constexpr int kFirst = 2;   // where the second one went is known
constexpr int kSecond = 6;  // and these fit into what is left of the lease

// devices_by_handle HOW: launches on a stream of GPU 0, then on one of GPU 1 that has its handle.
SCENARIO(devices_by_handle) {
  OK(cuInit(0));
  alarm(60);
  CUcontext second = nullptr;
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  Use(second);
  const CUfunction f = LibraryKernel();
  WarmUp(f);
  Use(second);
  for (int round = 0; round < kRounds; ++round) {
    const Ending ending = EndingOf(arguments.at(0));
    LaunchAndWait(f, ending.stream, kFirst);
    ending.end();
    Use(second);
    const CUstream stream = StreamNamed(ending.stream);
    LaunchAndWait(f, stream, kSecond);
    OK(cuStreamDestroy_v2(stream));
  }
  TellBusy();
}

// devices_by_context HOW: the same stream, which is the current context's.
SCENARIO(devices_by_context) {
  const std::string& how = arguments.at(0);
  const CUcontext second = how == "created" ? nullptr : Begin(1);
  const CUcontext first = Begin(0);
  alarm(60);
  const CUfunction f = LibraryKernel();
  const CUstream stream = how == "legacy" ? CU_STREAM_LEGACY : how == "per_thread" ? CU_STREAM_PER_THREAD : nullptr;
  WarmUp(f);
  Use(first);
  for (int round = 0; round < kRounds; ++round) {
    CUcontext was = first;
    const CUstream fresh = OwnStream();  // of GPU 0: a lease for that begins, whatever was thought before
    LaunchAndWait(f, fresh, 1);
    LaunchAndWait(f, stream, 1);
    OK(OWN(cuStreamDestroy_v2)(fresh));
    if (how == "pushed") {
      OK(cuCtxPushCurrent_v2(second));
    } else if (how == "created") {
      OK(cuCtxCreate_v2(&was, 0, 1));  // makes it current; until now there was no context on GPU 1
    } else if (how == "behind") {      // as a library may that has its own way to the driver
      OK(OWN(cuCtxSetCurrent)(second));
    } else {
      Use(second);
    }
    LaunchAndWait(f, stream, kSecond);
    if (how == "pushed") {
      OK(cuCtxPopCurrent_v2(&was));
    } else if (how == "created") {
      OK(cuCtxDestroy_v2(was));  // and the one before is current
    } else {
      Use(first);
    }
  }
  TellBusy();
}

// Streams that live as long as the program, of both GPUs, whichever context is current.
SCENARIO(devices_by_stream) {
  OK(cuInit(0));
  alarm(60);
  CUstream streams[20];
  for (int i = 0; i < 20; ++i) {
    Begin(i % 2);
    streams[i] = NewStream();
  }
  const CUfunction f = LibraryKernel();
  WarmUp(f);
  for (int round = 0; round < kRounds; ++round) {
    LaunchAndWait(f, streams[2 * round % 20], kFirst);
    for (int i = 0; i < kSecond / 2; ++i) LaunchAndWait(f, streams[(2 * (round + i) + 1) % 20], 2);
  }
  TellBusy();
}

}  // namespace
}  // namespace guest
