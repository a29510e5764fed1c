// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/profile.h"

#include <algorithm>

namespace simgpu {
namespace {

constexpr std::uint64_t kKiB = std::uint64_t{1} << 10;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

constexpr void Name(std::string_view name, char* to) { std::copy(name.begin(), name.end(), to); }

constexpr Profile Ideal() {
  Profile p = {};
  Name("ideal", p.name);
  p.turn_ns = 2'000'000;
  p.idle_switch_ns = kHalfASwitch;
  p.launch_ns = 2'000;
  p.context_bytes = 300 * kMiB;
  p.pool_step_bytes = 2 * kMiB;
  return p;
}

// Measured on one H200 with driver 580.159: two kernels that watch the clock have 2.083 ms each and are away for one
// turn of the other and two switches; full kernels of 0.5 ms lose another 3 % to cold caches (resume_ns).
constexpr Profile H200() {
  Profile p = {};
  Name("h200", p.name);
  p.turn_ns = 2'083'000;
  p.switch_ns = 160'000;
  p.idle_switch_ns = kHalfASwitch;
  p.resume_ns = 70'000;
  p.host_percent = 100;
  p.nvml_percent = 100;
  p.launch_ns = 0;  // what the call costs the host is the 2 us that an idle stream takes longer
  p.gap_ns = 1'790;
  p.graph_gap_ns = 1'020;
  p.event_ns = 1'280;
  p.context_bytes = 518 * kMiB;
  p.stream_bytes = 544 * kKiB;  // 64 of them take 34 MiB
  p.device_heap_bytes = 10 * kMiB;
  p.graph_node_bytes = 2 * kKiB;  // 1,000 of them take 2 MiB
  p.pool_step_bytes = 32 * kMiB;
  p.blocks = 1;
  return p;
}

constexpr Profile kProfiles[] = {Ideal(), H200()};

}  // namespace

const Profile* FindProfile(std::string_view name) {
  for (const Profile& profile : kProfiles) {
    if (name == profile.name) return &profile;
  }
  return nullptr;
}

std::string ProfileNames() {
  std::string names;
  for (const Profile& profile : kProfiles) {
    if (!names.empty()) names += ", ";
    names += profile.name;
  }
  return names;
}

}  // namespace simgpu
