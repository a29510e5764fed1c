// SPDX-License-Identifier: Apache-2.0
//
// One MPS server: the process behind the clients of one user. It admits clients up to the limit, tells all of them when
// one has faulted, and serves nobody new until the last of those is gone. Owns its socket; ends when the control daemon
// closes its end and the last client has left.
#pragma once

#include "simgpu/mps/wire.h"

namespace simgpu::mps {

// Runs in a process of its own. LISTENING takes clients; CONTROL is the daemon's end: a command line is answered with
// a line each ("clients", "status", "percent N", "memory DEVICE BYTES", "terminate PID", "quit").
int RunServer(int listening, int control, Terms terms);

}  // namespace simgpu::mps
