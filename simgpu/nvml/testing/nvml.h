// SPDX-License-Identifier: Apache-2.0
//
// Loads the simulated NVML into a fresh process for each test, as a client does, and calls it by name.
#pragma once

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "abi/nvml_abi.h"
#include "simgpu/machine/in_child.h"

namespace simgpu::nvml_test {

inline void* Symbol(const char* name) {
  static void* const library = dlopen(SIMGPU_NVML_PATH, RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : dlsym(library, name);
}

// Calls an NVML function with the signature that the header gives it.
#define NVML(name) (reinterpret_cast<decltype(&::name)>(::simgpu::nvml_test::Symbol(#name)))

#define CHECK_OR(code, condition) \
  if (!(condition)) return (code)

class NvmlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_ = "/dev/shm/simgpu-nvml-test-" + std::to_string(getpid());
    config_ = state_ + ".conf";
    unlink(state_.c_str());
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

}  // namespace simgpu::nvml_test
