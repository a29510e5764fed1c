// SPDX-License-Identifier: Apache-2.0
//
// This process as an MPS client. cuInit looks for a control daemon in the pipe folder; without one the process works as
// it would without MPS, as NVIDIA's driver does. A client keeps the connection to its server for life: it ends with the
// process, and whatever the server says on it, or its loss, is the answer to every later call.
#pragma once

#include <cstdint>
#include <string>

#include "abi/cuda_abi.h"
#include "simgpu/mps/wire.h"

namespace simgpu {

// Looks for the daemon. A server that refuses is an error (CUDA_ERROR_MPS_…); no daemon is none.
CUresult JoinMps(int capability_major);
bool IsMpsClient();
// What holds for this client: the server's terms, and what its own environment lowers.
const mps::Terms& MpsTerms();

// The error that the server's fate means for this call; CUDA_SUCCESS for who is no client.
CUresult MpsTrouble();
// A fatal fault of this process ends the others' work as well.
void TellMpsFault();
// In a forked child: the connection is the parent's.
void ForgetMps();

}  // namespace simgpu
