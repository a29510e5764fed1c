// SPDX-License-Identifier: Apache-2.0
#include "region/holds.h"

#include <errno.h>
#include <fcntl.h>

#include "region/file.h"
#include "region/lock.h"
#include "region/process.h"
#include "region/table.h"
#include "region/tag.h"

namespace hami::region {
namespace {

PrivateHolds& HoldsOf(const Attachment& attachment) { return attachment.area->holds; }

// As ProvideSlot in table.cc; but where the program has closed our descriptor this is no place to open another.
bool ProvideHold(Attachment* attachment, uint32_t index) {
  if (!DescriptorIsOurs(*attachment)) return true;
  const auto offset = static_cast<int64_t>(kPrivateOffset + offsetof(PrivateArea, holds) +
                                           offsetof(PrivateHolds, entries) + index * sizeof(PrivateHold));
  return HasRoom(attachment->fd, offset, sizeof(PrivateHold));
}

PrivateHold* FreeEntry(Attachment* attachment) {
  for (PrivateHold* hold = HoldsBegin(*attachment); hold != HoldsEnd(*attachment); ++hold) {
    if (!HoldUsed(*hold)) return hold;
  }
  const auto top = static_cast<uint32_t>(HoldsEnd(*attachment) - HoldsBegin(*attachment));
  if (top == kMaxHolds || !ProvideHold(attachment, top)) return nullptr;
  PrivateHold* const hold = HoldsBegin(*attachment) + top;
  Store(hold->state, kHoldFree);
  Store(HoldsOf(*attachment).top, top + 1);
  return hold;
}

void Forget(Attachment* attachment, PrivateHold* hold) {
  Store(hold->state, kHoldFree);
  HAMI_KILL_POINT(36);
  PrivateHold* const begin = HoldsBegin(*attachment);
  PrivateHold* end = HoldsEnd(*attachment);
  while (end != begin && !HoldUsed(end[-1])) --end;
  Store(HoldsOf(*attachment).top, static_cast<uint32_t>(end - begin));
}

// Who shall pay when `hold` does no more: who does already (somebody died on the way), else the one who came first.
PrivateHold* Successor(const Attachment& attachment, const PrivateHold* hold) {
  PrivateHold* first = nullptr;
  for (PrivateHold* other = HoldsBegin(attachment); other != HoldsEnd(attachment); ++other) {
    if (other == hold || !HoldUsed(*other) || Load(other->object) != Load(hold->object)) continue;
    if (Load(other->state) != kHoldGuest) return other;
    if (first == nullptr) first = other;
  }
  return first;
}

bool Orphan(const Attachment& attachment, const PrivateHold& hold) {
  const uint64_t holder = Load(hold.holder);
  const uint32_t hint = Load(hold.slot);
  const int32_t slot = FindSlotByNumber(attachment, hint < kMaxSlots ? hint : 0, holder >> kTokenPidBits);
  if (slot >= 0 && Load(attachment.region->slots[slot].token) == holder) return false;
  return !OwnerAlive(attachment, holder);
}

}  // namespace

PrivateHold* FindHold(const Attachment& attachment, uint64_t object, uint64_t holder) {
  for (PrivateHold* hold = HoldsBegin(attachment); hold != HoldsEnd(attachment); ++hold) {
    if (!HoldUsed(*hold) || Load(hold->object) != object) continue;
    if (holder == 0 || Load(hold->holder) == holder) return hold;
  }
  return nullptr;
}

bool BeginHold(Attachment* attachment, uint64_t object, uint32_t device, uint64_t bytes, uint8_t state) {
  PrivateHold* const hold = FreeEntry(attachment);
  if (hold == nullptr) return false;
  HAMI_KILL_POINT(34);
  Store(hold->object, object);
  Store(hold->holder, attachment->token);
  Store(hold->bytes, bytes);
  Store(hold->uses, 1U);
  Store(hold->slot, attachment->slot);
  Store(hold->device, static_cast<uint8_t>(device));
  Store(hold->state, state);
  HAMI_KILL_POINT(35);
  return true;
}

bool EndHold(Attachment* attachment, PrivateHold* hold) {
  PrivateHold* const next = Successor(*attachment, hold);
  if (next != nullptr && Load(hold->state) != kHoldGuest && Load(next->state) == kHoldGuest) {
    Store(HoldsOf(*attachment).heirs, Load(HoldsOf(*attachment).heirs) + 1);
    HAMI_KILL_POINT(37);
    Store(next->state, kHoldHeir);
    HAMI_KILL_POINT(38);
  }
  Forget(attachment, hold);
  return next != nullptr;
}

void EndHoldsOf(Attachment* attachment, uint64_t holder) {
  for (PrivateHold* hold = HoldsBegin(*attachment); hold < HoldsEnd(*attachment); ++hold) {
    if (HoldUsed(*hold) && Load(hold->holder) == holder) EndHold(attachment, hold);
  }
}

bool AnyOrphan(const Attachment& attachment) {
  for (const PrivateHold* hold = HoldsBegin(attachment); hold < HoldsEnd(attachment); ++hold) {
    if (HoldUsed(*hold) && Orphan(attachment, *hold)) return true;
  }
  return false;
}

void EndOrphans(Attachment* attachment) {
  for (PrivateHold* hold = HoldsBegin(*attachment); hold < HoldsEnd(*attachment); ++hold) {
    if (HoldUsed(*hold) && Orphan(*attachment, *hold)) EndHold(attachment, hold);
  }
}

void AddHeirs(Attachment* attachment, uint64_t (&sums)[kMaxDevices]) {
  uint32_t heirs = 0;
  for (const PrivateHold* hold = HoldsBegin(*attachment); hold < HoldsEnd(*attachment); ++hold) {
    if (!HoldUsed(*hold) || Load(hold->state) != kHoldHeir) continue;
    uint64_t& sum = sums[Load(hold->device)];
    if (__builtin_add_overflow(sum, Load(hold->bytes), &sum)) sum = UINT64_MAX;
    ++heirs;
  }
  Store(HoldsOf(*attachment).heirs, heirs);
}

uint64_t RegionMark(Attachment* attachment) {
  uint64_t mark = Load(HoldsOf(*attachment).mark);
  while (mark == 0 || mark > kMaxTagRegion) {
    // Two may choose at once: what is there then counts.
    if (CompareExchange(HoldsOf(*attachment).mark, mark, RandomNumber() & kMaxTagRegion)) HAMI_KILL_POINT(39);
    mark = Load(HoldsOf(*attachment).mark);
  }
  return mark;
}

}  // namespace hami::region
