// SPDX-License-Identifier: Apache-2.0
//
// For tests and benchmarks: every vendor that there is, nodes with cards of them, and what pods ask. Chance is a
// function: of N, a number below N.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/vendors/sections.h"
#include "sched/simulate.h"
#include "sched/testing/samples.h"

namespace hami::sched::testing {

using Chance = std::function<int(int)>;

inline device::DeviceConfig AllSections() {
  device::DeviceConfig config;
  config.nvidia = DefaultNvidia();
  config.others = {{"amd.resourceCountName", "amd.com/gpu"},
                   {"amd.resourceMemoryName", "amd.com/gpumem"},
                   {"amd.resourceCoreName", "amd.com/gpucores"},
                   {"awsneuron.resourceCountName", "aws.amazon.com/neuron"},
                   {"awsneuron.resourceCoreName", "aws.amazon.com/neuroncore"},
                   {"biren.resourceCountName", "birentech.com/gpu"},
                   {"cambricon.resourceCountName", "cambricon.com/vmlu"},
                   {"cambricon.resourceMemoryName", "cambricon.com/mlu.smlu.vmemory"},
                   {"cambricon.resourceCoreName", "cambricon.com/mlu.smlu.vcore"},
                   {"enflame.resourceNameGCU", "enflame.com/gcu"},
                   {"enflame.resourceNameDRSGCU", "enflame.com/drs-gcu"},
                   {"enflame.resourceNameGCUMemory", "enflame.com/gcu-memory"},
                   {"enflame.resourceNameGCUCore", "enflame.com/gcu-core"},
                   {"hygon.resourceCountName", "hygon.com/dcunum"},
                   {"hygon.resourceMemoryName", "hygon.com/dcumem"},
                   {"hygon.resourceCoreName", "hygon.com/dcucores"},
                   {"iluvatars[0].commonWord", "MR-V100"},
                   {"iluvatars[0].resourceCountName", "iluvatar.ai/MR-V100-vgpu"},
                   {"iluvatars[0].resourceMemoryName", "iluvatar.ai/MR-V100.vMem"},
                   {"iluvatars[0].resourceCoreName", "iluvatar.ai/MR-V100.vCore"},
                   {"kunlun.resourceCountName", "kunlunxin.com/xpu"},
                   {"kunlun.resourceVCountName", "kunlunxin.com/vxpu"},
                   {"kunlun.resourceVMemoryName", "kunlunxin.com/vxpu-memory"},
                   {"metax.resourceCountName", "metax-tech.com/gpu"},
                   {"metax.resourceVCountName", "metax-tech.com/sgpu"},
                   {"metax.resourceVMemoryName", "metax-tech.com/vmemory"},
                   {"metax.resourceVCoreName", "metax-tech.com/vcore"},
                   {"mthreads.resourceCountName", "mthreads.com/vgpu"},
                   {"mthreads.resourceMemoryName", "mthreads.com/sgpu-memory"},
                   {"mthreads.resourceCoreName", "mthreads.com/sgpu-core"},
                   {"vastai.resourceCountName", "vastaitech.com/va"},
                   {"vnpus.hamiVnpuCore", "true"},
                   {"vnpus.configs[0].commonWord", "Ascend910B4"},
                   {"vnpus.configs[0].resourceName", "huawei.com/Ascend910B4"},
                   {"vnpus.configs[0].resourceMemoryName", "huawei.com/Ascend910B4-memory"},
                   {"vnpus.configs[0].resourceCoreName", "huawei.com/Ascend910B4-core"},
                   {"vnpus.configs[0].memoryAllocatable", "32768"},
                   {"vnpus.configs[0].memoryCapacity", "32768"},
                   {"vnpus.configs[0].templates[0].name", "vir05_1c_8g"},
                   {"vnpus.configs[0].templates[0].memory", "8192"},
                   {"vnpus.configs[1].commonWord", "Ascend910C"},
                   {"vnpus.configs[1].resourceName", "huawei.com/Ascend910C"},
                   {"vnpus.configs[1].resourceMemoryName", "huawei.com/Ascend910C-memory"},
                   {"vnpus.configs[1].memoryAllocatable", "65536"},
                   {"vnpus.configs[1].memoryCapacity", "65536"},
                   {"vnpus.configs[1].superPod", "true"}};
  return config;
}

inline device::Vendors AllVendors() { return device::MakeVendors(AllSections(), {.ascend = true, .iluvatar = true}); }

// One kind of cards, or several.
SimulatedNode AnyNode(const std::string& name, const Chance& below);

struct VendorAsk {
  device::Container container;
  device::StringMap annotations;
  int cards = 1;  // at least
};
VendorAsk AnyAsk(const Chance& below);

// How many kinds AnyNode knows, and one of them.
int NodeKinds();
void AddCards(SimulatedNode& node, int kind, const Chance& below);

}  // namespace hami::sched::testing
