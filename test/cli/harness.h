// SPDX-License-Identifier: Apache-2.0
//
// A machine of its own for each end-to-end test: a simulated 2×H100, a state folder, and a way to start `hami` there
// and see what it says. Processes that a test leaves running are killed at its end.

#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/json.h"

namespace hami::e2e {

struct Outcome {
  int wait_status = 0;
  std::string out;
  std::string err;
  int exit_status() const;  // 128 + signal when it was killed
};

// A running `hami`.
struct Process {
  pid_t pid = -1;
  std::string out_path;
  std::string err_path;
};

class Machine : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts hami with ARGUMENTS in a process group of its own; INPUT becomes its stdin (-1: /dev/null).
  Process Start(const std::vector<std::string>& arguments, int input = -1);
  Outcome Wait(const Process& process);
  Outcome Hami(const std::vector<std::string>& arguments) { return Wait(Start(arguments)); }

  std::vector<std::string> ShareNames();  // by `hami ps`
  base::json::value Json(const std::vector<std::string>& arguments);
  std::string Output(const Process& process) const;
  // Folders under <state>/shares, without any clean-up.
  std::vector<std::string> Folders() const;

  // Looks again until CONDITION holds; false after a generous while.
  static bool Eventually(const std::function<bool()>& condition);
  static bool IsRunning(pid_t pid);

  std::string folder_;
  std::map<std::string, std::string> environment_;

 private:
  std::vector<pid_t> groups_;
  std::vector<pid_t> unwaited_;
  int started_ = 0;
};

// A blocking command: copies its stdin, so it ends when the writer of the pipe does.
struct Gate {
  Gate();
  base::Fd reader;
  base::Fd writer;
};

}  // namespace hami::e2e
