// SPDX-License-Identifier: Apache-2.0
//
// Which of the machine's GPUs are there for this process. All of them, unless SIMGPU_CONTAINER is set: then those that
// NVIDIA's container runtime would have let in for the process's NVIDIA_VISIBLE_DEVICES. Refuses nothing: a name that
// no GPU has lets none in.
#pragma once

#include "simgpu/machine/machine.h"

namespace simgpu {

struct Present {
  int count = 0;
  int dev[kMaxDevices] = {};  // in the machine's order

  // The place of a device among these; -1: it is not there.
  int IndexOf(int device) const;
};

Present PresentDevices(Machine& machine);

// Whether a compute instance of a GPU is there: in a container that names instances of that GPU, only those.
bool IsPresent(Machine& machine, int dev, const MigInstance& compute);
bool IsLetIn(Machine& machine, int dev, const MigInstance& compute, const char* visible);

// The same for a value of the variable (nullptr: unset). `has_node(minor)`: /dev/nvidia<minor> is there, which decides
// where CDI lets GPUs in and says "void".
Present DevicesFor(Machine& machine, const char* visible, bool (*has_node)(unsigned minor));

}  // namespace simgpu
