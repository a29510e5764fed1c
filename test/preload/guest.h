// SPDX-License-Identifier: Apache-2.0
//
// What the guest scenarios share. A scenario is a function that returns when all is well and calls Fail otherwise. The
// truth it compares with are simgpu's own books, which no library can shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "abi/cuda_abi.h"
#include "abi/nvml_abi.h"
#include "simgpu/simgpu.h"

namespace guest {

inline constexpr size_t kMiB = size_t{1} << 20;
inline constexpr size_t kGiB = size_t{1} << 30;

using Arguments = std::vector<std::string>;
struct Scenario {
  const char* name;
  void (*run)(const Arguments&);
};
// Scenarios register themselves before main.
void Register(Scenario scenario);
struct Registration {
  Registration(const char* name, void (*run)(const Arguments&)) { Register({name, run}); }
};
#define SCENARIO(name)                                                             \
  static void Scenario_##name(const ::guest::Arguments&);                          \
  static const ::guest::Registration registration_##name(#name, &Scenario_##name); \
  static void Scenario_##name([[maybe_unused]] const ::guest::Arguments& arguments)

[[noreturn]] void Fail(const char* file, int line, const char* what, long long got, long long want);
#define EXPECT(condition) \
  if (!(condition)) ::guest::Fail(__FILE__, __LINE__, #condition, 0, 1)
#define EXPECT_SAME(got, want)                                                                \
  do {                                                                                        \
    const auto got_value = (got);                                                             \
    const auto want_value = (want);                                                           \
    if (!(static_cast<long long>(got_value) == static_cast<long long>(want_value)))           \
      ::guest::Fail(__FILE__, __LINE__, #got " == " #want, static_cast<long long>(got_value), \
                    static_cast<long long>(want_value));                                      \
  } while (false)
#define OK(call) EXPECT_SAME(call, CUDA_SUCCESS)
#define OOM(call) EXPECT_SAME(call, CUDA_ERROR_OUT_OF_MEMORY)

// cuInit, and the primary context of a device current.
CUcontext Begin(CUdevice ordinal = 0);
// The driver's books: bytes this process holds on a machine device.
uint64_t Truth(int machine_device = 0);
// As the program sees it.
struct Seen {
  size_t free;
  size_t total;
  size_t used() const { return total - free; }
};
Seen MemInfo();
// What the container still may take.
inline size_t Room() { return MemInfo().free; }
// The counters must not be below the driver's books, nor far above them.
void Balanced(size_t tolerance = 0);

}  // namespace guest
