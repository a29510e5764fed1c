// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of this machine as far as the commands need them. Refuses to guess: without a driver there is an error that
// says how to get one, real or simulated; a figure that the driver does not give stays absent.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "nvml/nvml.h"

namespace hami::cli {

struct GpuProcess {
  pid_t pid = 0;
  std::uint64_t bytes = 0;
};

struct Gpu {
  unsigned index = 0;  // NVML's
  std::string uuid;    // "GPU-…", or "MIG-…"
  std::string name;
  std::uint64_t total_bytes = 0;  // what programs can use: without the driver's own reserve
  std::uint64_t used_bytes = 0;
  std::optional<unsigned> utilization_percent;
  std::optional<unsigned> temperature_celsius;
  std::optional<unsigned> power_milliwatts;
  std::vector<GpuProcess> processes;  // of every kind: what a desktop draws takes memory, too
  std::string trouble = {};           // why it can not be used; what it did not say is then empty or zero
};

// The MIG devices of DEVICE, each as a GPU of its own: its index is that of the GPU it is a part of. PROCESSES are all
// of that GPU.
std::vector<Gpu> InstancesOf(const nvml::Device& device, const std::vector<nvml::Process>& processes);

// Why nothing can be granted on DEVICE; empty: it can.
std::string TroubleOf(const nvml::Device& device);

// Once each: a process that computes and draws is in two of NVML's lists, with the same memory.
std::vector<GpuProcess> Gather(const std::vector<nvml::Process>& listed);

struct Inventory {
  std::string driver_version;
  std::string cuda_version;
  std::vector<Gpu> gpus;

  const Gpu* Find(const std::string& uuid) const;
};

class Nvml {
 public:
  // PATH empty: libnvidia-ml.so.1 wherever the dynamic linker finds it.
  static base::Result<Nvml> Load(const std::string& path = {});

  base::Result<Inventory> Read() const;

 private:
  explicit Nvml(nvml::Library library) : library_(std::move(library)) {}
  nvml::Library library_;
};

}  // namespace hami::cli
