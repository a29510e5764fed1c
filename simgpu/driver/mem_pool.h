// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered pools. A pool holds `reserved` bytes of its device, charged in the machine's books; of these `used`
// belong to allocations and `pending` to allocations that were freed but whose stream has not got there. Invariant:
// used + pending <= reserved. The rest is what trimming, synchronising and shortage give back. What was freed on a
// stream is at once the same stream's again: its next allocations take it before they ask for more. A pool that was
// destroyed lives on until its last allocation is gone.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/driver/mem.h"

namespace simgpu {

enum class PoolKind : std::uint8_t { kDefault, kCreated, kImported, kGraph };

// An allocation whose free a stream has not reached, and what of it that stream's later allocations have not taken.
struct Freed {
  CUdeviceptr base;
  std::uint64_t stream;  // its number
  std::uint64_t bytes;
};

struct Pool {
  PoolKind kind = PoolKind::kCreated;
  const Device* device = nullptr;
  CUmemPoolProps props{};
  std::uint64_t reserved = 0, used = 0, pending = 0;
  std::uint64_t reserved_high = 0, used_high = 0;
  std::uint64_t threshold = 0;
  int reuse[3] = {1, 1, 1};  // FOLLOW_EVENT_DEPENDENCIES, ALLOW_OPPORTUNISTIC, ALLOW_INTERNAL_DEPENDENCIES
  std::uint64_t access[kMaxDevices] = {};  // CUmemAccess_flags by ordinal
  std::size_t allocations = 0;             // live or pending
  std::vector<Freed> freed;                // whose bytes are `pending`
  bool destroyed = false;
};

// What a handle means; null when it is not (or no longer) a pool.
Pool* FindPool(CUmemoryPool handle);
Pool* DefaultPool(int ordinal);
Pool* CurrentPool(int ordinal);
Pool* GraphPool(int ordinal);
// CUDA_ERROR_INVALID_VALUE for an imported pool or one of another device.
CUresult SetCurrentPool(int ordinal, Pool* pool);

Pool* CreatePool(PoolKind kind, const Device& device, const CUmemPoolProps& props);
CUresult DestroyPool(Pool* pool);

// Memory from the pool. CUDA_ERROR_OUT_OF_MEMORY after all unused reserve on the device was taken back.
// `stream` is the number of the one that will use it first.
CUresult PoolAlloc(Pool& pool, std::size_t size, std::uint64_t stream, CUdeviceptr* out);
// A pointer of another process' pool; held by the imported pool until it is freed.
struct Ticket;
CUresult ImportPoolPointer(const Ticket& ticket, Pool& pool, CUdeviceptr* out);
// True when some pool of the device waits for frees that its streams have not reached.
bool HasPending(int machine);

CUresult GetPoolAttribute(Pool& pool, CUmemPool_attribute attribute, void* value);
CUresult SetPoolAttribute(Pool& pool, CUmemPool_attribute attribute, const void* value);
void TrimPool(Pool& pool, std::uint64_t keep);
void SetPoolAccess(Pool& pool, int ordinal, CUmemAccess_flags flags);
CUmemAccess_flags PoolAccess(Pool& pool, int ordinal);

}  // namespace simgpu
