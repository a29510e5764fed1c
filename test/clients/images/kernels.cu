// SPDX-License-Identifier: Apache-2.0
// What images.cc expects to find: every number here is asked for there.

struct Big {
  int words[9];
  double tail;
};

__device__ int counters[4] = {1, 2, 3, 4};
__device__ float zeroed[1000];
__constant__ double table[3] = {1.5, 2.5, 3.5};
__managed__ int shared_number = 77;
__device__ unsigned char tag = 0xab;

extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void __launch_bounds__(128) tile(Big big, char c, short s, long long* out) {
  __shared__ int cells[300];
  cells[threadIdx.x] = static_cast<int>(table[threadIdx.x % 3]) + counters[threadIdx.x % 4] + shared_number + tag +
                       static_cast<int>(zeroed[threadIdx.x]);
  __syncthreads();
  out[threadIdx.x] = cells[threadIdx.x * 7 % 300] + big.words[threadIdx.x % 9] + c + s + static_cast<long long>(big.tail);
}

extern "C" __global__ void nothing() {}

template <typename T>
__global__ void templated(T* p) {
  *p = 1;
}
template __global__ void templated<int>(int*);

extern "C" __global__ void spills(int* p) {
  volatile int local[64];
  for (int i = 0; i < 64; ++i) local[i * p[1] & 63] = i;
  p[3] = local[p[2] & 63];
}
