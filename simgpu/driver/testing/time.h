// SPDX-License-Identifier: Apache-2.0
//
// What the tests of time share: a kernel whose cost and width the caller chooses, on a GPU of known size.
#pragma once

#include "simgpu/driver/testing/driver.h"

namespace simgpu::testing {

inline constexpr int kSms = 108;  // of an A100
inline constexpr std::int64_t kMicro = 1000;
inline constexpr std::int64_t kMilli = 1000 * kMicro;

// One block of these fills an SM, so that a grid's size is the number of SMs it can fill.
inline constexpr char kImage[] =
    "simgpu-image 1\n"
    "kernel spin\n  param 8\n  cost param 0\n"
    "kernel fill\n  param 8\n  param 8\n  param 1\n  cost total 108us\n  action fill\n";

// On the virtual clock, and without the time that a launch takes to reach the GPU.
class TimedTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    std::ofstream(folder_ + "/config", std::ios::app) << "option launch_ns=0\n";
  }
};

class Gpu {
 public:
  Gpu() {
    EXPECT_OK(cuModuleLoadData(&module_, kImage));
    EXPECT_OK(cuModuleGetFunction(&spin_, module_, "spin"));
    EXPECT_OK(cuFuncSetAttribute(spin_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kShared));
  }

  CUfunction spin() const { return spin_; }
  CUfunction Function(const char* name) const {
    CUfunction f = nullptr;
    EXPECT_OK(cuModuleGetFunction(&f, module_, name));
    return f;
  }

  // A kernel that takes `ns` when it has `sms` SMs for itself.
  CUresult Launch(CUstream stream, std::int64_t ns, unsigned sms = kSms) const {
    std::uint64_t cost = static_cast<std::uint64_t>(ns) * sms;
    void* params[] = {&cost};
    return cuLaunchKernel(spin_, sms, 1, 1, 1024, 1, 1, kShared, stream, params, nullptr);
  }

  static constexpr int kShared = 100 * 1024;  // dynamic: more than half of what an SM has

 private:
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
};

inline CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  EXPECT_OK(cuStreamCreate(&stream, flags));
  return stream;
}

inline CUevent NewEvent(unsigned flags = 0) {
  CUevent event = nullptr;
  EXPECT_OK(cuEventCreate(&event, flags));
  return event;
}

inline CUevent Mark(CUstream stream) {
  CUevent event = NewEvent();
  EXPECT_OK(cuEventRecord(event, stream));
  return event;
}

// Between two events that are done, in whole nanoseconds.
inline std::int64_t Between(CUevent start, CUevent end) {
  float ms = -1;
  EXPECT_OK(cuEventElapsedTime(&ms, start, end));
  return static_cast<std::int64_t>(static_cast<double>(ms) * 1e6 + 0.5);
}

}  // namespace simgpu::testing
