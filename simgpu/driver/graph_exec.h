// SPDX-License-Identifier: Apache-2.0
//
// Launching executable graphs. The graph lock is held by the caller of LaunchGraph, and is not by that of
// WaitForRoomFor, which may wait for as long as the stream's queue is full.
#pragma once

#include "abi/cuda_abi.h"

namespace simgpu {

struct GraphExec;
struct Stream;

// Submits the whole program. CUDA_ERROR_OUT_OF_MEMORY when the memory of its allocation nodes is not to be had; then
// nothing was submitted.
CUresult LaunchGraph(GraphExec& exec, Stream& s);
void WaitForRoomFor(Stream& s);

}  // namespace simgpu
