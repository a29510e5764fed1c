// SPDX-License-Identifier: Apache-2.0
//
// MIG mode, GPU instance profiles and GPU instances.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simgpu/nvml/mig.h"

using namespace simgpu;
using namespace simgpu::nvml;

namespace simgpu::nvml {

int ProfileByNumber(int dev, unsigned int number) {
  const DeviceSpec& spec = Sim().spec(dev);
  for (std::uint32_t i = 0; i < spec.mig_profile_count; ++i) {
    if (spec.mig[i].nvml_profile == number) return static_cast<int>(i);
  }
  return -1;
}

int ProfileById(int dev, unsigned int id) {
  const DeviceSpec& spec = Sim().spec(dev);
  for (std::uint32_t i = 0; i < spec.mig_profile_count; ++i) {
    if (spec.mig[i].id == id) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace simgpu::nvml

namespace {

bool HasMig(int dev) { return Sim().spec(dev).mig_profile_count > 0; }

// Fills what all versions of the profile structure share.
template <typename Info>
void FillProfile(const MigProfile& profile, Info* info) {
  info->id = profile.id;
  info->sliceCount = profile.compute_slices;
  info->instanceCount = profile.max_instances;
  info->multiprocessorCount = profile.sm_count;
  info->copyEngineCount = profile.copy_engines;
  info->decoderCount = profile.decoders;
  info->encoderCount = profile.encoders;
  info->jpegCount = profile.jpegs;
  info->ofaCount = profile.ofas;
  info->memorySizeMB = profile.memory_mib;
}

// The caller's version word decides which structure it is.
nvmlReturn_t FillVersioned(const MigProfile& profile, nvmlGpuInstanceProfileInfo_v2_t* info) {
  if (info->version == nvmlGpuInstanceProfileInfo_v2) {
    FillProfile(profile, info);
    info->isP2pSupported = 0;
    std::snprintf(info->name, sizeof info->name, "MIG %s", profile.name);
    return NVML_SUCCESS;
  }
  if (info->version == nvmlGpuInstanceProfileInfo_v3) {
    auto* const v3 = reinterpret_cast<nvmlGpuInstanceProfileInfo_v3_t*>(info);
    FillProfile(profile, v3);
    std::snprintf(v3->name, sizeof v3->name, "MIG %s", profile.name);
    v3->capabilities = std::strstr(profile.name, "+gfx") != nullptr ? NVML_GPU_INSTANCE_PROFILE_CAPS_GFX : 0;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

nvmlReturn_t Placements(int dev, unsigned int id, nvmlGpuInstancePlacement_t* placements, unsigned int* count) {
  SIMGPU_NVML_NEED(count != nullptr);
  if (!HasMig(dev)) return NVML_ERROR_NOT_SUPPORTED;
  const int index = ProfileById(dev, id);
  SIMGPU_NVML_NEED(index >= 0);
  const MigProfile& profile = Sim().spec(dev).mig[index];
  const unsigned int room = *count;
  *count = profile.placement_count;
  if (placements == nullptr) return NVML_SUCCESS;
  if (room < profile.placement_count) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::uint32_t i = 0; i < profile.placement_count; ++i) {
    placements[i] = {profile.placement_start[i], profile.memory_slices};
  }
  return NVML_SUCCESS;
}

nvmlReturn_t Create(int dev, unsigned int id, int start, nvmlGpuInstance_t* out) {
  SIMGPU_NVML_NEED(out != nullptr);
  if (!HasMig(dev)) return NVML_ERROR_NOT_SUPPORTED;
  const int profile = ProfileById(dev, id);
  SIMGPU_NVML_NEED(profile >= 0);
  MigInstance instance = {};
  const MigError error = Sim().CreateGpuInstance(dev, static_cast<std::uint32_t>(profile), start, &instance);
  if (error == MigError::kOk) *out = GpuInstanceHandle(dev, instance.gpu_instance);
  return FromMig(error);
}

}  // namespace

SIMGPU_NVML nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* current, unsigned int* pending) {
  SIMGPU_NVML_GPU(nvmlDeviceGetMigMode, device);
  SIMGPU_NVML_NEED(current != nullptr && pending != nullptr);
  if (!HasMig(dev)) return NVML_ERROR_NOT_SUPPORTED;
  *current = Sim().MigEnabled(dev) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  *pending = Sim().MigPending(dev) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t* activation) {
  SIMGPU_NVML_GPU(nvmlDeviceSetMigMode, device);
  SIMGPU_NVML_NEED(activation != nullptr && (mode == NVML_DEVICE_MIG_DISABLE || mode == NVML_DEVICE_MIG_ENABLE));
  if (!HasMig(dev)) return NVML_ERROR_NOT_SUPPORTED;
  // The request is taken in any case; whether it took effect is a second answer.
  *activation = FromMig(Sim().SetMigMode(dev, mode == NVML_DEVICE_MIG_ENABLE));
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number,
                                                nvmlGpuInstanceProfileInfo_t* info) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuInstanceProfileInfo, device);
  SIMGPU_NVML_NEED(info != nullptr && number < NVML_GPU_INSTANCE_PROFILE_COUNT);
  const int index = ProfileByNumber(dev, number);
  if (index < 0) return NVML_ERROR_NOT_SUPPORTED;
  *info = {};
  FillProfile(Sim().spec(dev).mig[index], info);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number,
                                                 nvmlGpuInstanceProfileInfo_v2_t* info) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuInstanceProfileInfoV, device);
  SIMGPU_NVML_NEED(info != nullptr && number < NVML_GPU_INSTANCE_PROFILE_COUNT);
  const int index = ProfileByNumber(dev, number);
  if (index < 0) return NVML_ERROR_NOT_SUPPORTED;
  return FillVersioned(Sim().spec(dev).mig[index], info);
}

SIMGPU_NVML nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                          nvmlGpuInstancePlacement_t* placements, unsigned int* count) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuInstancePossiblePlacements_v2, device);
  return Placements(dev, id, placements, count);
}
SIMGPU_NVML nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id,
                                                       nvmlGpuInstancePlacement_t* placements, unsigned int* count) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuInstancePossiblePlacements, device);
  return Placements(dev, id, placements, count);
}

SIMGPU_NVML nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int* count) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuInstanceRemainingCapacity, device);
  SIMGPU_NVML_NEED(count != nullptr);
  if (!HasMig(dev) || !Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  const int index = ProfileById(dev, id);
  SIMGPU_NVML_NEED(index >= 0);
  const DeviceSpec& spec = Sim().spec(dev);
  const MigProfile& profile = spec.mig[index];
  std::uint32_t starts[kMaxMigPlacements];
  unsigned int room = Sim().FreePlacements(dev, static_cast<std::uint32_t>(index), starts);
  // Placements of one profile never overlap each other, so besides room only slices and its own limit count.
  MigInstance live[kMaxGpuInstances];
  const std::size_t n = Sim().GpuInstances(dev, live, kMaxGpuInstances);
  unsigned int slices = 0, whole = 0, same = 0;
  for (std::uint32_t i = 0; i < spec.mig_profile_count; ++i) whole = std::max(whole, spec.mig[i].compute_slices);
  for (std::size_t i = 0; i < n; ++i) {
    slices += live[i].compute_slices;
    if (live[i].profile == static_cast<std::uint32_t>(index)) ++same;
  }
  room = std::min(room, (whole - slices) / profile.compute_slices);
  *count = std::min(room, profile.max_instances - same);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t* out) {
  SIMGPU_NVML_GPU(nvmlDeviceCreateGpuInstance, device);
  return Create(dev, id, -1, out);
}

SIMGPU_NVML nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                     const nvmlGpuInstancePlacement_t* placement,
                                                     nvmlGpuInstance_t* out) {
  SIMGPU_NVML_GPU(nvmlDeviceCreateGpuInstanceWithPlacement, device);
  SIMGPU_NVML_NEED(placement != nullptr && placement->start < 64);
  const int profile = ProfileById(dev, id);
  SIMGPU_NVML_NEED(!HasMig(dev) || (profile >= 0 && placement->size == Sim().spec(dev).mig[profile].memory_slices));
  return Create(dev, id, static_cast<int>(placement->start), out);
}

SIMGPU_NVML nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
  Place at = {};
  if (const nvmlReturn_t bad = EnterGpuInstance("nvmlGpuInstanceDestroy", handle, &at); bad != NVML_SUCCESS) return bad;
  return FromMig(Sim().DestroyGpuInstance(at.dev, at.gi));
}

SIMGPU_NVML nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t* out,
                                      unsigned int* count) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuInstances, device);
  SIMGPU_NVML_NEED(out != nullptr && count != nullptr);
  if (!HasMig(dev) || !Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  const int profile = ProfileById(dev, id);
  SIMGPU_NVML_NEED(profile >= 0);
  MigInstance live[kMaxGpuInstances];
  const std::size_t n = Sim().GpuInstances(dev, live, kMaxGpuInstances);
  *count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (live[i].profile == static_cast<std::uint32_t>(profile)) {
      out[(*count)++] = GpuInstanceHandle(dev, live[i].gpu_instance);
    }
  }
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t* out) {
  SIMGPU_NVML_GPU(nvmlDeviceGetGpuInstanceById, device);
  SIMGPU_NVML_NEED(out != nullptr);
  if (!HasMig(dev) || !Sim().MigEnabled(dev)) return NVML_ERROR_NOT_SUPPORTED;
  MigInstance instance = {};
  if (id >= kMaxGpuInstances || !FindGpuInstance(dev, static_cast<int>(id), &instance)) return NVML_ERROR_NOT_FOUND;
  *out = GpuInstanceHandle(dev, instance.gpu_instance);
  return NVML_SUCCESS;
}

SIMGPU_NVML nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t* info) {
  Place at = {};
  if (const nvmlReturn_t bad = EnterGpuInstance("nvmlGpuInstanceGetInfo", handle, &at); bad != NVML_SUCCESS) return bad;
  SIMGPU_NVML_NEED(info != nullptr);
  MigInstance instance = {};
  if (!FindGpuInstance(at.dev, at.gi, &instance)) return NVML_ERROR_NOT_FOUND;
  info->device = GpuHandle(at.dev);
  info->id = static_cast<unsigned int>(at.gi);
  info->profileId = Sim().spec(at.dev).mig[instance.profile].id;
  info->placement = {instance.start, instance.size};
  return NVML_SUCCESS;
}
