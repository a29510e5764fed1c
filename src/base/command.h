// SPDX-License-Identifier: Apache-2.0
//
// Runs another program and takes what it writes. Bounded in time and in output: past either the program's whole process
// group is killed. It has no terminal, no standard input but the one it is given, and the signal mask of a fresh
// process.

#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hami::base {

struct Command {
  std::vector<std::string> words;                                // the first is looked up in $PATH where it has no '/'
  std::vector<std::pair<std::string, std::string>> environment;  // beside ours, and before it
  std::string input;                                             // its standard input, at most 4096 bytes
  std::chrono::milliseconds limit{30'000};
  std::size_t most_bytes = 1U << 20U;  // of standard output; of standard error the first part is kept
};

struct CommandResult {
  int status = 0;  // its exit status, or 128 and the number of the signal
  std::string out;
  std::string err;
};

// An error: it could not be started, or was killed for its time or its output; with what it wrote to standard error.
Result<CommandResult> RunCommand(const Command& command);

}  // namespace hami::base
