// SPDX-License-Identifier: Apache-2.0
//
// What the shell around the gates has: one for each device of the process, made when it is first used, behind a lock;
// the table in which it meets the others; the helper thread.
#pragma once

#include <stdint.h>

#include <atomic>

#include "abi/cuda_abi.h"
#include "vgpu/runtime/lock.h"
#include "vgpu/runtime/meeting.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"
#include "vgpu/time/gate.h"

namespace hami::vgpu::pacer {

// Of one device. Everything but the locks, and what is the helper's, is guarded by `lock`.
struct DeviceTime {
  Lock lock{LockRank::kTimeDevice};
  // Held while an event is recorded on a stream of another thread, which must not end meanwhile.
  Lock tails{LockRank::kTimeTails};
  time::Gate gate;
  // Where the others are met, this process's line there, and the turn's.
  Meeting meeting;
  int line = -1, turn = -1;
  // The helper's alone: what NVML says, and when it was asked.
  UtilizationWatch utilization;
  int64_t asked_at = 0;
};

struct Helper {
  enum : uint32_t { kNone = 0, kRunning = 1, kAsleep = 2 };
  uint32_t state = kNone;
  uint32_t calls = 0;  // the helper sleeps on it
  std::atomic<uint32_t> activity{0};
  std::atomic<bool> watches{false}, settles_at_exit{false};
  std::atomic<bool> asks{false};  // it is in NVML
};

struct Shell {
  std::atomic<uint32_t> voided{0};  // so often all leases became void
  std::atomic<int64_t> noted_at{0};
  std::atomic<bool> was_blocked{false};
  std::atomic<bool> left{false};  // the process ends, and has left the others
  Lock making{LockRank::kTimeMaking};
  std::atomic<DeviceTime*> devices[region::kMaxDevices]{};
  region::GpuTimeDevice private_accounts[region::kMaxDevices]{};
  Helper helper;
};
extern Shell g_shell;

// nullptr while the device was not used. `make`: it is used now.
DeviceTime* DeviceOf(int device, bool make);
void ResetDevices();
// Of those that were used.
template <typename Each>
void ForEachDevice(Each each) {
  for (int i = 0; i < static_cast<int>(region::kMaxDevices); ++i) {
    if (DeviceTime* const device = DeviceOf(i, false); device != nullptr) each(i, device);
  }
}

// Limits and orders, read anew each time; `device` may be nullptr.
time::Terms TermsOf(int index, const DeviceTime* device);
// Whether launches on a device that was used are looked at. `others`: other processes are on it. One that was not used
// is bound by its limit alone.
inline bool Binds(const time::Terms& terms, bool others) { return terms.Limited() || terms.gives_way || others; }
bool Blocked();

// With the lock held: finds the others and the process's line, and renews them.
void Meet(DeviceTime* device, int index, int64_t now);
// With the lock held: the process ends, and where nothing of it is under way the others need not look out for it.
void Leave(DeviceTime* device, int index, int64_t now);
// Others that wait for the turn look again.
void WakeOthers(const time::Turns& turns);

extern const time::DriverPort kDriver;

// Leases of all threads become void, and launches that went without a look are looked at again.
void CloseGate();
// The helper thread: started by the first launch, sleeps while nothing is launched. `watch`: it is to look for the end
// of what is under way.
void KeepHelperAwake(bool watch);
// The process ends, and the driver is still there: what was measured is paid, what was not used goes back.
void SettleAtExit();

}  // namespace hami::vgpu::pacer
