// SPDX-License-Identifier: Apache-2.0
//
// What NVML says about the physical device, asked through the driver's own functions. None of these figures is needed
// to enforce a limit on memory that has a size; they measure what has none: contexts, modules, stacks.
//
// NVML counts its initialisations. Ours come on top of the program's and must not show: NVML is open for us only while
// somebody holds an NvmlUse (the process does while it has a context, because opening costs milliseconds), and what the
// program asks through our replacements is refused as NVML would while the program itself has not initialised it.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/nvml_abi.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/utilization.h"

namespace hami::vgpu {

// How NVML is open (runtime.h).
struct NvmlSessions {
  Lock lock{LockRank::kNvml};
  int uses = 0;                   // NvmlUses alive, the process's own included
  bool kept = false;              // the process's own is one of them
  std::atomic<bool> open{false};  // initialised by us
  std::atomic<int> program{0};    // the program's initialisations less its shutdowns
  std::atomic<unsigned> pid{0};   // what NVML calls this process; 0 = not known
  // A session that is opened ahead, for the first NvmlUse to take over.
  enum : uint32_t { kNone, kOpening, kReady, kGivenUp };
  uint32_t ahead = kNone;
};

// NVML can be asked for as long as this lives; false without NVML. A failure is tried again by the next one.
class NvmlUse {
 public:
  enum When { kNow, kLater };
  explicit NvmlUse(When when = kNow) {
    if (when == kNow) Open();
  }
  ~NvmlUse();
  NvmlUse(const NvmlUse&) = delete;
  NvmlUse& operator=(const NvmlUse&) = delete;
  explicit operator bool() const { return open_; }
  bool Open();

 private:
  bool open_ = false;
};
// Begins to open NVML and to attach the container's devices, on a thread of its own: on an H200 that takes 8 ms, which
// the first context would take longer, and the driver's start 100. On an H100, with one CPU for both, cuInit took 17 ms
// longer where its end waited for that, so nothing waits for it before it is needed. Once in a process.
void OpenNvmlAhead();
// That thread is at it.
bool NvmlOpening();
// Holds one NvmlUse for the process while `contexts` is not zero.
void KeepNvmlWhile(int contexts);

// The program's own initialisations: a result of nvmlInit* or nvmlShutdown on its way back to it.
nvmlReturn_t ProgramInitialised(nvmlReturn_t result);
nvmlReturn_t ProgramShutsDown();
// NVML is open, but not for the program.
bool NvmlHiddenFromProgram();

// Calls the driver's function on behalf of the program.
template <typename Real, typename... A>
nvmlReturn_t ForProgram(const Real& function, A... arguments) {
  return NvmlHiddenFromProgram() ? NVML_ERROR_UNINITIALIZED : function(arguments...);
}

struct Measurement {
  bool own_known = false;  // NVML lists this process, and which of the list it is is known
  bool free_known = false;
  uint64_t own = 0;   // bytes this process holds on the device, as the driver counts
  uint64_t free = 0;  // physical bytes free on the device
  // What is free did not change while the list was asked for: a process that shows in one of them shows in both. Only
  // asked where nobody knows which of the list this process is.
  bool of_one_moment = false;
};

// Who is on a device. Large: not for a stranger's stack.
struct ProcessList {
  static constexpr unsigned kRoom = 1024;
  unsigned count = 0;
  nvmlProcessInfo_t items[kRoom] = {};
};

Measurement Measure(nvmlDevice_t handle);
Measurement Measure(nvmlDevice_t handle, ProcessList* list);
// The same for a list taken earlier, with what has been learnt since.
void FindOwn(const ProcessList& list, Measurement* measurement);

// What NVML calls now: us of the wall clock.
uint64_t WallMicros();
// Once a second or so, by a caller that holds an NvmlUse. False: NVML says nothing new, or not of this process. After
// 3 s without that `had` is left empty, and a new span begins.
bool AskUtilization(unsigned fixed_device, UtilizationWatch* watch, Utilization* had);

// The pid by which NVML knows this process; see identity.h. 0 = not known.
unsigned NvmlPid();
void SetNvmlPid(unsigned pid);

void ResetNvmlProbe();

}  // namespace hami::vgpu
