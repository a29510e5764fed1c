// SPDX-License-Identifier: Apache-2.0
//
// Tests of libcuda.so.1 from outside: a test's body runs in a forked child with a machine of its own, so that tests
// meet neither each other's GPUs nor each other's process state. Parent and child talk through pipes, never by waiting.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "abi/cuda_abi.h"
#include "simgpu/simgpu.h"

namespace simgpu::testing {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

#define EXPECT_OK(call) EXPECT_EQ((call), CUDA_SUCCESS)
#define ASSERT_OK(call) ASSERT_EQ((call), CUDA_SUCCESS)

// A process that can be waited for.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    pid_ = fork();
    if (pid_ != 0) return;
    body();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ~Child() { Join(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Kill() const { kill(pid_, SIGKILL); }

  // The exit status; 128 + signal for a process that a signal ended.
  int Join() {
    if (pid_ > 0) {
      int status = 0;
      waitpid(pid_, &status, 0);
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      pid_ = 0;
    }
    return status_;
  }

 private:
  pid_t pid_ = 0;
  int status_ = -1;
};

// Bytes from one process to another. Receive blocks; it fails the test when the sender is gone.
class Pipe {
 public:
  Pipe() {
    if (pipe(fds_) != 0) std::abort();
  }
  ~Pipe() {
    close(fds_[0]);
    close(fds_[1]);
  }
  template <typename Value>
  void Send(const Value& value) {
    ASSERT_EQ(write(fds_[1], &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }
  template <typename Value>
  Value Receive() {
    Value value{};
    EXPECT_EQ(read(fds_[0], &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }

 private:
  int fds_[2];
};

class DriverTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kTotal = 1024 * kMiB;  // of every device
  static constexpr std::size_t kContext = 64 * kMiB;

  void SetUp() override {
    char name[] = "/tmp/simgpu-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    Configure("2xA100-40");
  }
  void TearDown() override {
    const std::string command = "rm -rf '" + folder_ + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
  }

  void Configure(const std::string& gpus) {
    std::ofstream(folder_ + "/config") << "gpus " << gpus << "\n"
                                       << "option context_mib=64\noption clock=virtual\n"
                                       << "device * memory_mib=1024\n";
    setenv("SIMGPU_STATE", (folder_ + "/state").c_str(), 1);
    setenv("SIMGPU_PROFILE", "ideal", 1);
    setenv("SIMGPU_CONFIG", (folder_ + "/config").c_str(), 1);
    unsetenv("SIMGPU");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
  }

  // Runs the body in a process of its own; its failed expectations are ours.
  static void Run(const std::function<void()>& body) {
    Child child(body);
    EXPECT_EQ(child.Join(), 0);
  }

  // The same, with the primary context of device 0 current.
  static void RunWithContext(const std::function<void()>& body) {
    Run([&] {
      UsePrimary(0);
      body();
    });
  }

  static void UsePrimary(int ordinal) {
    CUcontext ctx = nullptr;
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&ctx, ordinal));
    ASSERT_OK(cuCtxSetCurrent(ctx));
  }

  static std::uint64_t Used(int dev = 0) { return simgpu_used_bytes(dev); }
  static std::uint64_t Free(int dev = 0) { return simgpu_free_bytes(dev); }

  std::string folder_;
};

}  // namespace simgpu::testing
