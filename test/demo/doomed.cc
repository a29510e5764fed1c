// SPDX-License-Identifier: Apache-2.0
//
// Holds a lot and never lets go by itself: allocates, says that it is ready, and goes on allocating and freeing until
// it is killed. Argument: how much to hold, in MiB.

#include <cstdlib>

#include "guest.h"

int main(int argc, char** argv) {
  const size_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8192) * guest::kMiB;
  const guest::Cuda& cuda = guest::Start();
  CUdeviceptr held = 0;
  guest::Must(cuda.cuMemAlloc_v2(&held, bytes), "cuMemAlloc");
  guest::ReportViews(cuda);
  guest::Report("ready", 1);
  while (true) {
    CUdeviceptr more = 0;
    guest::Must(cuda.cuMemAlloc_v2(&more, 16 * guest::kMiB), "cuMemAlloc");
    guest::Must(cuda.cuMemFree_v2(more), "cuMemFree");
    guest::Pause(0.0005);
  }
}
