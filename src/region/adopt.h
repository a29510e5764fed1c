// SPDX-License-Identifier: Apache-2.0
//
// A region whose file was deleted while processes have it: they go on in it, and who comes next must join them there,
// for a new file would be a second account of the same share. The living are found by their descriptors in /proc, so
// only those that this process may look at. Invariant: what is found was at exactly this path, on this file system.
#pragma once

namespace hami::region {

// A descriptor of the deleted file that a living process has, opened anew; -1 when there is none.
int OpenDeleted(const char* path);

// Keeps systemd-tmpfiles from the file for as long as anybody maps it: a shared lock of the open file (flock), which it
// honours. On file systems of this machine alone, for on others such a lock would bar the record locks.
void GuardAgainstCleaners(int fd);

}  // namespace hami::region
