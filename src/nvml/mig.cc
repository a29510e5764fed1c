// SPDX-License-Identifier: Apache-2.0
//
// MIG: how a GPU can be divided, how it is, and dividing it.

#include <algorithm>
#include <array>

#include "base/strings.h"
#include "nvml/functions.h"

namespace hami::nvml {
namespace {

using base::Concat;
using base::Fail;
using base::Result;
using base::Status;

// More numbers than the driver of today has, so that a profile of tomorrow is found; the unknown ones are refused.
constexpr unsigned kMostProfileNumbers = 32;
constexpr unsigned kMostInstances = 64;
constexpr std::string_view kNamePrefix = "MIG ";

// The name that a driver without named profiles would give.
std::string MadeUpName(const nvmlGpuInstanceProfileInfo_t& info) {
  return Concat({std::to_string(info.sliceCount), "g.", std::to_string((info.memorySizeMB + 1023) / 1024), "gb"});
}

std::string NameOfProfile(const Functions& f, nvmlDevice_t device, unsigned number,
                          const nvmlGpuInstanceProfileInfo_t& info) {
  nvmlGpuInstanceProfileInfo_v2_t named{};
  named.version = nvmlGpuInstanceProfileInfo_v2;
  if (f.nvmlDeviceGetGpuInstanceProfileInfoV == nullptr ||
      f.nvmlDeviceGetGpuInstanceProfileInfoV(device, number, &named) != NVML_SUCCESS) {
    return MadeUpName(info);
  }
  const auto end = std::find(std::begin(named.name), std::end(named.name), '\0');
  std::string name = base::Printable(std::string(std::begin(named.name), end));
  if (name.starts_with(kNamePrefix)) name.erase(0, kNamePrefix.size());
  return name.empty() ? MadeUpName(info) : name;
}

std::vector<MigProfile> ProfilesOf(const Functions& f, nvmlDevice_t device) {
  std::vector<MigProfile> profiles;
  for (unsigned number = 0; number < kMostProfileNumbers; ++number) {
    const auto info = Get<nvmlGpuInstanceProfileInfo_t>(f.nvmlDeviceGetGpuInstanceProfileInfo, device, number);
    if (!info) continue;
    const bool known = std::any_of(profiles.begin(), profiles.end(), [&](const auto& p) { return p.id == info->id; });
    if (known) continue;
    const auto places = ReadList<nvmlGpuInstancePlacement_t>([&](unsigned* count, nvmlGpuInstancePlacement_t* list) {
      return f.nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, info->id, list, count);
    });
    if (!places) continue;
    MigProfile profile{info->id,
                       NameOfProfile(f, device, number, *info),
                       info->sliceCount,
                       info->instanceCount,
                       info->multiprocessorCount,
                       info->memorySizeMB,
                       {}};
    for (const nvmlGpuInstancePlacement_t& place : *places) profile.places.push_back({place.start, place.size});
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

// The MIG devices of the GPU are its compute instances.
std::vector<ComputeInstance> ComputeOf(const Functions& f, nvmlDevice_t device, unsigned gpu_instance) {
  std::vector<ComputeInstance> found;
  const unsigned most = Get<unsigned>(f.nvmlDeviceGetMaxMigDeviceCount, device).value_or(0);
  for (unsigned index = 0; index < most; ++index) {
    const auto handle = Get<nvmlDevice_t>(f.nvmlDeviceGetMigDeviceHandleByIndex, device, index);
    if (!handle || Get<unsigned>(f.nvmlDeviceGetGpuInstanceId, *handle) != gpu_instance) continue;
    const auto id = Get<unsigned>(f.nvmlDeviceGetComputeInstanceId, *handle);
    std::array<char, 128> text{};
    if (!id || f.nvmlDeviceGetUUID(*handle, text.data(), text.size() - 1) != NVML_SUCCESS) continue;
    found.push_back({*id, base::Printable(text.data())});
  }
  return found;
}

Status Missing() { return Fail("this driver's NVML cannot divide GPUs", "MIG needs a driver of 450.80 or later"); }

bool CanDivide(const Functions& f) {
  return f.nvmlDeviceSetMigMode != nullptr && f.nvmlDeviceGetGpuInstanceProfileInfo != nullptr &&
         f.nvmlDeviceGetGpuInstancePossiblePlacements_v2 != nullptr && f.nvmlDeviceGetGpuInstances != nullptr &&
         f.nvmlDeviceGetGpuInstanceById != nullptr && f.nvmlDeviceCreateGpuInstanceWithPlacement != nullptr &&
         f.nvmlGpuInstanceDestroy != nullptr && f.nvmlGpuInstanceGetInfo != nullptr &&
         f.nvmlGpuInstanceGetComputeInstanceProfileInfo != nullptr &&
         f.nvmlGpuInstanceCreateComputeInstance != nullptr && f.nvmlGpuInstanceGetComputeInstanceById != nullptr &&
         f.nvmlComputeInstanceDestroy != nullptr && f.nvmlComputeInstanceGetInfo_v2 != nullptr &&
         f.nvmlDeviceGetMigMode != nullptr;
}

Result<nvmlDevice_t> GpuOf(const Functions& f, const std::string& uuid) {
  if (!CanDivide(f)) return tl::unexpected(Missing().error());
  const Found found = Find(f, uuid);
  if (found.code != NVML_SUCCESS) return Fail(Concat({uuid, ": ", f.Explain(found.code)}));
  return found.device;
}

Result<nvmlGpuInstance_t> InstanceOf(const Functions& f, const std::string& uuid, unsigned gpu_instance) {
  const auto gpu = GpuOf(f, uuid);
  if (!gpu) return tl::unexpected(gpu.error());
  nvmlGpuInstance_t instance{};
  const nvmlReturn_t code = f.nvmlDeviceGetGpuInstanceById(*gpu, gpu_instance, &instance);
  if (code == NVML_SUCCESS) return instance;
  return Fail(Concat({"GPU instance ", std::to_string(gpu_instance), " of ", uuid, ": ", f.Explain(code)}));
}

}  // namespace

Result<MigLayout> Library::ReadMigLayout(const std::string& uuid) const {
  const Functions& f = *functions_;
  const auto gpu = GpuOf(f, uuid);
  if (!gpu) return tl::unexpected(gpu.error());
  MigLayout layout;
  layout.profiles = ProfilesOf(f, *gpu);
  for (const MigProfile& profile : layout.profiles) {
    std::array<nvmlGpuInstance_t, kMostInstances> handles{};
    unsigned count = kMostInstances;
    const nvmlReturn_t code = f.nvmlDeviceGetGpuInstances(*gpu, profile.id, handles.data(), &count);
    if (code != NVML_SUCCESS) {
      return Fail(Concat({"the instances of ", uuid, " cannot be listed: ", f.Explain(code)}));
    }
    for (unsigned i = 0; i < std::min(count, kMostInstances); ++i) {
      const auto info = Get<nvmlGpuInstanceInfo_t>(f.nvmlGpuInstanceGetInfo, handles[i]);
      if (!info) continue;  // destroyed meanwhile
      layout.instances.push_back(
          {info->id, info->profileId, {info->placement.start, info->placement.size}, ComputeOf(f, *gpu, info->id)});
    }
  }
  return layout;
}

Result<MigMode> Library::SetMigMode(const std::string& uuid, bool on) const {
  const Functions& f = *functions_;
  const auto gpu = GpuOf(f, uuid);
  if (!gpu) return tl::unexpected(gpu.error());
  nvmlReturn_t activation = NVML_SUCCESS;
  const nvmlReturn_t code =
      f.nvmlDeviceSetMigMode(*gpu, on ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE, &activation);
  if (code != NVML_SUCCESS) {
    return Fail(Concat({"MIG of ", uuid, " cannot be switched ", on ? "on: " : "off: ", f.Explain(code)}));
  }
  // A GPU that was reset has another handle.
  const Found again = Find(f, uuid);
  unsigned current = 0;
  unsigned pending = 0;
  if (again.code != NVML_SUCCESS || f.nvmlDeviceGetMigMode(again.device, &current, &pending) != NVML_SUCCESS) {
    return Fail(Concat({"MIG of ", uuid, " was asked for, and the driver does not tell its mode"}));
  }
  return MigMode{current == NVML_DEVICE_MIG_ENABLE, pending == NVML_DEVICE_MIG_ENABLE};
}

Result<unsigned> Library::CreateGpuInstance(const std::string& uuid, unsigned profile_id, MigPlace place) const {
  const Functions& f = *functions_;
  const auto gpu = GpuOf(f, uuid);
  if (!gpu) return tl::unexpected(gpu.error());
  const nvmlGpuInstancePlacement_t exactly{place.start, place.size};
  nvmlGpuInstance_t instance{};
  nvmlReturn_t code = f.nvmlDeviceCreateGpuInstanceWithPlacement(*gpu, profile_id, &exactly, &instance);
  nvmlGpuInstanceInfo_t info{};
  if (code == NVML_SUCCESS) code = f.nvmlGpuInstanceGetInfo(instance, &info);
  if (code == NVML_SUCCESS) return info.id;
  return Fail(Concat({"no instance at slice ", std::to_string(place.start), " of ", uuid, ": ", f.Explain(code)}));
}

Result<ComputeInstance> Library::CreateComputeInstance(const std::string& uuid, unsigned gpu_instance) const {
  const Functions& f = *functions_;
  const auto gpu = GpuOf(f, uuid);
  if (!gpu) return tl::unexpected(gpu.error());
  const auto instance = InstanceOf(f, uuid, gpu_instance);
  if (!instance) return tl::unexpected(instance.error());
  // The one of which a single one fits is the whole; of several such numbers the first is the plain one.
  nvmlReturn_t code = NVML_ERROR_NOT_FOUND;
  unsigned most = 0;
  unsigned whole = 0;
  for (unsigned number = 0; number < kMostProfileNumbers; ++number) {
    const auto info =
        Get<nvmlComputeInstanceProfileInfo_t>(f.nvmlGpuInstanceGetComputeInstanceProfileInfo, *instance, number,
                                              static_cast<unsigned>(NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED));
    if (!info || info->sliceCount <= most) continue;
    most = info->sliceCount;
    whole = info->id;
  }
  nvmlComputeInstance_t compute{};
  if (most > 0) code = f.nvmlGpuInstanceCreateComputeInstance(*instance, whole, &compute);
  nvmlComputeInstanceInfo_t made{};
  if (code == NVML_SUCCESS) code = f.nvmlComputeInstanceGetInfo_v2(compute, &made);
  if (code != NVML_SUCCESS) {
    return Fail(Concat(
        {"no compute instance in GPU instance ", std::to_string(gpu_instance), " of ", uuid, ": ", f.Explain(code)}));
  }
  for (ComputeInstance& one : ComputeOf(f, *gpu, gpu_instance)) {
    if (one.id == made.id && !one.uuid.empty()) return std::move(one);
  }
  return Fail(Concat({"the driver names no MIG device for GPU instance ", std::to_string(gpu_instance), " of ", uuid}));
}

Status Library::DestroyComputeInstance(const std::string& uuid, unsigned gpu_instance, unsigned compute) const {
  const Functions& f = *functions_;
  const auto instance = InstanceOf(f, uuid, gpu_instance);
  if (!instance) return tl::unexpected(instance.error());
  nvmlComputeInstance_t handle{};
  nvmlReturn_t code = f.nvmlGpuInstanceGetComputeInstanceById(*instance, compute, &handle);
  if (code == NVML_SUCCESS) code = f.nvmlComputeInstanceDestroy(handle);
  if (code == NVML_SUCCESS) return {};
  return Fail(Concat({"compute instance ", std::to_string(compute), " of GPU instance ", std::to_string(gpu_instance),
                      " of ", uuid, " stays: ", f.Explain(code)}));
}

Status Library::DestroyGpuInstance(const std::string& uuid, unsigned gpu_instance) const {
  const Functions& f = *functions_;
  const auto instance = InstanceOf(f, uuid, gpu_instance);
  if (!instance) return tl::unexpected(instance.error());
  const nvmlReturn_t code = f.nvmlGpuInstanceDestroy(*instance);
  if (code == NVML_SUCCESS) return {};
  return Fail(Concat({"GPU instance ", std::to_string(gpu_instance), " of ", uuid, " stays: ", f.Explain(code)}));
}

}  // namespace hami::nvml
