// SPDX-License-Identifier: Apache-2.0
//
// One snapshot of this process's memory from both sides: what the driver says it holds, and what of that is counted as
// data (allocations, pools, graphs). The difference is what nobody states: contexts and modules. To be taken with the
// measure lock held exclusively; what is left to disturb it then are pools, which give memory back in synchronisations
// of other threads: such a snapshot is taken again.
#pragma once

#include <stdint.h>

#include "vgpu/runtime/nvml_probe.h"

namespace hami::vgpu {

struct MemorySnapshot {
  Measurement seen;
  uint64_t data = 0;   // counted as such
  bool exact = false;  // both of the same moment
  // Imported memory is held, which may be among what is seen now and not the next time; with `unused`, some of it is
  // not counted either.
  bool imports = false;
  bool unused_imports = false;
  // Of what is seen, up to so much may be another process's to pay …
  bool shared_imports = false;
  uint64_t paid_elsewhere = 0;
  // … and surely is when all that is seen of the container exceeds all that is counted by less. UINT64_MAX where not
  // all of it is seen.
  uint64_t uncounted = UINT64_MAX;

  // Modulo 2^64: more may be counted than is seen (memory that lies on the host, or is another process's).
  uint64_t unstated() const { return seen.own - data; }
};

// `list` receives who is on the device.
MemorySnapshot TakeSnapshot(int device, nvmlDevice_t handle, ProcessList* list);

}  // namespace hami::vgpu
