// SPDX-License-Identifier: Apache-2.0
//
// MIG devices that were there before: what --mig-strategy offers of a GPU that nvidia-smi or mig-parted divided. Pure.
// A device is offered as it is, to one container at a time, and by its own UUID. Only those are that take all of their
// GPU instance: of the others ("1c.3g.40gb") the memory is not their own. Nothing here makes or removes one.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvml/nvml.h"
#include "plugin/inventory.h"

namespace hami::plugin {

// "1g.10gb+me" of "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me". Nothing: it is a part of its GPU instance, or has no such
// name.
std::optional<std::string> ProfileOfDevice(std::string_view name);

// "nvidia.com/mig-1g.10gb.me"
std::string MigResource(std::string_view profile);

bool IsDivided(const nvml::Device& device);

// Why --mig-strategy=single cannot offer DEVICES: all of them are divided, into MIG devices of one profile, or none is.
// Empty: it can.
std::string SingleTrouble(const std::vector<nvml::Device>& devices, const Exclusion& excluded);

// Those MIG devices of DEVICE that can be offered, without those whose UUIDs EXCLUDED names. TROUBLES name MIG devices,
// or the GPU for all of them.
std::vector<Card> PartsOf(const nvml::Device& device, const Exclusion& excluded, const Troubles& troubles);

// With --mig-strategy=mixed: the MIG devices of DEVICES, which the kubelet counts by their profiles and no scheduler
// of ours places.
std::vector<Card> MakeParts(const std::vector<nvml::Device>& devices, const NodeSettings& settings,
                            const Troubles& troubles);

// The MIG device of DEVICE that GPU_INSTANCE and COMPUTE_INSTANCE mean, each of them perhaps nvml::kAnyInstance.
const nvml::MigDevice* FindPart(const nvml::Device& device, unsigned gpu_instance, unsigned compute_instance);

// The resources of PARTS, each once, in the order of their names.
std::vector<std::string> ResourcesOf(const std::vector<Card>& parts);

}  // namespace hami::plugin
