// SPDX-License-Identifier: Apache-2.0
//
// The figures that decisions about GPU time depend on, each with its unit and its reason. Sizes, units and the bounds
// of what is rare stand where they are used.
#pragma once

#include <stdint.h>

// Variables for the test that halves and doubles each (constants_test.cc).
#ifdef HAMI_TIME_TUNABLE
#define HAMI_TIME_CONSTANT inline int64_t
#else
#define HAMI_TIME_CONSTANT inline constexpr int64_t
#endif

namespace hami::vgpu::time {

// ns of GPU time that a thread pays launches from without a look at the account. Larger: fewer looks, later orders.
HAMI_TIME_CONSTANT kLease = 200'000;
// ns that an overdrawn account waits for, so that the GPU is not given work kernel by kernel. Larger: longer pauses.
HAMI_TIME_CONSTANT kBurst = 2'000'000;
// ns of expected work in flight while nobody else is there. It bounds what an order to stop comes late by.
HAMI_TIME_CONSTANT kFlightAlone = 8'000'000;
// The same beside others: what the next one waits for, as it would for the GPU's own turn. Less, and a thread that
// wakes late leaves the GPU idle.
HAMI_TIME_CONSTANT kFlight = 2'000'000;
// The same beside a more important one, each of whose requests waits for it.
HAMI_TIME_CONSTANT kFlightUnder = 200'000;
// ns of a turn while another waits that is owed more. A change of turns costs up to 0.16 ms, 2 % of it.
HAMI_TIME_CONSTANT kTurn = 10'000'000;
// ns that a turn lasts beside one that is owed and did not have to wait before: the driver's own slice, so that neither
// has less than the driver would have given.
HAMI_TIME_CONSTANT kLeastTurn = 2'100'000;
// ns before the end of the work in flight at which the turn goes on to one that sleeps: what a thread takes to wake and
// to launch.
HAMI_TIME_CONSTANT kHandover = 100'000;
// ns after which a turn that its holder did not use is anybody's.
HAMI_TIME_CONSTANT kUnused = 1'000'000;
// ns after which a launch that waits for work in flight goes all the same, as the GPU may wait for it; and for which
// the word of a more important one that it is still at work counts.
HAMI_TIME_CONSTANT kPatience = 20'000'000;
// ns of wall time that a container may lag behind its share. Beyond that, while no other lags less than that, each
// gives up what all of them miss: what a full GPU loses is everybody's.
HAMI_TIME_CONSTANT kBank = 20'000'000;
// ns of work between two marks on a stream. A mark takes 1.3 us of the GPU.
HAMI_TIME_CONSTANT kSegment = 1'000'000;
// A measurement moves what is expected by one part of so many.
HAMI_TIME_CONSTANT kSmooth = 8;
// ns that a kernel takes more on a stream that is idle, where the host does not take less between event and launch.
HAMI_TIME_CONSTANT kIdleStart = 2'000;
// ns for which one that launched has use for the GPU.
HAMI_TIME_CONSTANT kWants = 20'000'000;

}  // namespace hami::vgpu::time

#undef HAMI_TIME_CONSTANT
