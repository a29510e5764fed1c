// SPDX-License-Identifier: Apache-2.0
//
// What the memory files share: the table of live ranges under one lock, and the ways in and out of it. A range is in
// the table before its address is returned and leaves it before its bytes are refunded, so the books never say less
// than what can be reached.
#pragma once

#include <mutex>
#include <vector>

#include "simgpu/driver/arena.h"
#include "simgpu/driver/mem.h"

namespace simgpu {

using MemLock = std::unique_lock<std::mutex>;
[[nodiscard]] MemLock LockMemory();

// --- with the lock held ---------------------------------------------------------------------------------------------

Allocation* FindLocked(CUdeviceptr address, const MemLock& held);
// The live range that begins at `base`, whatever its kind.
Allocation* FindBase(CUdeviceptr base, const MemLock& held);

// From the arena of `machine` (-1: host). Null when there are no addresses left.
Allocation* NewLocked(int machine, std::size_t size, MemKind kind, const MemLock& held);
// Takes a range of an arena out of the table and ends the object. Bytes of a block of device memory that it was the
// last in, which are to be refunded beside what is its own.
std::uint64_t DeleteLocked(Allocation* allocation, const MemLock& held);

// Ranges outside the arenas: the caller owns the mapping. `Insert` refuses (null) an overlap.
Allocation* InsertLocked(CUdeviceptr base, std::size_t size, MemKind kind, const MemLock& held);
void RemoveLocked(Allocation* allocation, const MemLock& held);
// The first outside range that ends above `address`, for walks; null at the end.
Allocation* FirstFrom(CUdeviceptr address, const MemLock& held);

// The arena that another process may map; null when there is none yet.
Arena* ArenaOf(int machine, const MemLock& held);

// --- without the lock -----------------------------------------------------------------------------------------------

// Charges, taking back unused pool memory first if that is what it needs.
[[nodiscard]] bool ChargeUse(int machine, std::uint64_t bytes, Use use);

// Waits for the work that may use the range, before it is taken away. Plain device memory is its context's (green ones
// and their primary share it); other memory of a device may be used by all contexts of it, the host's by all there are.
void DrainUsersOf(const Range& range);
// Waits for all contexts of the devices whose ordinals are the bits of the mask.
void DrainDevices(std::uint32_t ordinals);

// Takes the range out of the table, undoes its mapping and refunds what is its own.
void Destroy(CUdeviceptr base);

std::size_t RoundUp(std::size_t value, std::size_t unit);
// False when `size` rounded up to `unit` would not be a number, or is larger than any device.
bool Plausible(std::size_t size);

Range Describe(const Allocation& allocation);

// Limit of what the simulated host can pin or hold of managed memory, for all allocations of this process together.
bool ChargeHost(std::size_t bytes);
void RefundHost(std::size_t bytes);

// --- of the other memory files
// ----------------------------------------------------------------------------------------

// Gives all reserve of this process' pools on the device back that nothing uses. True when that was more than nothing.
bool ReclaimPools(int machine);
// After the last context of a device went away: its pools and graph memory lose what they hold.
void DropPoolMemory(int ordinal);
// A range of kind kAsync, kGraph or kPoolImport leaves.
void LeavePool(const Allocation& allocation);
void ReleaseArraysOf(Context& ctx);
void ReleaseTexturesOf(const Context& ctx);
void RefundManaged(Allocation* allocation);

}  // namespace simgpu
