// SPDX-License-Identifier: Apache-2.0
//
// Every way to start work on the SMs, and the captures that must be left alone. Graph launches are in graphs.cc.
// Dimensions go into the name of a launch one by one.

#include "vgpu/loader/driver.h"
#include "vgpu/memory/allocation_size.h"
#include "vgpu/pacer/pacer.h"
#include "vgpu/runtime/contexts.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

constexpr uint64_t Pair(unsigned low, unsigned high) { return uint64_t{high} << 32 | low; }

// A kernel in its grid.
struct Kernel {
  CUfunction f;
  unsigned gx, gy, gz, bx, by, bz;

  uint64_t Kind() const { return LaunchId(reinterpret_cast<uintptr_t>(f), Pair(gx, gy), Pair(gz, bx), Pair(by, bz)); }
  LaunchName Name() const { return {Kind(), reinterpret_cast<uintptr_t>(f)}; }
};

Kernel KernelOf(const CUlaunchConfig* c, CUfunction f) {
  return {f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ};
}

// The block of the launches of CUDA 3 was set on the function before; the driver knows it, we need not.
template <typename Launch>
CUresult Old(CUfunction f, int width, int height, CUstream stream, Launch launch) {
  return PacedLaunch(Kernel{f, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, 0, 0, 0}, stream, false,
                     launch);
}

// The arguments of a launch that its caller has put on the stack, as one.
struct OnStack {
  uint64_t bz, shared;
  CUstream stream;
  void** params;
  void** extra;
};

// Apart from the exports, so that what passes at once touches few lines of code and moves no argument.
__attribute__((noinline, cold)) CUresult HeldKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                    unsigned by, OnStack s) {
  const auto bz = static_cast<unsigned>(s.bz), shared = static_cast<unsigned>(s.shared);
  return HeldLaunch(Kernel{f, gx, gy, gz, bx, by, bz}, s.stream, false, [&] {
    return real::cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s.stream, s.params, s.extra);
  });
}

__attribute__((noinline, cold)) CUresult HeldKernelPerThread(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                                             unsigned bx, unsigned by, OnStack s) {
  const auto bz = static_cast<unsigned>(s.bz), shared = static_cast<unsigned>(s.shared);
  return HeldLaunch(Kernel{f, gx, gy, gz, bx, by, bz}, s.stream, true, [&] {
    return real::cuLaunchKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared, s.stream, s.params, s.extra);
  });
}

__attribute__((noinline, cold)) CUresult HeldKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                                                      void** extra) {
  return HeldLaunch(KernelOf(config, f), config->hStream, false,
                    [&] { return real::cuLaunchKernelEx(config, f, params, extra); });
}

__attribute__((noinline, cold)) CUresult HeldKernelExPerThread(const CUlaunchConfig* config, CUfunction f,
                                                               void** params, void** extra) {
  return HeldLaunch(KernelOf(config, f), config->hStream, true,
                    [&] { return real::cuLaunchKernelEx_ptsz(config, f, params, extra); });
}

// Told before, so that nothing of ours asks about the stream when its capture begins.
template <typename Begin>
CUresult Began(Begin begin) {
  if (!Active()) return begin();
  CaptureBegan();
  const CUresult result = begin();
  if (result != CUDA_SUCCESS) CaptureEnded();
  return result;
}

// A capture that was spoilt ends too, and says so; only a stream without one has nothing to end.
CUresult Ended(CUresult result) {
  const bool ended = result != CUDA_ERROR_ILLEGAL_STATE && result != CUDA_ERROR_INVALID_VALUE &&
                     result != CUDA_ERROR_INVALID_HANDLE && result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (ended && Active()) CaptureEnded();
  return result;
}

}  // namespace

#if defined(__x86_64__)
// By the platform's convention (System V, class MEMORY) a struct of five words lies where the last five arguments do.
// As one argument they stay there on the way to the driver; a compiler loads and stores each of five again. The header
// says another type of the name that is exported, so the assembler gives it that.
using KernelLaunch = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, OnStack);
#define HAMI_IN_PLACE extern "C" __attribute__((visibility("hidden"), used))
#define HAMI_EXPORT_AS(symbol, function) \
  __asm__(".globl " symbol "\n.type " symbol ", @function\n.set " symbol ", " function "\n")

HAMI_IN_PLACE CUresult hami_launch_kernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                          OnStack s) {
  if (PassesAtOnce(Kernel{f, gx, gy, gz, bx, by, static_cast<unsigned>(s.bz)}, s.stream, false)) {
    return real::cuLaunchKernel.As<KernelLaunch>()(f, gx, gy, gz, bx, by, s);
  }
  return HeldKernel(f, gx, gy, gz, bx, by, s);
}
HAMI_EXPORT_AS("cuLaunchKernel", "hami_launch_kernel");

HAMI_IN_PLACE CUresult hami_launch_kernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                               unsigned by, OnStack s) {
  if (PassesAtOnce(Kernel{f, gx, gy, gz, bx, by, static_cast<unsigned>(s.bz)}, s.stream, true)) {
    return real::cuLaunchKernel_ptsz.As<KernelLaunch>()(f, gx, gy, gz, bx, by, s);
  }
  return HeldKernelPerThread(f, gx, gy, gz, bx, by, s);
}
HAMI_EXPORT_AS("cuLaunchKernel_ptsz", "hami_launch_kernel_ptsz");
#undef HAMI_EXPORT_AS
#undef HAMI_IN_PLACE
#else
HAMI_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                    unsigned bz, unsigned shared, CUstream stream, void** params, void** extra) {
  if (PassesAtOnce(Kernel{f, gx, gy, gz, bx, by, bz}, stream, false)) {
    return real::cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
  }
  return HeldKernel(f, gx, gy, gz, bx, by, {bz, shared, stream, params, extra});
}

HAMI_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                         unsigned bz, unsigned shared, CUstream stream, void** params, void** extra) {
  if (PassesAtOnce(Kernel{f, gx, gy, gz, bx, by, bz}, stream, true)) {
    return real::cuLaunchKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
  }
  return HeldKernelPerThread(f, gx, gy, gz, bx, by, {bz, shared, stream, params, extra});
}
#endif

HAMI_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  if (config == nullptr || PassesAtOnce(KernelOf(config, f), config->hStream, false)) {
    return real::cuLaunchKernelEx(config, f, params, extra);
  }
  return HeldKernelEx(config, f, params, extra);
}

HAMI_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {
  if (config == nullptr || PassesAtOnce(KernelOf(config, f), config->hStream, true)) {
    return real::cuLaunchKernelEx_ptsz(config, f, params, extra);
  }
  return HeldKernelExPerThread(config, f, params, extra);
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                               unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                               void** params) {
  return PacedLaunch(Kernel{f, gx, gy, gz, bx, by, bz}, stream, false, [&] {
    return real::cuLaunchCooperativeKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params);
  });
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                    unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                                    void** params) {
  return PacedLaunch(Kernel{f, gx, gy, gz, bx, by, bz}, stream, true, [&] {
    return real::cuLaunchCooperativeKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared, stream, params);
  });
}

// One launch on each of several devices, in one call: all are admitted first, each on its own device, so that no part
// waits for the account while its peers already spin, and none is measured while it waits for the others' accounts.
HAMI_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* list, unsigned count, unsigned flags) {
  const auto launch = [&] { return real::cuLaunchCooperativeKernelMultiDevice(list, count, flags); };
  constexpr unsigned kMost = hami::region::kMaxDevices;
  if (list == nullptr || count > kMost || !Active()) return launch();
  const auto name = [](const CUDA_LAUNCH_PARAMS& p) {
    return Kernel{p.function, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ}.Name();
  };
  Ticket tickets[kMost];
  for (unsigned i = 0; i < count; ++i) AwaitLaunch(name(list[i]), list[i].hStream);
  for (unsigned i = 0; i < count; ++i) BeginLaunch(name(list[i]), list[i].hStream, false, &tickets[i]);
  const CUresult result = launch();
  for (unsigned i = 0; i < count; ++i) EndLaunch(&tickets[i], result);
  return result;
}

HAMI_EXPORT CUresult cuLaunch(CUfunction f) {
  return Old(f, 1, 1, nullptr, [&] { return real::cuLaunch(f); });
}

HAMI_EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height) {
  return Old(f, width, height, nullptr, [&] { return real::cuLaunchGrid(f, width, height); });
}

HAMI_EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
  return Old(f, width, height, stream, [&] { return real::cuLaunchGridAsync(f, width, height, stream); });
}

HAMI_EXPORT CUresult cuStreamBeginCapture(CUstream stream) {
  return Began([&] { return real::cuStreamBeginCapture(stream); });
}
HAMI_EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return Began([&] { return real::cuStreamBeginCapture_ptsz(stream); });
}
HAMI_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return Began([&] { return real::cuStreamBeginCapture_v2(stream, mode); });
}
HAMI_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return Began([&] { return real::cuStreamBeginCapture_v2_ptsz(stream, mode); });
}
HAMI_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                                 const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  return Began([&] { return real::cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode); });
}
HAMI_EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                                      const CUgraphEdgeData* edges, size_t count,
                                                      CUstreamCaptureMode mode) {
  return Began([&] { return real::cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, edges, count, mode); });
}
HAMI_EXPORT CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                                   CUgraphRecaptureCallback fn, void* user) {
  return Began([&] { return real::cuStreamBeginRecaptureToGraph(stream, mode, graph, fn, user); });
}
HAMI_EXPORT CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                                        CUgraphRecaptureCallback fn, void* user) {
  return Began([&] { return real::cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, fn, user); });
}
HAMI_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return Ended(real::cuStreamEndCapture(stream, graph));
}
HAMI_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return Ended(real::cuStreamEndCapture_ptsz(stream, graph));
}
