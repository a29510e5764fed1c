// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the machine share: a machine of their own in the shared memory of this host, and processes that use
// it. Machine is one per process, so each test's body runs in a child.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "simgpu/machine/in_child.h"
#include "simgpu/machine/machine.h"

namespace simgpu {

inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

inline std::string TempPath(const char* name) {
  std::string path = std::string("/dev/shm/simgpu-test-") + std::to_string(getpid()) + "-" + name;
  unlink(path.c_str());
  return path;
}

class MachineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_ = TempPath("state");
    config_ = TempPath("config");
    setenv("SIMGPU_STATE", state_.c_str(), 1);
    setenv("SIMGPU_PROFILE", "ideal", 1);
    setenv("SIMGPU", "2xH100", 1);
    unsetenv("SIMGPU_CONFIG");
    unsetenv("SIMGPU_PID_OFFSET");
  }
  void TearDown() override {
    unlink(state_.c_str());
    unlink(config_.c_str());
  }
  void Config(const std::string& text) {
    std::ofstream(config_) << text;
    setenv("SIMGPU_CONFIG", config_.c_str(), 1);
  }
  std::string state_, config_;
};

#define CHECK_OR(code, condition) \
  if (!(condition)) return (code)

// A child that charges, tells us, and waits to be killed.
struct Victim {
  pid_t pid = -1;
  explicit Victim(const std::function<void()>& hold) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid = fork();
    if (pid == 0) {
      alarm(50);
      hold();
      if (write(ready[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    close(ready[1]);
    char c = 0;
    while (read(ready[0], &c, 1) < 0) {
    }
    close(ready[0]);
  }
  void Kill() {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
  ~Victim() { Kill(); }
};

}  // namespace simgpu
