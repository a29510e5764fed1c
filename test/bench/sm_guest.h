// SPDX-License-Identifier: Apache-2.0
//
// What a guest of the benchmark calls of the driver, and the limiter that it may be its own.
#pragma once

#include "abi/cuda_abi.h"
#include "sm_board.h"

namespace sm {

struct Cuda {
#define FIND(name) decltype(::name)* name = Find<decltype(::name)>(#name)
  FIND(cuInit);
  FIND(cuDeviceGetAttribute);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  FIND(cuCtxSynchronize);
  FIND(cuModuleLoadData);
  FIND(cuModuleGetFunction);
  FIND(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  FIND(cuLaunchKernel);
  FIND(cuStreamCreate);
  FIND(cuStreamSynchronize);
  FIND(cuEventCreate);
  FIND(cuEventRecord);
  FIND(cuEventSynchronize);
  FIND(cuEventElapsedTime);
  FIND(cuGraphCreate);
  FIND(cuGraphAddKernelNode_v2);
  FIND(cuGraphInstantiateWithFlags);
  FIND(cuGraphLaunch);
#undef FIND
};

// Keeps the guest's own limit, by knowing the cost of everything before it is launched.
class SelfLimit {
 public:
  explicit SelfLimit(double fraction) : fraction_(fraction) {}

  void Before(double cost) {
    if (fraction_ <= 0) return;
    owed_ += cost / fraction_;
    if (owed_ < next_look_) return;
    next_look_ = owed_ + kChunk;
    const Nanos now = Now();
    if (begin_ == 0 || static_cast<double>(now - begin_) > owed_ + kCredit) {
      begin_ = now;  // was idle: what it did not use is gone, but for a little
      owed_ = next_look_ = cost / fraction_;
    }
    const double earliest = owed_ - cost / fraction_;
    if (static_cast<double>(now - begin_) < earliest) SleepUntil(begin_ + static_cast<Nanos>(earliest));
  }

 private:
  static constexpr double kChunk = 0.5e6, kCredit = 8e6;  // ns
  double fraction_;
  double owed_ = 0, next_look_ = 0;
  Nanos begin_ = 0;
};

}  // namespace sm
