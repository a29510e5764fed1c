// SPDX-License-Identifier: Apache-2.0
// More than 4 KiB of parameters, which compilers describe in records of another form.

struct Huge {
  int words[5000];
};

extern "C" __global__ void huge(const __grid_constant__ Huge h, int k, int* out) { *out = h.words[k]; }
