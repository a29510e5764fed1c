// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs a process sees, and in what order: the rules of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, as a pure
// function. Refuses nothing: a list that makes no sense selects fewer devices, down to none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace simgpu {

// A GPU, or one of its MIG compute instances. `uuid` is "GPU-…" or "MIG-…".
struct Candidate {
  struct Instance {
    std::string uuid;
    int gpu_instance = 0;
    int compute_instance = 0;
  };
  std::string uuid;
  double speed = 0;                 // for FASTEST_FIRST
  std::vector<Instance> instances;  // in order; empty: not in MIG mode
  bool mig_enabled = false;
};

struct Selected {
  int machine = 0;
  int instance = -1;  // index into Candidate::instances
};

// `visible` is CUDA_VISIBLE_DEVICES, null when unset: every GPU is visible. Otherwise a list of indices into the
// ordered GPUs, prefixes of GPU UUIDs, and MIG names ("MIG-<uuid>", "MIG-GPU-<uuid>/<gi>/<ci>"); the first entry that
// names no device ends it, and a device named twice leaves none at all. `pci_order`: CUDA_DEVICE_ORDER=PCI_BUS_ID;
// otherwise the fastest GPU comes first. A GPU in MIG mode is represented by its first compute instance unless one is
// named, and is absent without one.
std::vector<Selected> SelectDevices(const std::vector<Candidate>& gpus, const char* visible, bool pci_order);

}  // namespace simgpu
