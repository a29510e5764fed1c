// SPDX-License-Identifier: Apache-2.0
//
// A test body in a process of its own: the machine, and what a library keeps of it, exist once a process, so each test
// of them is a child with its own environment. Bounded by an alarm; owns nothing.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace simgpu {

// The child's exit status (0: good), or 1000 + the signal that ended it.
inline int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(50);
    _exit(body());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace simgpu
