// SPDX-License-Identifier: Apache-2.0
//
// The rule by which cuGetProcAddress finds a function: the greatest version not above the one asked for, and of that
// version the per-thread twin where it is wanted and there is one. Owns the index over the list of driver symbols.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace simgpu {

enum class Flavour : std::uint8_t { kPlain, kPtds, kPtsz };

struct EntryPoint {
  std::string_view symbol;    // as exported
  std::string_view asked_as;  // as asked for
  int since;                  // CUDA version from which the name means this symbol
  Flavour flavour;
  void (*address)();
};

// Every row of the list, in its order.
std::span<const EntryPoint> EntryPoints();

enum class Lookup { kFound, kUnknownName, kVersionTooOld };

// `address` is null unless the answer is kFound.
Lookup FindEntryPoint(std::string_view name, int version, bool per_thread, void (**address)());

}  // namespace simgpu
