// SPDX-License-Identifier: Apache-2.0
//
// The life line of a process's slot: a lock on one byte of the machine's file, by which everybody who has the file can
// tell that the process lives, also from another pid namespace, where its pid says nothing. A mapping keeps the lock,
// no descriptor: the program can not close it, a forked child does not inherit it, and exec or death drop it.
#pragma once

#include <string>

namespace simgpu {

// Where the machine's file is; said once, before the first slot is taken.
void SetLifeLineFile(const std::string& path);

// Takes the life line of this process for SLOT. False where that can not be: then nobody may judge by it.
bool HoldLifeLine(int slot);

// Does a living process hold it? True also when it can not be told.
bool LifeLineHeld(int slot);

}  // namespace simgpu
