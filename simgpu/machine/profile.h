// SPDX-License-Identifier: Apache-2.0
//
// What a GPU and its driver take for themselves: time between contexts, between kernels and in the host's calls. One
// Profile a device, as plain data in its DeviceSpec. `ideal` takes nothing, so that a test can say what a stamp is to
// the nanosecond; the others hold what was measured on the GPU that they are named for.
// Refuses: nothing; the configuration checks every value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace simgpu {

struct Profile {
  char name[16];

  // Between contexts.
  std::uint64_t turn_ns;               // how long a context has the GPU while others want it
  std::uint64_t switch_ns;             // lost when a context's turn ends by time
  std::uint64_t idle_switch_ns;        // lost when the last context ran out of work; kHalfASwitch: half of switch_ns
  std::uint64_t resume_ns;             // of its turn, what an interrupted context needs to get up to speed again
  std::uint32_t turn_jitter_permille;  // turns and switches vary by as much, up and down

  // Inside one.
  std::uint32_t kernel_jitter_permille;  // lengths of kernels vary by as much, up and down
  std::uint32_t boost_percent;           // the clock of a GPU that rests is higher by as much at most
  std::uint32_t host_percent;            // what the driver's calls cost the host, in percent of the measured table
  std::uint32_t nvml_percent;            // the same of opening NVML
  std::uint64_t launch_ns;               // from the submission to an empty stream to the earliest start
  std::uint64_t gap_ns;                  // before each kernel of a stream
  std::uint64_t graph_gap_ns;            // before each kernel of a graph
  std::uint64_t event_ns;                // of a timed event on its stream

  // Memory.
  std::uint64_t context_bytes;      // cost of one context
  std::uint64_t stream_bytes;       // of each stream of it, in blocks of 2 MiB
  std::uint64_t device_heap_bytes;  // of a context, from the first launch of a kernel that allocates memory itself on
  std::uint64_t graph_node_bytes;   // of each node of its executable graphs, in blocks of 2 MiB
  std::uint64_t pool_step_bytes;    // by which pools grow and shrink
  std::uint32_t blocks;  // 1: plain memory in blocks of 2 MiB, kernels' local memory is charged; 0: to 512 bytes
};

inline constexpr std::uint64_t kHalfASwitch = ~std::uint64_t{0};

// The profile of this name, or null.
const Profile* FindProfile(std::string_view name);
// "ideal, h200", for messages.
std::string ProfileNames();

}  // namespace simgpu
