// SPDX-License-Identifier: Apache-2.0
//
// Who holds how much device memory in a region. Invariants, at every instant and for any number of processes and
// threads: the sum over live slots never exceeds the limit by what Reserve granted; a reservation is refused only if,
// under the lock and after the dead were dropped, it did not fit; a refund never takes more than the process holds;
// after a process died at any instruction the sums equal what the living hold, as soon as anybody takes the lock. Units
// are bytes; devices are region indices (NVML order). A lock held by a dead process costs a few ms, never more than 2
// s.
//
// Slots of a library without tokens (HAMi-core in the same file) are added to every sum; their owner does not take our
// lock, so for them the promise is only as good as theirs.

#pragma once

#include <cstdint>

#include "region/region.h"

namespace hami::region {

// Reserve first, call the driver, Refund if it declined. kOverLimit, kBusy, kTableFull, kBroken, kBadDevice or
// kNotAttached mean that nothing was counted. A limit of 0 refuses nothing (unless the sum would pass 2^64).
Status Reserve(Attachment* attachment, uint32_t device, uint64_t bytes, Kind kind);

// Counts what is already there (measured module or context memory), beyond the limit if it must.
Status Charge(Attachment* attachment, uint32_t device, uint64_t bytes, Kind kind);

// Gives back. kClamped: the process did not hold that much of `kind`; only what it held was given back. Never lost:
// if the lock can not be had it is remembered and given back with the next turn (still kOk).
Status Refund(Attachment* attachment, uint32_t device, uint64_t bytes, Kind kind);

// Moves bytes of the own usage from one kind to another. kClamped as above; the total does not change.
Status Transfer(Attachment* attachment, uint32_t device, uint64_t bytes, Kind from, Kind to);

// Memory that several processes hold counts once, in the slot of one of them, as long as anybody holds it; see holds.h.
// An object is known by a number that is never given twice.
// What this process has reserved as data becomes an object that others may join; it uses it once. An object that nobody
// held any more may come back that way (a descriptor can outlive its holders): `object` is then its number. 0: somebody
// holds it, there is no room, or one of the reasons above; the bytes stay what they were.
uint64_t Share(Attachment* attachment, uint32_t device, uint64_t bytes, uint64_t object = 0);
// One more use by this process. False: nobody holds such an object (any more), or it can not be had: count it.
bool Join(Attachment* attachment, uint64_t object, uint32_t* device);
// One use less. After the last, what this process pays for the object is another holder's to pay, or given back. False
// when this process does not hold it.
bool Leave(Attachment* attachment, uint64_t object);
// What this process holds and does not have in its own usage: another one pays for it, or has left it to this process,
// which has not claimed it yet. No lock.
uint64_t GuestBytes(const Attachment& attachment, uint32_t device);
// What others have left this process to pay becomes its own usage, as with every change of it.
void ClaimHeritage(Attachment* attachment);

// The container's sum, the limit (0 = none), and what is left under it (UINT64_MAX without a limit; 0 if over).
// No lock. A dead process's share is in the sum until somebody sweeps: queries call SweepIfStale first.
uint64_t Used(const Attachment& attachment, uint32_t device);
uint64_t Limit(const Attachment& attachment, uint32_t device);
uint64_t FreeUnderLimit(const Attachment& attachment, uint32_t device);
uint64_t Peak(const Attachment& attachment, uint32_t device);
// Requests of programs that were refused. Reserve does not count: who asks again after making room was not refused.
void NoteRefusal(Attachment* attachment, uint32_t device);
uint64_t Refusals(const Attachment& attachment, uint32_t device);
// What this process holds.
uint64_t OwnUsed(const Attachment& attachment, uint32_t device, Kind kind);

// Frees the slots of dead processes; returns how many. Costs a system call per other process in the table.
int Sweep(Attachment* attachment);
// Sweep, at most twice a second over all processes of the region. `now_ns` is CLOCK_MONOTONIC.
int SweepIfStale(Attachment* attachment, int64_t now_ns);

// Calls `visit` for each slot in use; for process lists. Returns after the last, or when `visit` returns false.
struct ProcessUsage {
  int32_t pid;
  int32_t host_pid;
  int32_t status;
  uint64_t total[kMaxDevices];
};
void ForEachProcess(const Attachment& attachment, bool (*visit)(const ProcessUsage& process, void* context),
                    void* context);
// A number that changes with what any process of the region holds.
uint64_t Changes(const Attachment& attachment);

}  // namespace hami::region
