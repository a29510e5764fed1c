// SPDX-License-Identifier: Apache-2.0
//
// Repeats a look at something until the user has seen enough (SIGINT, SIGTERM, SIGHUP) or nobody reads any more. The
// terminal is left as it was found.

#pragma once

#include <functional>

namespace hami::base {

// Nobody will read what is written to FD, a pipe or a terminal: no reason to complain, `| head` ends so.
bool ReaderIsGone(int fd);

// SHOW draws once and returns false to stop. Returns after the last round. Ends with status 0: being interrupted is
// how a watch normally ends.
void Repeat(double interval_seconds, const std::function<bool()>& show);

}  // namespace hami::base
