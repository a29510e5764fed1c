// SPDX-License-Identifier: Apache-2.0
//
// injector LIBRARY STATEMENT: does to the simulated machine what STATEMENT says, as simgpu_inject of its NVML does.

#include "simgpu/simgpu.h"

#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  const auto inject =
      library == nullptr ? nullptr : reinterpret_cast<decltype(&::simgpu_inject)>(::dlsym(library, "simgpu_inject"));
  char error[256] = "no simgpu_inject";
  if (inject != nullptr && inject(argv[2], error, sizeof error) == 1) return 0;
  std::fprintf(stderr, "%s: %s\n", argv[1], error);
  return 1;
}
