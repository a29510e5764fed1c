// SPDX-License-Identifier: Apache-2.0
//
// The watchful one: holds some memory, launches a short kernel now and then, and whenever cuMemGetInfo says another
// size of the GPU it tells what it sees and whether one MiB more than is free can be had. Arguments: seconds, memory in
// MiB, how long the kernel takes in µs.

#include <cstdlib>
#include <string>

#include "guest.h"

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 60;
  const size_t held_bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024) * guest::kMiB;
  const guest::Cuda& cuda = guest::Start();
  CUdeviceptr held = 0;
  guest::Must(cuda.cuMemAlloc_v2(&held, held_bytes), "cuMemAlloc");
  CUmodule module{};
  CUfunction work{};
  const std::string cost = argc > 3 ? argv[3] : "100";
  const std::string image = "simgpu-image 1\nkernel work\n  cost total " + cost + "us\n";
  guest::Must(cuda.cuModuleLoadData(&module, image.c_str()), "cuModuleLoadData");
  guest::Must(cuda.cuModuleGetFunction(&work, module, "work"), "cuModuleGetFunction");
  size_t last_total = 0;
  for (double elapsed = 0; elapsed < seconds; elapsed += 0.05) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    guest::Must(cuda.cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
    if (total_bytes != last_total) {
      last_total = total_bytes;
      guest::ReportViews(cuda);
      CUdeviceptr beyond = 0;
      guest::Report("beyond", static_cast<uint64_t>(cuda.cuMemAlloc_v2(&beyond, free_bytes + guest::kMiB)));
      if (beyond != 0) guest::Must(cuda.cuMemFree_v2(beyond), "cuMemFree");
    }
    guest::Must(cuda.cuLaunchKernel(work, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
    guest::Pause(0.05);
  }
  guest::Must(cuda.cuMemFree_v2(held), "cuMemFree");
  return 0;
}
