// SPDX-License-Identifier: Apache-2.0
//
// Stream memory operations: a stream that writes a value to memory, or waits until memory holds one. The engine calls
// these when a stream has come there. Accesses are atomic, so the host and other processes may watch the same memory.
#pragma once

#include <cstdint>

#include "abi/cuda_abi.h"

namespace simgpu {

struct MemOp;
struct Op;

// A way to compare beside those of the API: 64 bits hold the value, and who finds it there leaves zero in its place.
inline constexpr std::uint8_t kTakeValue = 0x80;

void StoreValue(const MemOp& op, bool wide);
void RaiseValue(const MemOp& op);
bool ValueReached(const MemOp& op, bool wide, std::uint8_t compare);

// Checks one operation of the API and translates it. `*skip` for a barrier or a flush, which need nothing.
// CUDA_ERROR_INVALID_VALUE for an unknown operation or flag, an address that is not aligned or not known to the driver.
CUresult MakeMemOp(const CUstreamBatchMemOpParams& params, Op* out, bool* skip);

}  // namespace simgpu
