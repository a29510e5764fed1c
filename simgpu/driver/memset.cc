// SPDX-License-Identifier: Apache-2.0
// cuMemset*.
#include "simgpu/driver/engine.h"
#include "simgpu/driver/mem.h"
#include "simgpu/driver/twins.h"

namespace simgpu {
namespace {

struct When {
  CUstream stream;
  bool per_thread;
  bool wait;
};

CUresult Fill(CUdeviceptr dst, std::size_t pitch, std::uint32_t value, unsigned element, std::size_t width,
              std::size_t height, const When& when) {
  Context* ctx = nullptr;
  SIMGPU_TRY(NeedContext(&ctx));
  FillOp op;
  SIMGPU_TRY(MakeFill(dst, pitch, value, element, width, height, &op));
  CUresult error = CUDA_SUCCESS;
  Stream* stream = ResolveStream(when.stream, when.per_thread, &error);
  if (stream == nullptr) return error;
  if (op.bytes() == 0) return CUDA_SUCCESS;
  return when.wait ? RunFill(*stream, op) : SubmitFill(*stream, op);
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

#define WAIT \
  When { nullptr, per_thread, true }
#define LATER \
  When { stream, per_thread, false }

SIMGPU_TWINS(cuMemsetD8_v2, _ptds, (CUdeviceptr dst, unsigned char value, size_t count),
             Fill(dst, 0, value, 1, count, 1, WAIT))
SIMGPU_TWINS(cuMemsetD16_v2, _ptds, (CUdeviceptr dst, unsigned short value, size_t count),
             Fill(dst, 0, value, 2, count, 1, WAIT))
SIMGPU_TWINS(cuMemsetD32_v2, _ptds, (CUdeviceptr dst, unsigned int value, size_t count),
             Fill(dst, 0, value, 4, count, 1, WAIT))
SIMGPU_TWINS(cuMemsetD2D8_v2, _ptds, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height),
             Fill(dst, pitch, value, 1, width, height, WAIT))
SIMGPU_TWINS(cuMemsetD2D16_v2, _ptds,
             (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height),
             Fill(dst, pitch, value, 2, width, height, WAIT))
SIMGPU_TWINS(cuMemsetD2D32_v2, _ptds, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height),
             Fill(dst, pitch, value, 4, width, height, WAIT))
SIMGPU_TWINS(cuMemsetD8Async, _ptsz, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream),
             Fill(dst, 0, value, 1, count, 1, LATER))
SIMGPU_TWINS(cuMemsetD16Async, _ptsz, (CUdeviceptr dst, unsigned short value, size_t count, CUstream stream),
             Fill(dst, 0, value, 2, count, 1, LATER))
SIMGPU_TWINS(cuMemsetD32Async, _ptsz, (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream),
             Fill(dst, 0, value, 4, count, 1, LATER))
SIMGPU_TWINS(cuMemsetD2D8Async, _ptsz,
             (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),
             Fill(dst, pitch, value, 1, width, height, LATER))
SIMGPU_TWINS(cuMemsetD2D16Async, _ptsz,
             (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream),
             Fill(dst, pitch, value, 2, width, height, LATER))
SIMGPU_TWINS(cuMemsetD2D32Async, _ptsz,
             (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream),
             Fill(dst, pitch, value, 4, width, height, LATER))
