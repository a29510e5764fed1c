// SPDX-License-Identifier: Apache-2.0
//
// Which calls a stream capture forbids, by name. The driver documents a class of "potentially unsafe" calls that the
// modes of captures and threads allow or forbid, and names only some of them: those are kUnsafe. What is known to be
// allowed is kSafe. The rest may be either, and may be the one in one version of the driver and the other in the next:
// with `option strict_capture=1` it is forbidden like the unsafe ones, so that a library shows where it relies on it.
// Calls that are refused for what they are given (a stream that is capturing, the legacy stream, what cuMemFree and the
// functions of events are given) refuse it themselves, and count as safe here.
#pragma once

#include <cstdint>
#include <string_view>

namespace simgpu {

enum class CaptureRule : std::uint8_t { kSafe, kUnknown, kUnsafe };

namespace capture_rules {

// `*` at the end stands for any text.
inline constexpr std::string_view kUnsafe[] = {
    "cuMemAlloc",        "cuMemAllocPitch",        "cuMemAllocManaged",       "cuMemAllocHost", "cuMemHostAlloc",
    "cuMemHostRegister", "cuMemHostUnregister",    "cuMemFreeHost",           "cuArrayCreate",  "cuArray3DCreate",
    "cuArrayDestroy",    "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", "cuModuleLoad*",  "cuModuleUnload",
    "cuLibraryLoad*",    "cuLibraryUnload"};

inline constexpr std::string_view kUnknown[] = {"cuDeviceGetMemPool", "cuDeviceGetDefaultMemPool",
                                                "cuDeviceGetGraphMemAttribute"};

inline constexpr std::string_view kSafe[] = {"cuLaunch*",
                                             "cuMemcpy*",
                                             "cuMemset*",
                                             "cuMemAllocAsync",
                                             "cuMemAllocFromPoolAsync",
                                             "cuMemFreeAsync",
                                             "cuMemPrefetch*",
                                             "cuMemFree",
                                             "cuMemBatch*",
                                             "cuStream*",
                                             "cuThreadExchangeStreamCaptureMode",
                                             "cuEvent*",
                                             "cuGraph*",
                                             "cuCtxGet*",
                                             "cuCtxSetCurrent",
                                             "cuCtxPushCurrent",
                                             "cuCtxPopCurrent",
                                             "cuCtxSynchronize",
                                             "cuCtxRecordEvent",
                                             "cuCtxWaitEvent",
                                             "cuDeviceGet*",
                                             "cuDevicePrimaryCtxGetState",
                                             "cuDeviceCanAccessPeer",
                                             "cuFunc*",
                                             "cuKernel*",
                                             "cuLibraryGet*",
                                             "cuModuleGet*",
                                             "cuOccupancy*",
                                             "cuPointer*",
                                             "cuMemHostGet*",
                                             "cuMemGetAddressRange",
                                             "cuTensorMap*",
                                             "cuUserObject*",
                                             "cuParam*",
                                             "cuProfiler*",
                                             "cuSignal*",
                                             "cuWait*"};

constexpr bool Matches(std::string_view function, std::string_view pattern) {
  if (!pattern.ends_with('*')) return function == pattern;
  return function.starts_with(pattern.substr(0, pattern.size() - 1));
}

template <std::size_t N>
constexpr bool Any(std::string_view function, const std::string_view (&patterns)[N]) {
  for (const std::string_view pattern : patterns) {
    if (Matches(function, pattern)) return true;
  }
  return false;
}

}  // namespace capture_rules

// `function` as it is exported: versions and per-thread twins are what they are versions of.
constexpr CaptureRule CaptureRuleOf(std::string_view function) {
  for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3"}) {
    if (function.ends_with(suffix)) function.remove_suffix(suffix.size());
  }
  if (capture_rules::Any(function, capture_rules::kUnsafe)) return CaptureRule::kUnsafe;
  if (capture_rules::Any(function, capture_rules::kUnknown)) return CaptureRule::kUnknown;
  return capture_rules::Any(function, capture_rules::kSafe) ? CaptureRule::kSafe : CaptureRule::kUnknown;
}

static_assert(CaptureRuleOf("cuMemAlloc_v2") == CaptureRule::kUnsafe);
static_assert(CaptureRuleOf("cuMemFreeAsync_ptsz") == CaptureRule::kSafe);
static_assert(CaptureRuleOf("cuDeviceGetMemPool") == CaptureRule::kUnknown);
static_assert(CaptureRuleOf("cuMemPoolTrimTo") == CaptureRule::kUnknown);

}  // namespace simgpu
