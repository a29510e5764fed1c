// SPDX-License-Identifier: Apache-2.0
//
// Who holds memory that several processes of the container share, and which of them pays. Each hold is an entry of the
// region's table. Invariants, once the lock is free or was taken from the dead: of the holds on one object exactly one
// pays, as `payer` with the bytes in its slot, or as `heir`, whose bytes are in no slot but in the region's sums; a
// payer that ends makes an heir of another holder before it goes, so that the bytes are never out of the sums while
// anybody holds them; the hold of a process ends with its slot. A process that dies on the way leaves the bytes counted
// twice, not less, until its slot is swept.
//
// Refused: nothing; a table full of nonsense costs a walk. Unless it says otherwise a function is called with the
// region's lock held.

#pragma once

#include "region/region.h"

namespace hami::region {

inline PrivateHold* HoldsBegin(const Attachment& attachment) { return attachment.area->holds.entries; }
inline PrivateHold* HoldsEnd(const Attachment& attachment) {
  const uint32_t top = Load(attachment.area->holds.top);
  return HoldsBegin(attachment) + (top < kMaxHolds ? top : kMaxHolds);
}
inline bool HoldUsed(const PrivateHold& hold) {
  const uint8_t state = Load(hold.state);
  return state >= kHoldGuest && state <= kHoldHeir && Load(hold.device) < kMaxDevices;
}

// No lock needed for one's own. nullptr = none; `holder` 0 = anybody's.
PrivateHold* FindHold(const Attachment& attachment, uint64_t object, uint64_t holder);

// This process's first hold on an object. False when there is no room.
bool BeginHold(Attachment* attachment, uint64_t object, uint32_t device, uint64_t bytes, uint8_t state);
// True when the object has another holder, who pays now if this one did. The slots stay as they are.
bool EndHold(Attachment* attachment, PrivateHold* hold);

// The end of a slot: its holds go before it. The sums are to be counted anew.
void EndHoldsOf(Attachment* attachment, uint64_t holder);
// Holds whose process has lost its slot (HAMi-core may drop one) and is gone. The first needs no lock.
bool AnyOrphan(const Attachment& attachment);
void EndOrphans(Attachment* attachment);

// Counts the heirs, and adds what they have to claim.
void AddHeirs(Attachment* attachment, uint64_t (&sums)[kMaxDevices]);

// What this region's descriptors are tagged with; chosen when it is first needed.
uint64_t RegionMark(Attachment* attachment);

}  // namespace hami::region
