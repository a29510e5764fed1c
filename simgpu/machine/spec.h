// SPDX-License-Identifier: Apache-2.0
//
// What a simulated computer is made of, as plain data: the description of one GPU (DeviceSpec) and the options of the
// whole machine (Options). Both lie in the shared file and are read by several libraries in several processes, so they
// hold no pointers and never change after the machine was created; what changes (temperature, links, lost) is in
// state.h. Units are in the names.
#pragma once

#include <cstdint>

#include "simgpu/machine/profile.h"

namespace simgpu {

using Nanos = std::int64_t;

inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxNvLinks = 18;
inline constexpr int kMaxMigProfiles = 12;
inline constexpr int kMaxMigPlacements = 8;
inline constexpr int kMaxGpuInstances = 8;
inline constexpr int kMaxComputeInstances = 8;

// One GPU instance profile of NVIDIA's MIG user guide. `nvml_profile` is NVML_GPU_INSTANCE_PROFILE_*, `id` the number
// nvidia-smi shows. Placements are in memory slices.
struct MigProfile {
  char name[24];  // "1g.10gb", "1g.10gb+me"; no "MIG " in front
  std::uint32_t nvml_profile;
  std::uint32_t id;
  std::uint32_t compute_slices;
  std::uint32_t memory_slices;
  std::uint32_t max_instances;
  std::uint32_t sm_count;
  std::uint32_t copy_engines;
  std::uint32_t decoders;
  std::uint32_t encoders;
  std::uint32_t jpegs;
  std::uint32_t ofas;
  std::uint64_t memory_mib;
  std::uint32_t placement_count;
  std::uint32_t placement_start[kMaxMigPlacements];
};

enum class LinkPeer : std::uint32_t { kNone, kGpu, kSwitch };

struct NvLink {
  LinkPeer peer;
  std::uint32_t peer_index;  // device ordinal, or number of the switch
};

struct DeviceSpec {
  char preset[16];        // "H100"
  char name[96];          // as NVML and cuDeviceGetName show it
  char architecture[16];  // "hopper"
  std::uint8_t uuid[16];
  char serial[32];
  std::uint32_t pci_domain, pci_bus, pci_device;
  std::uint32_t pci_device_id, pci_subsystem_id;  // device id << 16 | vendor id
  std::uint32_t minor;                            // N of /dev/nvidiaN
  std::int32_t numa_node;                         // -1: none

  std::uint64_t total_bytes;     // what CUDA may hand out (cuDeviceTotalMem)
  std::uint64_t reserved_bytes;  // kept by firmware and driver; NVML's total is total_bytes + reserved_bytes
  std::uint64_t bar1_bytes;

  std::uint32_t cc_major, cc_minor;
  std::uint32_t sm_count;
  std::uint32_t max_threads_per_sm;
  std::uint32_t max_blocks_per_sm;
  std::uint32_t max_threads_per_block;  // 1024
  std::uint32_t warp_size;              // 32
  std::uint32_t shared_per_block;       // bytes without opt-in
  std::uint32_t shared_per_block_optin;
  std::uint32_t shared_per_sm;
  std::uint32_t shared_reserved_per_block;
  std::uint32_t regs_per_block, regs_per_sm;
  std::uint32_t cores_per_sm;
  std::uint64_t l2_bytes;
  std::uint32_t copy_engines;  // asynchronous engines

  std::uint32_t sm_clock_mhz, sm_clock_idle_mhz, mem_clock_mhz;
  std::uint32_t memory_bus_bits;
  std::uint64_t memory_bytes_per_s;  // device memory bandwidth
  std::uint64_t pcie_bytes_per_s;    // host <-> device, one direction, as measured
  std::uint64_t nvlink_bytes_per_s;  // per link, one direction
  std::uint32_t pcie_gen, pcie_width;
  std::uint32_t power_limit_w, power_min_w, power_idle_w;
  std::uint32_t temperature_idle_c, temperature_busy_c, temperature_slowdown_c, temperature_shutdown_c;
  std::uint32_t fan_count;  // 0: passive, NVML answers NOT_SUPPORTED
  std::uint32_t ecc;        // 1: has ECC memory, enabled
  std::uint32_t display;    // 1: has display outputs
  std::uint32_t brand;      // NVML_BRAND_*

  std::uint32_t nvlink_count;
  std::uint32_t nvlink_version;
  NvLink nvlink[kMaxNvLinks];

  std::uint32_t mig_profile_count;  // 0: no MIG
  std::uint32_t mig_needs_reset;    // a mode change stays pending while clients run (A100); Hopper and later: at once
  MigProfile mig[kMaxMigProfiles];

  Profile profile;

  std::uint64_t physical_bytes() const { return total_bytes + reserved_bytes; }
};

struct Options {
  std::uint64_t seed;
  std::uint64_t kernel_ns;        // cost of a kernel that declares none: SM-nanoseconds per block
  std::uint64_t nvml_lag_ns;      // how old the newest utilisation sample is at least
  std::uint64_t nvml_period_ns;   // length of one utilisation sample
  std::uint64_t virtual_step_ns;  // virtual clock only: what each look at the clock adds
  std::uint32_t strict_capture;   // 1: a capture forbids every call that is not known to be allowed
  std::uint32_t virtual_clock;    // 1: time is a shared counter
  std::int32_t pid_offset;        // host pid = pid + offset (SIMGPU_PID_OFFSET of a process wins)
  std::uint32_t cuda_version;     // cuDriverGetVersion, 13000
  char driver_version[32];        // "580.95.05"
};

}  // namespace simgpu
