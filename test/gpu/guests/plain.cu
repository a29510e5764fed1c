// SPDX-License-Identifier: Apache-2.0
//
// A plain CUDA C++ program: fills the device through the runtime API until refused, computes, gives back. Built against
// libcudart static and shared.

#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

__device__ unsigned table[1 << 20];

__global__ void Add(float* y, const float* x, int n) {
  int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] += x[i] + static_cast<float>(table[i & 1023]);
}

int main() {
  const int n = 1 << 20;
  std::vector<float> host(n, 1.0f);
  float *x = nullptr, *y = nullptr;
  if (cudaMalloc(&x, n * sizeof(float)) || cudaMalloc(&y, n * sizeof(float))) return 1;
  cudaMemcpy(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(y, host.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  Add<<<n / 256, 256>>>(y, x, n);
  cudaMemcpy(host.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost);
  bool right = true;
  for (float value : host) right = right && value == 2.0f;
  cudaFree(x);
  cudaFree(y);

  size_t free_start = 0, free_end = 0, total = 0, allocated = 0;
  cudaMemGetInfo(&free_start, &total);
  std::vector<void*> held;
  cudaError_t error = cudaSuccess;
  for (size_t chunk : {size_t{512} << 20, size_t{32} << 20, size_t{2} << 20}) {
    for (void* p = nullptr; (error = cudaMalloc(&p, chunk)) == cudaSuccess; allocated += chunk) held.push_back(p);
    cudaGetLastError();
  }
  for (void* p : held) cudaFree(p);
  cudaMemGetInfo(&free_end, &total);
  std::printf("{\"total\": %zu, \"free_start\": %zu, \"allocated\": %zu, \"free_end\": %zu, \"oom\": \"%s\", \"right\": %s}\n",
              total, free_start, allocated, free_end, cudaGetErrorName(error), right ? "true" : "false");
  return 0;
}
