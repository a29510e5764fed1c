// SPDX-License-Identifier: Apache-2.0
//
// CUDA_VISIBLE_DEVICES inside a share. There it speaks of the granted devices alone: a number counts them in the
// region's order, a UUID or its unique beginning names one of them. The driver reads the variable in cuInit and counts
// the machine's GPUs, so it is shown whole UUIDs for as long as that call lasts; the program's own text is back
// afterwards, for itself and for what it starts. Refuses nothing: as with the driver, the first entry that names no
// device ends the list.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "vgpu/runtime/lock.h"

namespace hami::vgpu {

// The devices that a share shows.
struct ShownDevices {
  uint32_t count = 0;
  const char* (*name)(uint32_t index) = nullptr;         // a whole UUID
  bool (*has_instance)(const char* mig_name) = nullptr;  // true for a MIG instance of one of them
};

// What `list` (nullptr: the variable is unset, which shows all) means as a list of whole UUIDs. Duplicates stay, for
// the driver to judge. What exceeds `room` is cut between entries.
void WriteVisible(const char* list, const ShownDevices& shown, char* out, size_t room);

// The driver's cuInit runs while one of these lives. Any number may, in any threads; nothing is locked meanwhile.
class VisibleForDriver {
 public:
  VisibleForDriver();
  ~VisibleForDriver();
  VisibleForDriver(const VisibleForDriver&) = delete;
  VisibleForDriver& operator=(const VisibleForDriver&) = delete;

 private:
  bool changed_;
};

// What the environment has of ours (runtime.h).
struct ShownEnvironment {
  static constexpr size_t kTextBytes = 8192;  // 16 UUIDs are 656 bytes; MIG instances may be seven times as many

  Lock lock{LockRank::kVisible};
  int showing = 0;                // VisibleForDrivers alive
  char text[kTextBytes] = {};     // the entry that the driver is shown
  char* program_entry = nullptr;  // what stood there; nullptr: nothing did
  char** copy = nullptr;          // the environment with room for one entry more
  size_t copy_room = 0;
};

// In the child of a fork that happened in the middle of another thread's cuInit.
void ResetVisible();

}  // namespace hami::vgpu
