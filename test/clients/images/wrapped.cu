// SPDX-License-Identifier: Apache-2.0
// Compiled to a host object: what it registers is a fatbin wrapper, of version 2 with -rdc=true.

__device__ int answer = 42;

extern "C" __global__ void wrapped_kernel(int* out) { *out = answer; }
