// SPDX-License-Identifier: Apache-2.0
//
// Calls of our own that must not end somebody's stream capture.
#pragma once

#include "abi/cuda_abi.h"
#include "vgpu/loader/driver.h"

namespace hami::vgpu {

// The calls of this thread do not count against anybody's capture.
class RelaxedCapture {
 public:
  RelaxedCapture() { real::cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { real::cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace hami::vgpu
