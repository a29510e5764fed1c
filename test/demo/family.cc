// SPDX-License-Identifier: Apache-2.0
//
// Several processes under one limit: the parent starts workers (fork and exec, as launchers do), each of which grows
// until the family's limit stops it and then gives some back, so that they push each other. Arguments: seconds,
// number of workers. With "worker" as first argument it is one of them.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "guest.h"

namespace {

int Work(double seconds) {
  const guest::Cuda& cuda = guest::Start();
  std::vector<CUdeviceptr> held;
  uint64_t refused = 0;
  const size_t piece = 64 * guest::kMiB;
  for (double elapsed = 0; elapsed < seconds; elapsed += 0.05) {
    CUdeviceptr pointer = 0;
    const CUresult result = cuda.cuMemAlloc_v2(&pointer, piece);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      ++refused;
      while (held.size() > 4) {
        guest::Must(cuda.cuMemFree_v2(held.back()), "cuMemFree");
        held.pop_back();
      }
    } else {
      guest::Must(result, "cuMemAlloc");
      held.push_back(pointer);
    }
    guest::Pause(0.05);
  }
  return refused < 1000 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "worker") == 0) return Work(std::atof(argv[2]));
  const char* seconds = argc > 1 ? argv[1] : "6";
  const int workers = argc > 2 ? std::atoi(argv[2]) : 4;
  std::vector<pid_t> children;
  for (int i = 0; i < workers; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", "worker", "worker", seconds, static_cast<char*>(nullptr));
      _exit(127);
    }
    children.push_back(child);
  }
  // The parent looks on: it sees its family's use, not only its own.
  const guest::Cuda& cuda = guest::Start();
  guest::Pause(std::atof(seconds) * 0.8);
  guest::ReportViews(cuda);
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  guest::Report("workers", static_cast<uint64_t>(workers));
  guest::Report("workers_failed", static_cast<uint64_t>(failed));
  return failed == 0 ? 0 : 1;
}
