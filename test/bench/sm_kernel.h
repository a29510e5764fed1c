// SPDX-License-Identifier: Apache-2.0
//
// One kernel whose length is its argument, for simgpu and for a real GPU: there each thread multiplies and adds for a
// number of rounds, so that what it does is the same whenever it runs.
#ifndef HAMI_TEST_BENCH_SM_KERNEL_H_
#define HAMI_TEST_BENCH_SM_KERNEL_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "abi/cuda_abi.h"

namespace sm {

inline constexpr char kSimulated[] = "simgpu-image 1\nkernel work\n  param 8\n  cost param 0\n";
inline constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 rounds)
{
  .reg .pred %more, %never;
  .reg .u32 %thread;
  .reg .u64 %left;
  .reg .f32 %x, %a, %b;
  ld.param.u64 %left, [rounds];
  mov.u32 %thread, %tid.x;
  cvt.rn.f32.u32 %x, %thread;
  mov.f32 %a, 0f3F7FFFFF;
  mov.f32 %b, 0f3A83126F;
MORE:
  fma.rn.f32 %x, %x, %a, %b;
  fma.rn.f32 %x, %x, %a, %b;
  sub.u64 %left, %left, 1;
  setp.ne.u64 %more, %left, 0;
  @%more bra MORE;
  setp.eq.f32 %never, %x, 0fBF800000;
  @%never trap;
  ret;
}
)";

// The kernel of a process. Its blocks have 1,024 threads, and so many run on an SM that a full grid takes one wave.
struct WorkKernel {
  CUfunction function = nullptr;
  bool real = false;
  double round_ns = 0;  // of a real GPU that is full: `sm_guest calibrate` says it, and SM_ROUND_NS carries it

  // `load(image)` is cuModuleLoadData and cuModuleGetFunction of "work".
  template <typename Load>
  CUresult Init(Load load) {
    CUresult result = load(kSimulated, &function);
    if (result == CUDA_SUCCESS) return result;  // a real driver refuses that text
    real = true;
    const char* known = std::getenv("SM_ROUND_NS");
    round_ns = known == nullptr ? 0 : std::atof(known);
    return load(kPtx, &function);
  }

  // What the kernel is given to run for `nanos` on `width` SMs.
  std::uint64_t Argument(double nanos, int width) const {
    if (!real) return static_cast<std::uint64_t>(nanos) * static_cast<std::uint64_t>(width);
    if (round_ns <= 0) {
      std::fprintf(stderr, "SM_ROUND_NS is not set: `sm_guest calibrate` prints it\n");
      std::exit(2);
    }
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(nanos / round_ns + 0.5));
  }
};

}  // namespace sm

#endif  // HAMI_TEST_BENCH_SM_KERNEL_H_
