// SPDX-License-Identifier: Apache-2.0
//
// Included ahead of every source of the region in the stress test only: turns the marks between two stores that must
// not be torn apart into calls, so that a test can die exactly there.

#pragma once

#define HAMI_KILL_POINT(number) ::hami::region::KillPoint(number)

namespace hami::region {
void KillPoint(int number);
}  // namespace hami::region
