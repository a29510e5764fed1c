// SPDX-License-Identifier: Apache-2.0
//
// The slot table of a region: who is in it, who of them lives, claiming, freeing and healing slots, and the sums over
// it. Unless it says otherwise a function is called with the region's lock held. Slots are reused in place and never
// moved; HAMi-core does move them, so an owner looks whether its slot is still there before each update
// (OwnSlotIntact) and otherwise finds it again or claims another, filled from what the process knows it holds.

#pragma once

#include "region/lock.h"
#include "region/region.h"
#include "region/semaphore.h"

namespace hami::region {

// Tokens of this process's live attachments. A slot with our pid and another token was left by what this process was
// before an exec, or by a namesake.
bool AddLocalToken(uint64_t token);
void RemoveLocalToken(uint64_t token);
bool IsLocalToken(uint64_t token);
void ClearLocalTokens();

inline uint32_t SlotCount(const Attachment& attachment) {
  const int32_t count = Load(attachment.region->slot_count);
  if (count < 0) return 0;
  return count > static_cast<int32_t>(kMaxSlots) ? kMaxSlots : static_cast<uint32_t>(count);
}

// A slot in use as far as its pid says; `ours` if it was claimed by this project's library.
struct SlotIdentity {
  int32_t pid;
  bool ours;
  uint64_t token;
  uint64_t start_time;
};
SlotIdentity IdentifySlot(const Slot& slot);

// No lock needed. A slot with a token lives while its record lock or its life line (process.h) is held, or, if neither
// is, while a process of its pid and start time in this pid namespace still maps the file (it may have closed all its
// descriptors, and had no life line). Such a process in another pid namespace is taken for dead. Without a token: while
// there is a process of that pid.
bool SlotAlive(const Attachment& attachment, uint32_t index);
// No lock needed. Whether the process of a token that no slot carries any more may be there still.
bool OwnerAlive(const Attachment& attachment, uint64_t token);
// No lock needed. -1 if no slot carries a token of that number.
int32_t FindSlotByNumber(const Attachment& attachment, uint32_t hint, uint64_t number);

// Takes lock and semaphore. The semaphore is waited for at most `wait_ns`, without the lock, and then done without
// (`forced`: taken over). `*semaphore` tells Leave.
Status EnterTable(Attachment* attachment, uint64_t id, int64_t wait_ns, bool forced, bool* semaphore);
// False when the lock was lost meanwhile.
bool LeaveTable(Attachment* attachment, uint64_t id, bool semaphore);
// After the lock was lost: what this process holds is in its slot and in the sums again. Takes the lock itself.
void Reaffirm(Attachment* attachment);

// Claims a hole or appends; fills `attachment->slot`. `number` is the attacher's.
Status ClaimSlot(Attachment* attachment, uint64_t number);
// Ends the holds of its process, too. The sums are to be counted anew.
void FreeSlot(Attachment* attachment, uint32_t index);

inline bool OwnSlotIntact(const Attachment& attachment) {
  const auto index = static_cast<uint32_t>(Load(attachment.slot));
  if (index >= SlotCount(attachment)) return false;
  const Slot& slot = attachment.region->slots[index];
  return Load(slot.pid) == attachment.pid && Load(slot.token) == attachment.token &&
         Load(slot.start_time) == attachment.start_time;
}
// Finds the own slot again, or claims another, and writes what the process holds into it.
Status HealOwnSlot(Attachment* attachment);
// Copies `held` of one device into the own slot, under its seqlock.
void PublishHeld(Attachment* attachment, uint32_t device);

// Charged := the sum over the slots with tokens, and what heirs have to claim. Unless the sum is another one by then,
// which means that the lock was lost.
void Recount(Attachment* attachment);
// After the lock was taken from a dead owner.
void RepairAfterDeath(Attachment* attachment);

// No lock needed. Whether a library without tokens may have slots here, and what they hold.
bool ForeignPossible(const Attachment& attachment);
uint64_t ForeignSum(const Attachment& attachment, uint32_t device);

// In a child that was forked without handlers.
inline void NoticeFork(Attachment* attachment) {
  if (attachment->fork_guard != nullptr && Load(*attachment->fork_guard) == 0) AttachmentAfterFork(attachment);
}

// Frees every slot that is dead and unchanged since it was judged; without the lock held. `id` is the caller's.
int SweepTable(Attachment* attachment, uint64_t id);

}  // namespace hami::region
