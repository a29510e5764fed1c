// SPDX-License-Identifier: Apache-2.0
//
// A ticket lets another process map a piece of this process' device memory, or its events: it names the process, the
// file and the piece. It works while the owner lives and may be looked up in /proc, which needs the same user and a
// common pid namespace. Refuses a ticket of this very process, of a process that is gone (or whose pid was reused), of
// memory that was freed, and of a GPU that this process does not see.
#pragma once

#include <cstdint>

#include "simgpu/driver/mem_internal.h"

namespace simgpu {

struct Ticket {
  std::uint64_t magic;
  std::uint64_t start_time;  // of the process, in clock ticks since boot
  std::uint64_t offset;      // in the file
  std::uint64_t size;
  std::uint64_t id;
  std::int32_t pid;
  std::int32_t fd;
  std::int32_t machine;
  std::uint32_t purpose;  // a handle of one function is not one of another
};
static_assert(sizeof(Ticket) <= CU_IPC_HANDLE_SIZE);

inline constexpr std::uint32_t kTicketIpc = 1;
inline constexpr std::uint32_t kTicketPool = 2;
inline constexpr std::uint32_t kTicketEvent = 3;

// A ticket of this process that names nothing yet.
Ticket NewTicket(std::uint32_t purpose);
bool IsTicket(const Ticket& ticket, std::uint32_t purpose);
// The owner's file, opened anew; -1 when the owner is gone or the file does not reach that far.
int OpenFile(const Ticket& ticket);

// A ticket for the device range that contains `address`. False for memory of no device arena.
bool MakeTicket(CUdeviceptr address, std::uint32_t purpose, Ticket* out);

// Maps it as a range of `kind`. CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_CONTEXT (own
// process) or CUDA_ERROR_MAP_FAILED. Opening an IPC ticket twice gives the same address, with one more reference; a
// pool pointer that is open already is refused with CUDA_ERROR_ALREADY_MAPPED.
CUresult OpenTicket(const Ticket& ticket, std::uint32_t purpose, MemKind kind, Context* ctx, Pool* pool,
                    CUdeviceptr* out);

}  // namespace simgpu
