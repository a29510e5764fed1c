// SPDX-License-Identifier: Apache-2.0
//
// Runs one command as env(1) would, but stays to see it end: signals sent to us alone are passed on, the command's exit
// status (or fatal signal) becomes ours, and if we are killed the command is killed with us, as if we had been replaced
// by it. What is KEPT (the life line first) is inherited by the command and all it starts. Must be called from a
// single-threaded process.

#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "cli/environment.h"
#include "cli/status.h"

namespace hami::cli {

struct Ending {
  int exit_status = 0;
  int signal = 0;  // the one that ended the command, or 0
};

// COMMAND is looked up in PATH. An error means that it never ran; its `exit_status` is in the second member.
struct StartFailure {
  base::Error error;
  int exit_status = 0;
};
tl::expected<Ending, StartFailure> Supervise(const std::vector<std::string>& command, const Environment& environment,
                                             std::vector<base::Fd> kept);

// Ends this process as the command ended: with its status, or by its signal (without a core file of our own).
[[noreturn]] void EndAs(const Ending& ending);

// Replaces this process. Returns only when that failed.
StartFailure Replace(const std::vector<std::string>& command, const Environment& environment);

}  // namespace hami::cli
