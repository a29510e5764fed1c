// SPDX-License-Identifier: Apache-2.0
//
// The configuration language: one statement a line, a verb and key=value words ("quoted values" may hold blanks, '#'
// starts a comment). The same statements describe a machine at its creation and change it while it runs. Strict: an
// unknown verb, key or value is an error that names origin, line and what would be right; nothing is guessed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/machine/spec.h"

namespace simgpu {

inline constexpr std::uint32_t kValueUnset = 0xffffffff;

// One change of a running machine, checked but not yet applied.
struct Change {
  enum class Kind { kFault, kClear, kXid, kLost, kRecover, kSet, kLink };
  Kind kind = Kind::kClear;
  int dev = -1;  // -1: every device (kFault: any)
  // kFault
  std::string call;
  int error = 0;
  std::uint64_t delay_ns = 0, nth = 0, count = 0;
  std::uint32_t per_million = 1'000'000;
  // kXid
  std::uint64_t code = 0;
  std::uint64_t after_ns = 0;
  std::uint32_t gpu_instance = 0xffffffff, compute_instance = 0xffffffff;
  // kSet: Machine::Value and its value; kLink: link number and whether it is up
  std::uint32_t value = 0;
  std::uint64_t number = 0;
};

struct Plan {
  int device_count = 0;
  DeviceSpec device[kMaxDevices] = {};
  Options options = {};
  std::vector<Change> changes;  // to be applied at creation
};

// Builds the plan of a machine from SIMGPU ("8xH100,2xT4", may be empty) and the text of a configuration file (may be
// empty; `origin` is its name in messages). Nothing of either: one H100. `profile`: SIMGPU_PROFILE, or empty.
bool MakePlan(std::string_view simgpu, std::string_view text, std::string_view origin, Plan* plan, std::string* error,
              std::string_view profile = {});

// Parses statements that change a running machine of `device_count` devices.
bool ParseChanges(std::string_view text, std::string_view origin, int device_count, std::vector<Change>* changes,
                  std::string* error);

}  // namespace simgpu
