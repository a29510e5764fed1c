// SPDX-License-Identifier: Apache-2.0
//
// Threads of the library's own, and the end of the program's. The thread functions moved from libpthread to libc in
// glibc 2.34; a look-up at run time finds them in both, and where there are none nothing happens.
#pragma once

namespace hami::vgpu {

// Starts a thread that nobody waits for, with all signals blocked but those of faults.
bool StartThread(void* (*body)(void*));
// Calls `leave(what)` when the calling thread ends. `leave` is the same for all threads of the process.
void WhenThreadEnds(void (*leave)(void* what), void* what);

}  // namespace hami::vgpu
