// SPDX-License-Identifier: Apache-2.0
//
// How guests measure what they have of the simulated GPU's time, on a host that may have better things to do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "test/preload/guest.h"

namespace guest {

// What is judged is the library's share of the GPU's time, not the host's of its processors: where the user may, this
// process and the threads it will make run ahead of whatever else the machine does.
void BeginAhead();

// Seconds that threads of a process were ready to run and had no processor, all of them together.
double Starved(const std::string& pid = "self");

// The busy share in percent that `busy` counts in nanoseconds while `stretch` passes. The simulated device and its
// users need the host's processors to keep their times: a stretch in which they were kept waiting for them, `starved`
// seconds by now, says nothing and is measured again; the last of five counts whatever happened.
double ShareWhile(const std::function<void()>& stretch, const std::function<uint64_t()>& busy,
                  const std::function<double()>& starved);

// Calls `step` for a warm-up and then for `seconds`: the busy share of the device by its own counter.
double BusyShare(double seconds, const std::function<void()>& step);

// In percent, as what was measured and as words of a scenario.
void ExpectShare(double share, double want, double tolerance);
void ExpectShare(double share, const std::string& want, const std::string& tolerance);

}  // namespace guest
