// SPDX-License-Identifier: Apache-2.0
//
// One GPU's control daemon as a process: starts it, asks it, ends it. The shell around supervision.h; keeps nothing but
// the place. The daemon is a process of its own session, so that it outlives whoever started it, and is found again by
// the place's process file. Every question is bounded in time. Ends only a process that the process file names with its
// start time.

#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "mps/place.h"
#include "mps/supervision.h"

namespace hami::mps {

class Control {
 public:
  explicit Control(Place place, std::chrono::milliseconds answer_within = std::chrono::milliseconds(3'000));

  const Place& place() const { return place_; }

  Seen Look() const;
  base::Status Start() const;
  base::Status Configure(const Limits& limits, const std::vector<Server>& servers) const;
  base::Status Quit() const;
  base::Status Kill() const;

  // What the daemon answers to COMMAND, a line.
  base::Result<std::string> Ask(const std::string& command) const;

 private:
  base::Result<Server> AskServer(int pid) const;
  bool Lives() const;

  const Place place_;
  const std::chrono::milliseconds answer_within_;
};

// The program of --mps-control: PROGRAM itself where it holds a '/', else where $PATH has it. An error says what to
// install.
base::Result<std::string> FindProgram(const std::string& program);
inline constexpr const char* kProgram = "nvidia-cuda-mps-control";

// One look, the decision, and what it asks for. An action that fails is a notice and is tried again at the next look.
std::vector<Notice> Tend(const Control& control, const Wanted& wanted, Memory& memory, Millis now,
                         const Rules& rules = {});

// Milliseconds of the clock that Tend goes by.
Millis Now();

}  // namespace hami::mps
