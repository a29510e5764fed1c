// SPDX-License-Identifier: Apache-2.0
//
// Makes a mapped, initialised region out of a path. Whoever finds the file uninitialised fills it under HAMi's own
// creation lock (a record lock over the struct), so of any number of creators of either library exactly one does it;
// the magic words are written last. Nothing is written to a file that is refused.

#pragma once

#include "region/region.h"

namespace hami::region {

// Opens (creating if `create`), validates, initialises from `config` where needed, and maps. On failure nothing stays
// open. `config` may be null if `create` is false: then a HAMi region without private area gets an empty one. `join`:
// where a file of this path was deleted while processes have it, that one is mapped, and not a new one (adopt.h).
Status MapRegion(Attachment* attachment, const char* path, bool create, const Config* config, bool join = true);
void UnmapRegion(Attachment* attachment);

// Whether the disk has room for a piece of the file. A page that was never written may have none, which a store through
// the map would answer with SIGBUS; asking first turns that into an error (errno).
bool HasRoom(int fd, int64_t offset, int64_t length);

// Whether our descriptor still is one of the region's file: a program may close it, and give its number to another.
bool DescriptorIsOurs(const Attachment& attachment);
// If it is not: opens the same file again, or leaves fd at -1. With the process-local lock.
void RecoverDescriptor(Attachment* attachment);

}  // namespace hami::region
