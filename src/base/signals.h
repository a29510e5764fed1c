// SPDX-License-Identifier: Apache-2.0
//
// The signals of a daemon, taken one at a time by the thread that waits for them. SIGTERM, SIGINT and SIGQUIT end it in
// good order; SIGHUP opens the log file anew and does what the program has for it; SIGUSR1 and SIGUSR2 do nothing.
// None of them ends the program by its default action, and each leaves a line.

#pragma once

#include <csignal>
#include <functional>

namespace hami::base {

// To be called before the second thread begins, which inherits it. Also ignores SIGPIPE.
sigset_t BlockSignals();

// Waits for a signal that ends the program, and returns its number. ON_HANGUP comes after the log file is open again.
int WaitForEnd(const sigset_t& signals, const std::function<void()>& on_hangup);

}  // namespace hami::base
