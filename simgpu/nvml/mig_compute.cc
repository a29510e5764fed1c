// SPDX-License-Identifier: Apache-2.0
//
// Compute instances, and the MIG devices that they are.
#include <cstdio>
#include <cstring>

#include "simgpu/nvml/mig.h"

using namespace simgpu;
using namespace simgpu::nvml;

namespace simgpu::nvml {

namespace {
constexpr unsigned int kSlices[] = {1, 2, 3, 4, 7, 8, 6};
}

unsigned int ComputeSlices(unsigned int profile) { return profile < std::size(kSlices) ? kSlices[profile] : 0; }

unsigned int ComputeProfile(unsigned int slices) {
  for (unsigned int i = 0; i < std::size(kSlices); ++i) {
    if (kSlices[i] == slices) return i;
  }
  return 0;
}

}  // namespace simgpu::nvml

namespace {

// The enclosing GPU instance's profile.
const MigProfile* Around(const Place& at) {
  MigInstance instance = {};
  if (!FindGpuInstance(at.dev, at.gi, &instance)) return nullptr;
  return &Sim().spec(at.dev).mig[instance.profile];
}

template <typename Info>
void FillProfile(const MigProfile& around, unsigned int profile, Info* info) {
  const unsigned int slices = ComputeSlices(profile);
  info->id = profile;
  info->sliceCount = slices;
  info->instanceCount = around.compute_slices / slices;
  info->multiprocessorCount = around.sm_count * slices / around.compute_slices;
  info->sharedCopyEngineCount = around.copy_engines;
  info->sharedDecoderCount = around.decoders;
  info->sharedEncoderCount = around.encoders;
  info->sharedJpegCount = around.jpegs;
  info->sharedOfaCount = around.ofas;
}

void ProfileName(const MigProfile& around, unsigned int slices, char* to, std::size_t size) {
  if (slices == around.compute_slices) {
    std::snprintf(to, size, "MIG %s", around.name);
  } else {
    std::snprintf(to, size, "MIG %uc.%s", slices, around.name);
  }
}

// Enters, and checks profile numbers: `*around` is the enclosing profile.
nvmlReturn_t EnterProfile(const char* function, nvmlGpuInstance_t handle, unsigned int profile, unsigned int engine,
                          Place* at, const MigProfile** around) {
  if (const nvmlReturn_t bad = EnterGpuInstance(function, handle, at); bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT &&
                   engine < NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT);
  *around = Around(*at);
  if (*around == nullptr) return NVML_ERROR_NOT_FOUND;
  const unsigned int slices = ComputeSlices(profile);
  return slices == 0 || slices > (*around)->compute_slices ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t Create(const char* function, nvmlGpuInstance_t handle, unsigned int profile, int start,
                    nvmlComputeInstance_t* out) {
  Place at = {};
  const MigProfile* around = nullptr;
  const nvmlReturn_t bad = EnterProfile(function, handle, profile, 0, &at, &around);
  if (bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(out != nullptr);
  MigInstance instance = {};
  const MigError error = Sim().CreateComputeInstance(at.dev, at.gi, ComputeSlices(profile), start, &instance);
  if (error == MigError::kOk) *out = ComputeInstanceHandle(at.dev, at.gi, instance.compute_instance);
  return FromMig(error);
}

nvmlReturn_t GetInfo(const char* function, nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t* info, bool old) {
  Place at = {};
  if (const nvmlReturn_t bad = EnterComputeInstance(function, handle, &at); bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(info != nullptr);
  MigInstance instance = {};
  if (!FindComputeInstance(at.dev, at.gi, at.ci, &instance)) return NVML_ERROR_NOT_FOUND;
  nvmlComputeInstanceInfo_t full = {};
  full.device = GpuHandle(at.dev);
  full.gpuInstance = GpuInstanceHandle(at.dev, at.gi);
  full.id = static_cast<unsigned int>(at.ci);
  full.profileId = ComputeProfile(instance.compute_slices);
  full.placement = {instance.start, instance.size};
  // The first form ends before the placement.
  std::memcpy(static_cast<void*>(info), &full, old ? offsetof(nvmlComputeInstanceInfo_t, placement) : sizeof full);
  return NVML_SUCCESS;
}

}  // namespace

SIMGPU_NVML nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned int profile,
                                                         unsigned int engine, nvmlComputeInstanceProfileInfo_t* info) {
  Place at = {};
  const MigProfile* around = nullptr;
  const nvmlReturn_t bad =
      EnterProfile("nvmlGpuInstanceGetComputeInstanceProfileInfo", handle, profile, engine, &at, &around);
  if (bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(info != nullptr);
  FillProfile(*around, profile, info);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned int profile,
                                                          unsigned int engine,
                                                          nvmlComputeInstanceProfileInfo_v2_t* info) {
  Place at = {};
  const MigProfile* around = nullptr;
  const nvmlReturn_t bad =
      EnterProfile("nvmlGpuInstanceGetComputeInstanceProfileInfoV", handle, profile, engine, &at, &around);
  if (bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(info != nullptr);
  if (info->version == nvmlComputeInstanceProfileInfo_v2) {
    FillProfile(*around, profile, info);
    ProfileName(*around, ComputeSlices(profile), info->name, sizeof info->name);
    return NVML_SUCCESS;
  }
  if (info->version == nvmlComputeInstanceProfileInfo_v3) {
    auto* const v3 = reinterpret_cast<nvmlComputeInstanceProfileInfo_v3_t*>(info);
    FillProfile(*around, profile, v3);
    ProfileName(*around, ComputeSlices(profile), v3->name, sizeof v3->name);
    v3->capabilities = 0;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

SIMGPU_NVML nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle, unsigned int profile,
                                                               unsigned int* count) {
  Place at = {};
  const MigProfile* around = nullptr;
  const nvmlReturn_t bad =
      EnterProfile("nvmlGpuInstanceGetComputeInstanceRemainingCapacity", handle, profile, 0, &at, &around);
  if (bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(count != nullptr);
  MigInstance live[kMaxComputeInstances];
  const std::size_t n = Sim().ComputeInstances(at.dev, at.gi, live, kMaxComputeInstances);
  std::uint32_t taken = 0;  // bit per compute slice
  for (std::size_t i = 0; i < n; ++i) taken |= ((1u << live[i].size) - 1) << live[i].start;
  const unsigned int slices = ComputeSlices(profile);
  *count = 0;
  for (unsigned int start = 0; start + slices <= around->compute_slices;) {
    const bool free = (taken >> start & ((1u << slices) - 1)) == 0;
    *count += free ? 1 : 0;
    start += free ? slices : 1;
  }
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t handle, unsigned int profile,
                                                                nvmlComputeInstancePlacement_t* placements,
                                                                unsigned int* count) {
  Place at = {};
  const MigProfile* around = nullptr;
  const nvmlReturn_t bad =
      EnterProfile("nvmlGpuInstanceGetComputeInstancePossiblePlacements", handle, profile, 0, &at, &around);
  if (bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(count != nullptr);
  const unsigned int slices = ComputeSlices(profile), room = *count;
  *count = around->compute_slices - slices + 1;
  if (placements == nullptr) return NVML_SUCCESS;
  if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int start = 0; start < *count; ++start) placements[start] = {start, slices};
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned int profile,
                                                 nvmlComputeInstance_t* out) {
  return Create("nvmlGpuInstanceCreateComputeInstance", handle, profile, -1, out);
}
SIMGPU_NVML nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t handle, unsigned int profile,
                                                              const nvmlComputeInstancePlacement_t* placement,
                                                              nvmlComputeInstance_t* out) {
  if (!Initialised()) return NVML_ERROR_UNINITIALIZED;
  SIMGPU_NVML_NEED(placement != nullptr && placement->start < 64 && placement->size == ComputeSlices(profile));
  return Create("nvmlGpuInstanceCreateComputeInstanceWithPlacement", handle, profile,
                static_cast<int>(placement->start), out);
}

SIMGPU_NVML nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
  Place at = {};
  const nvmlReturn_t bad = EnterComputeInstance("nvmlComputeInstanceDestroy", handle, &at);
  if (bad != NVML_SUCCESS) return bad;
  return FromMig(Sim().DestroyComputeInstance(at.dev, at.gi, at.ci));
}

SIMGPU_NVML nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned int profile,
                                               nvmlComputeInstance_t* out, unsigned int* count) {
  Place at = {};
  const MigProfile* around = nullptr;
  const nvmlReturn_t bad = EnterProfile("nvmlGpuInstanceGetComputeInstances", handle, profile, 0, &at, &around);
  if (bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(out != nullptr && count != nullptr);
  MigInstance live[kMaxComputeInstances];
  const std::size_t n = Sim().ComputeInstances(at.dev, at.gi, live, kMaxComputeInstances);
  *count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (live[i].compute_slices != ComputeSlices(profile)) continue;
    out[(*count)++] = ComputeInstanceHandle(at.dev, at.gi, live[i].compute_instance);
  }
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned int id,
                                                  nvmlComputeInstance_t* out) {
  Place at = {};
  const nvmlReturn_t bad = EnterGpuInstance("nvmlGpuInstanceGetComputeInstanceById", handle, &at);
  if (bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(out != nullptr);
  MigInstance instance = {};
  if (id >= kMaxComputeInstances || !FindComputeInstance(at.dev, at.gi, static_cast<int>(id), &instance)) {
    return NVML_ERROR_NOT_FOUND;
  }
  *out = ComputeInstanceHandle(at.dev, at.gi, instance.compute_instance);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t* info) {
  return GetInfo("nvmlComputeInstanceGetInfo_v2", handle, info, false);
}
SIMGPU_NVML nvmlComputeInstanceGetInfo(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t* info) {
  return GetInfo("nvmlComputeInstanceGetInfo", handle, info, true);
}

// --- MIG devices --------------------------------------------------------------------------------------------------

SIMGPU_NVML nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* mig) {
  SIMGPU_NVML_DEVICE(nvmlDeviceIsMigDeviceHandle, device);
  SIMGPU_NVML_NEED(mig != nullptr);
  *mig = at.mig() ? 1 : 0;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int* id) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetGpuInstanceId, device);
  SIMGPU_NVML_NEED(id != nullptr);
  if (!at.mig()) return NVML_ERROR_NOT_SUPPORTED;
  *id = static_cast<unsigned int>(at.gi);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int* id) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetComputeInstanceId, device);
  SIMGPU_NVML_NEED(id != nullptr);
  if (!at.mig()) return NVML_ERROR_NOT_SUPPORTED;
  *id = static_cast<unsigned int>(at.ci);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMaxMigDeviceCount, device);
  SIMGPU_NVML_NEED(count != nullptr);
  *count = 0;
  const DeviceSpec& spec = Sim().spec(dev);
  for (std::uint32_t i = 0; i < spec.mig_profile_count; ++i) {
    if (spec.mig[i].compute_slices > *count) *count = spec.mig[i].compute_slices;
  }
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t* out) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMigDeviceHandleByIndex, device);
  SIMGPU_NVML_NEED(out != nullptr);
  if (Sim().spec(dev).mig_profile_count == 0) return NVML_ERROR_NOT_SUPPORTED;
  *out = MigHandleAt(dev, index);
  return *out != nullptr ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

SIMGPU_NVML nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t* out) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device);
  SIMGPU_NVML_NEED(out != nullptr && at.mig());
  *out = GpuHandle(at.dev);
  return NVML_SUCCESS;
}

namespace {
nvmlReturn_t Attributes(const Place& at, nvmlDeviceAttributes_t* attributes) {
  SIMGPU_NVML_NEED(attributes != nullptr);
  MigInstance instance = {};
  if (!at.mig() || !FindComputeInstance(at.dev, at.gi, at.ci, &instance)) return NVML_ERROR_NOT_SUPPORTED;
  const MigProfile& profile = Sim().spec(at.dev).mig[instance.profile];
  *attributes = {};
  attributes->multiprocessorCount = instance.sm_count;
  attributes->sharedCopyEngineCount = profile.copy_engines;
  attributes->sharedDecoderCount = profile.decoders;
  attributes->sharedEncoderCount = profile.encoders;
  attributes->sharedJpegCount = profile.jpegs;
  attributes->sharedOfaCount = profile.ofas;
  attributes->gpuInstanceSliceCount = profile.compute_slices;
  attributes->computeInstanceSliceCount = instance.compute_slices;
  attributes->memorySizeMB = profile.memory_mib;
  return NVML_SUCCESS;
}
}  // namespace

SIMGPU_NVML nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetAttributes_v2, device);
  return Attributes(at, attributes);
}
SIMGPU_NVML nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  SIMGPU_NVML_DEVICE(nvmlDeviceGetAttributes, device);
  return Attributes(at, attributes);
}
