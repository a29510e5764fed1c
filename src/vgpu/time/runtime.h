// SPDX-License-Identifier: Apache-2.0
//
// What the shell around the gates has: one for each device of the process, made when it is first used, behind a lock;
// the table in which it meets the others; the events. Nothing but this is shared between the files of the shell.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "region/common_area.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/time/gate.h"

namespace hami::vgpu::time {

// Of one device. Everything but the locks is guarded by `lock`.
struct DeviceTime {
  Lock lock{LockRank::kTimeDevice};
  // Held while an event is recorded on a stream of another thread, which must not end meanwhile.
  Lock tails{LockRank::kTimeTails};
  Gate gate;
  CUdevice ordinal = -1;
  // The common area, and this process's line in it.
  region::CommonFile file;
  uint64_t gpu = 0, process = 0;
  int line = -1, turn = -1;
  int64_t looked_at = 0;
  uint32_t opened = 0;
};

// nullptr while the device was not used. `make`: it is used now.
DeviceTime* DeviceOf(int device, bool make);
void ResetDevices();

// Limits and orders, read anew each time.
Terms TermsOf(int device, bool in_area);
bool Blocked();
void WasBlocked();
region::GpuTimeDevice* AccountOf(int device);
void ResetTerms();

// With the lock held: finds the area and the line, and renews them. True while there is one.
bool Meet(DeviceTime* device, int index, int64_t now);
// The process's area may have come to be another, or is broken.
void CheckArea(DeviceTime* device, int index, int64_t now);

// Events of ours, used again.
Event TakeEvent(CUcontext context);
bool RecordEvent(Event event, CUstream stream, bool per_thread);
void DropEvents(CUcontext context);
void ResetEvents();
extern const DriverPort kDriver;
bool Capturing(CUstream stream, bool per_thread);
// Whether some capture is under way, so that our own calls must not count against it.
extern std::atomic<int32_t> g_captures;

// Leases of all threads become void.
void VoidLeases();
void CloseGate();
// The helper thread: started by the first launch, sleeps while nothing is launched. `watch`: it is to look for the end
// of what is under way.
void KeepHelperAwake(bool watch);
void ResetHelper();
bool ProcessEnds();
// The process ends, and the driver is still there: what was measured is paid, what was not used goes back.
void SettleAtExit();

}  // namespace hami::vgpu::time
