// SPDX-License-Identifier: Apache-2.0
//
// The life of contexts: what comes to be and goes away with one, and the stack of current contexts of a thread. Shared
// by the files that export cuCtx*, cuDevicePrimaryCtx* and cuGreenCtx*; the rest of the driver uses core.h.
#pragma once

#include "simgpu/driver/core.h"

namespace simgpu {

// Once, from cuInit: makes the (inactive) primary contexts.
void PrepareContexts(const Device* devices, int count);

// A new context, alive, its memory charged; not yet current. CUDA_ERROR_OUT_OF_MEMORY leaves nothing behind.
CUresult NewContext(const Device& device, ContextKind kind, unsigned flags, int sm_count, Context** out);

// Ends it: its work is dropped, its modules and memory go away. False when somebody else did so first.
bool EndContext(Context& ctx);

// Device memory beside what every context costs, where the device's profile says so: for the local memory of kernels,
// as much as the most demanding one needs of each thread that the GPU can hold, for kernels that allocate, and for
// streams and the nodes of executable graphs, as many as lived at once. CUDA_ERROR_OUT_OF_MEMORY when it does not fit.
// It stays until the context ends.
CUresult NeedLocalMemory(Context& ctx, std::size_t bytes);
CUresult NeedDeviceHeap(Context& ctx);
CUresult GraphNodesBegin(Context& ctx, std::size_t count);
void GraphNodesEnd(Context& ctx, std::size_t count);
CUresult StreamBegins(Context& ctx);
void StreamEnds(Context& ctx);

// How often the primary context is retained; 0: inactive.
int PrimaryReferences(int ordinal);
// Ends the primary context whatever its references.
void ResetPrimary(int ordinal);
void SetPrimaryFlags(int ordinal, unsigned flags);

// The calling thread's stack. Push and Set keep dead contexts out; Pop returns null when the stack is empty.
void PushCurrent(Context* ctx);
Context* PopCurrent();
void SetCurrent(Context* ctx);  // null: the top of the stack goes

}  // namespace simgpu
