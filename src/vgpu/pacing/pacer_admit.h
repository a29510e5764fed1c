// SPDX-License-Identifier: Apache-2.0
//
// What a launch waits for: orders to stop and those who are more important, measurements, the account's balance, and
// what is in flight.
#pragma once

#include <stdint.h>

#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_quantum.h"

namespace hami::vgpu {

inline constexpr int64_t kLease = 200'000;  // ns of expected cost, for one thread

struct Destination {
  int device;
  CUstream stream;
  bool per_thread;
  const LaunchKind* kind;  // nullptr: not known
};

// Gives the GPU to those who are more important, and to the monitor's order to stop. True when there was something to
// wait for.
bool WaitWhileBlocked(int device);

struct Admission {
  uint32_t rate = 0;     // of the device; 0: there is no limit (any more)
  bool covered = false;  // it costs nothing
};

// Waits until the account of the device lets a launch pass.
Admission Admit(const Destination& to, int64_t cost, bool gives_way, int64_t* now, bool* waited);

// The same, and for one that gives way until little is in flight.
Admission AdmitLaunch(const Destination& to, int64_t cost, bool gives_way, int64_t* now, bool* waited);

// What one that gives way may have in flight, and in a lease.
Quantum QuantumOf(int device, int64_t now);
int64_t LeaseOf(const Quantum& quantum);

}  // namespace hami::vgpu
