// SPDX-License-Identifier: Apache-2.0
// preload_guest SCENARIO ARGUMENTS…
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "test/preload/guest.h"

namespace guest {
namespace {

std::vector<Scenario>& Scenarios() {
  static std::vector<Scenario> scenarios;
  return scenarios;
}

}  // namespace

void Register(Scenario scenario) { Scenarios().push_back(scenario); }

void Fail(const char* file, int line, const char* what, long long got, long long want) {
  std::fprintf(stderr, "%s:%d: %s: got %lld, want %lld\n", file, line, what, got, want);
  std::_Exit(1);
}

CUcontext Begin(CUdevice ordinal) {
  CUcontext context = nullptr;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, ordinal));
  OK(cuCtxSetCurrent(context));
  return context;
}

uint64_t Truth(int machine_device) { return simgpu_process_bytes(machine_device, 0); }

Seen MemInfo() {
  Seen seen{};
  OK(cuMemGetInfo_v2(&seen.free, &seen.total));
  return seen;
}

void Balanced(size_t tolerance) {
  const uint64_t truth = Truth();
  const uint64_t counted = MemInfo().used();
  if (counted < truth || counted > truth + tolerance) {
    Fail(__FILE__, __LINE__, "counted == what the driver holds", static_cast<long long>(counted),
         static_cast<long long>(truth));
  }
}

}  // namespace guest

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const guest::Arguments arguments(argv + 2, argv + argc);
  for (const guest::Scenario& scenario : guest::Scenarios()) {
    if (std::strcmp(scenario.name, argv[1]) != 0) continue;
    scenario.run(arguments);
    return 0;
  }
  std::fprintf(stderr, "no scenario named %s\n", argv[1]);
  return 2;
}
