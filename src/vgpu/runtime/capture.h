// SPDX-License-Identifier: Apache-2.0
//
// A stream capture is the program's, and which calls the driver forbids while one is under way differs by its version.
// So on a stream that is being captured the library asks the driver for nothing but what the program asked for, and
// elsewhere calls of its own are made so that no capture forbids them.
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

// Whether what is asked of the stream is recorded, or refused for a capture's sake. The driver allows the question, and
// says nothing of a stream that may not be used.
inline bool BeingCaptured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return real::cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace hami::vgpu
