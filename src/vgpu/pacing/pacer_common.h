// SPDX-License-Identifier: Apache-2.0
//
// The other containers on a GPU, as far as they share an area with this one (region/common_area.h, HAMI_COMMON_AREA: a
// file for all GPUs, or a folder with an area `<UUID>/area` for each). Without it, or when it breaks, nobody is known
// and everything is decided by this container's own settings. A file that is cut short while it is mapped is noticed by
// the helper thread, within 10 ms; until then touching it would be fatal, so it lies where only its user can write.
// Areas that are handed out at a socket can not be cut short. The helper thread also sees when the path leads to
// another area, or to one at last, and moves there.
#pragma once

#include <stdint.h>

#include "region/common_area.h"

namespace hami::vgpu {

// ns; for longer than about that a GPU does not let one container wait for another.
inline constexpr int64_t kSlice = 2'000'000;

// This container has launched, or waits to: `charge` ns of busy time were let go.
void TellOthers(int device, uint32_t rate, int64_t charge, int64_t now);
// The same, and `all` is what it has under way. What less important ones have under way may come before it.
void TellOthersAll(int device, uint32_t rate, int64_t all, int64_t now);
// This container has more under way than it knows of: for others it is at work until it is looked at again.
void TellMore(int device, int64_t now);
// When work that is launched now begins: what less important containers have under way comes before it.
int64_t BehindOthers(int device, int64_t now);

// This container holds its launches for somebody who measures; `idle`: all of them have ended.
void TellHeld(int device, bool idle, int64_t now);

// This container launches without a look from now on: for others it is at work all the time.
void TellOthersAlways(int device, int64_t now);

// What this container has of the GPU: `gpu` ns for short launches; that a long one is under way, which may take longer
// than was expected; that none is any more, but `left` ns of others are.
void TellUsed(int device, int64_t gpu, int64_t now);
void TellLong(int device, int64_t now);
void TellNoLong(int device, int64_t left, int64_t now);
// The same of the others, and of the other processes of this container; of others nothing is told where there is no
// area.
region::CommonUsed UsedByOthers(int device, int64_t now);

// `balance` is there though this container would use it, as the others' turns come first.
void TellLag(int device, int64_t balance, int64_t now);
// What of a charge of `gpu` ns is left on top to one that lags further behind.
int64_t Concession(int device, int64_t gpu, uint32_t rate, int64_t now);

// Who else is there; all empty when nobody is known.
region::CommonView Others(int device, int64_t now);
bool OthersKnown(int device);

// To measure something alone: asks the others to hold their launches for `span` at most, and for `least` or not at all.
// Returns until when; 0 when it is not the moment, or none of them was at work since then.
int64_t AskForQuiet(int device, int64_t span, int64_t least, int64_t since, int64_t now);
// The same for another `span` from now on, if there is as much left of what others grant. Returns until when.
int64_t ProlongQuiet(int device, int64_t span, int64_t now);
// It is measured: the others need not wait for the rest of the time.
void EndQuiet(int device, int64_t now);
// Until when somebody else measures; 0 when nobody does, or somebody does too often.
int64_t QuietUntil(int device, int64_t now);

// The rate with the part of idle time that is this container's, where HAMI_CORES_BURST allows it.
uint32_t WithBurst(int device, uint32_t rate, int64_t now);

// Somebody who is as important has a limit: who has none leaves him his part.
bool BesideLimited(int device);
// The rate of one without a limit beside such.
uint32_t SpareRate(int device, int64_t now);

// Now and then: gives areas up that are not whole or not the right ones any more, and looks for others.
void CheckCommonAreas(int64_t now);
void ResetCommonAreas();

}  // namespace hami::vgpu
