// SPDX-License-Identifier: Apache-2.0
//
// The well-behaved one: keeps a model of fixed size, allocates and frees work space around it, and never asks for more
// than it was given. Arguments: seconds, model in MiB, work space in MiB.

#include <cstdlib>

#include "guest.h"

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 6;
  const size_t model_bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 4096) * guest::kMiB;
  const size_t work_bytes = (argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1024) * guest::kMiB;
  const guest::Cuda& cuda = guest::Start();
  CUdeviceptr model = 0;
  guest::Must(cuda.cuMemAlloc_v2(&model, model_bytes), "cuMemAlloc of the model");
  uint64_t steps = 0;
  for (double elapsed = 0; elapsed < seconds; elapsed += 0.1, ++steps) {
    CUdeviceptr work = 0;
    guest::Must(cuda.cuMemAlloc_v2(&work, work_bytes), "cuMemAlloc of the work space");
    guest::Must(cuda.cuMemsetD8_v2(work, 0, guest::kMiB), "cuMemset");
    guest::Pause(0.1);
    guest::Must(cuda.cuMemFree_v2(work), "cuMemFree");
  }
  guest::ReportViews(cuda);
  guest::Report("steps", steps);
  guest::Must(cuda.cuMemFree_v2(model), "cuMemFree");
  return 0;
}
