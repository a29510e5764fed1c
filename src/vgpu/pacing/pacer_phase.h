// SPDX-License-Identifier: Apache-2.0
//
// When the two phases of a window (pacer_window.h) kept the GPU: what follows from the events behind the work of each
// stream.
#pragma once

#include <stdint.h>

#include "abi/cuda_abi.h"
#include "vgpu/pacing/pacer_trail.h"

namespace hami::vgpu {

// The work of one stream in one phase, and an event behind most of it. Not behind every launch: to record an event
// takes as long as to launch a short kernel, and streams that are fed half as fast overlap half as much.
struct Mark {
  LaunchQueueKey on;
  CUevent event;   // nullptr while none was due
  int64_t cost;    // ns, of all launches,
  int64_t marked;  // and of those before the event
};

// Of all streams in one phase.
struct Marks {
  const Mark* first;
  int count;
};

// ns from `start` to the event of each mark; false while one is not reached.
bool Ends(const Marks& marks, CUevent start, int64_t* ends, bool* failed);
// ns of the launches before the events.
int64_t MarkedWork(const Marks& marks);

// From the window's start, in ns.
struct Span {
  int64_t begin, end;
};

// When phase two kept the GPU, by the ends of the marks of both. `cut`: it ended while the streams went on.
Span BusyOf(const Marks& one, const int64_t* before, const Marks& two, const int64_t* after, bool cut);

}  // namespace hami::vgpu
