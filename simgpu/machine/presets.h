// SPDX-License-Identifier: Apache-2.0
//
// The GPU models that simgpu knows, as a table of public data (data sheets, NVIDIA's MIG user guide, and what NVML
// shows on such cards). A preset gives everything but identity; Identify adds what differs from card to card.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "simgpu/machine/spec.h"

namespace simgpu {

// The preset of this name (case does not matter, "-" and "_" neither), or null.
const DeviceSpec* FindPreset(std::string_view name);
// "T4, A10, …", for messages.
std::string PresetNames();
int PresetCount();
const DeviceSpec& PresetAt(int index);

// Gives device `index` of `count` its UUID, serial number, PCI address, minor number, NUMA node and NVLink peers: the
// same for the same seed and index, for ever.
void Identify(std::uint64_t seed, int index, int count, DeviceSpec* spec);

}  // namespace simgpu
