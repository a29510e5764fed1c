// SPDX-License-Identifier: Apache-2.0
//
// MIG: GPU instances on memory slices, compute instances on compute slices, as the MIG user guide lays them out. An
// instance that a process uses, or that holds compute instances, can not be destroyed.
#include <cstring>

#include "simgpu/machine/local.h"
#include "simgpu/machine/presets.h"
#include "simgpu/machine/state.h"

namespace simgpu {
namespace {

bool Overlap(std::uint32_t a, std::uint32_t a_size, std::uint32_t b, std::uint32_t b_size) {
  return a < b + b_size && b < a + a_size;
}

const MigProfile& ProfileOf(const State& state, int dev, const GpuInstanceState& instance) {
  return state.spec[dev].mig[instance.profile];
}

// The biggest profile is the whole board.
const MigProfile& Whole(const DeviceSpec& spec) {
  const MigProfile* best = &spec.mig[0];
  for (std::uint32_t i = 1; i < spec.mig_profile_count; ++i) {
    if (spec.mig[i].memory_slices > best->memory_slices) best = &spec.mig[i];
  }
  return *best;
}

bool PlacementFree(const State& state, int dev, std::uint32_t profile, std::uint32_t start) {
  const MigProfile& wanted = state.spec[dev].mig[profile];
  std::uint32_t compute = wanted.compute_slices, same = 1;
  for (const GpuInstanceState& other : state.device[dev].instance) {
    if (other.live == 0) continue;
    if (Overlap(start, wanted.memory_slices, other.start, other.size)) return false;
    compute += ProfileOf(state, dev, other).compute_slices;
    if (other.profile == profile) ++same;
  }
  return compute <= Whole(state.spec[dev]).compute_slices && same <= wanted.max_instances;
}

// The identity of an instance: the same profile at the same place of the same card has the same UUID, as on real cards.
void InstanceUuid(const State& state, int dev, const GpuInstanceState& instance, const ComputeInstanceState* compute,
                  std::uint8_t (&uuid)[16]) {
  DeviceSpec scratch = {};
  std::uint64_t seed = 0;
  std::memcpy(&seed, state.spec[dev].uuid, sizeof seed);
  const std::uint32_t place = instance.profile << 16 | instance.start << 8 |
                              (compute == nullptr ? 0xffu : compute->start << 4 | compute->slices);
  Identify(seed ^ 0x4d4947, static_cast<int>(place), static_cast<int>(place) + 1, &scratch);
  std::memcpy(uuid, scratch.uuid, sizeof uuid);
}

MigInstance Describe(const State& state, int dev, int gi, int ci) {
  const GpuInstanceState& instance = state.device[dev].instance[gi];
  const MigProfile& profile = ProfileOf(state, dev, instance);
  MigInstance out = {};
  out.gpu_instance = gi;
  out.compute_instance = ci;
  out.profile = instance.profile;
  out.start = instance.start;
  out.size = instance.size;
  out.compute_slices = profile.compute_slices;
  out.sm_count = profile.sm_count;
  out.memory_bytes = profile.memory_mib << 20;
  const ComputeInstanceState* compute = nullptr;
  if (ci >= 0) {
    compute = &instance.compute[ci];
    out.start = compute->start;
    out.size = out.compute_slices = compute->slices;
    out.sm_count = profile.sm_count * compute->slices / profile.compute_slices;
  }
  InstanceUuid(state, dev, instance, compute, out.uuid);
  return out;
}

bool InUse(const State& state, int dev, int gi, int ci) {
  for (std::uint32_t i = 0; i < state.slots_used; ++i) {
    const ProcessDevice& device = state.process[i].device[dev];
    if (state.process[i].live == 0 || device.gpu_instance != gi) continue;
    if (ci < 0 || device.compute_instance == ci) return true;
  }
  return false;
}

bool AnyClient(const State& state, int dev) {
  for (std::uint32_t i = 0; i < state.slots_used; ++i) {
    if (state.process[i].live != 0 && state.process[i].device[dev].contexts > 0) return true;
  }
  return false;
}

// A mode change waits until nobody uses the device.
void SettleMode(State& state, int dev) {
  DeviceState& device = state.device[dev];
  if (device.mig_enabled != device.mig_pending && !AnyClient(state, dev)) device.mig_enabled = device.mig_pending;
}

GpuInstanceState* LiveInstance(State& state, int dev, int gi) {
  if (gi < 0 || gi >= kMaxGpuInstances || state.device[dev].instance[gi].live == 0) return nullptr;
  return &state.device[dev].instance[gi];
}

// What every change of instances needs first.
MigError Ready(Machine& machine, int dev) {
  if (dev < 0 || dev >= machine.device_count()) return MigError::kInvalid;
  if (machine.spec(dev).mig_profile_count == 0) return MigError::kUnsupported;
  return MigError::kOk;
}

}  // namespace

bool Machine::MigEnabled(int dev) const {
  if (dev < 0 || dev >= device_count()) return false;
  StateLock lock(state_);
  if (state_->device[dev].mig_enabled != state_->device[dev].mig_pending) {
    ReapLocked(*state_, true);
    SettleMode(*state_, dev);
  }
  return state_->device[dev].mig_enabled != 0;
}

bool Machine::MigPending(int dev) const {
  if (dev < 0 || dev >= device_count()) return false;
  StateLock lock(state_);
  return state_->device[dev].mig_pending != 0;
}

MigError Machine::SetMigMode(int dev, bool on) {
  if (const MigError error = Ready(*this, dev); error != MigError::kOk) return error;
  StateLock lock(state_);
  ReapLocked(*state_, true);
  DeviceState& device = state_->device[dev];
  if (!on && device.mig_enabled != 0) {
    for (const GpuInstanceState& instance : device.instance) {
      if (instance.live != 0) return MigError::kInUse;
    }
  }
  device.mig_pending = on ? 1 : 0;
  SettleMode(*state_, dev);
  return device.mig_enabled == device.mig_pending ? MigError::kOk : MigError::kInUse;
}

MigError Machine::CreateGpuInstance(int dev, std::uint32_t profile, int start, MigInstance* out) {
  if (const MigError error = Ready(*this, dev); error != MigError::kOk) return error;
  const DeviceSpec& card = spec(dev);
  if (profile >= card.mig_profile_count) return MigError::kInvalid;
  const MigProfile& wanted = card.mig[profile];
  StateLock lock(state_);
  DeviceState& device = state_->device[dev];
  SettleMode(*state_, dev);
  if (device.mig_enabled == 0) return MigError::kModeOff;
  bool legal = start < 0, found = false;
  std::uint32_t place = 0;
  for (std::uint32_t i = 0; i < wanted.placement_count && !found; ++i) {
    place = wanted.placement_start[i];
    if (start >= 0 && place != static_cast<std::uint32_t>(start)) continue;
    legal = true;
    found = PlacementFree(*state_, dev, profile, place);
  }
  if (!legal) return MigError::kInvalid;
  if (!found) return MigError::kNoRoom;
  for (int gi = 0; gi < kMaxGpuInstances; ++gi) {
    GpuInstanceState& instance = device.instance[gi];
    if (instance.live != 0) continue;
    const std::uint32_t generation = instance.generation + 1;
    instance = {};
    instance.profile = profile;
    instance.start = place;
    instance.size = wanted.memory_slices;
    instance.generation = generation;
    instance.live = 1;
    *out = Describe(*state_, dev, gi, -1);
    return MigError::kOk;
  }
  return MigError::kNoRoom;
}

MigError Machine::DestroyGpuInstance(int dev, int gpu_instance) {
  if (const MigError error = Ready(*this, dev); error != MigError::kOk) return error;
  StateLock lock(state_);
  ReapLocked(*state_, true);
  GpuInstanceState* const instance = LiveInstance(*state_, dev, gpu_instance);
  if (instance == nullptr) return MigError::kNotFound;
  for (const ComputeInstanceState& compute : instance->compute) {
    if (compute.live != 0) return MigError::kInUse;
  }
  if (InUse(*state_, dev, gpu_instance, -1)) return MigError::kInUse;
  instance->live = 0;
  return MigError::kOk;
}

MigError Machine::CreateComputeInstance(int dev, int gpu_instance, std::uint32_t compute_slices, int wanted_start,
                                        MigInstance* out) {
  if (const MigError error = Ready(*this, dev); error != MigError::kOk) return error;
  StateLock lock(state_);
  GpuInstanceState* const instance = LiveInstance(*state_, dev, gpu_instance);
  if (instance == nullptr) return MigError::kNotFound;
  const std::uint32_t room = ProfileOf(*state_, dev, *instance).compute_slices;
  if (compute_slices == 0 || compute_slices > room) return MigError::kInvalid;
  for (std::uint32_t start = 0; start + compute_slices <= room; ++start) {
    bool free = wanted_start < 0 || start == static_cast<std::uint32_t>(wanted_start);
    int slot = -1;
    for (int ci = 0; ci < kMaxComputeInstances; ++ci) {
      const ComputeInstanceState& other = instance->compute[ci];
      if (other.live != 0 && Overlap(start, compute_slices, other.start, other.slices)) free = false;
      if (other.live == 0 && slot < 0) slot = ci;
    }
    if (!free || slot < 0) continue;
    ComputeInstanceState& compute = instance->compute[slot];
    compute = {1, start, compute_slices, compute.generation + 1};
    *out = Describe(*state_, dev, gpu_instance, slot);
    return MigError::kOk;
  }
  return MigError::kNoRoom;
}

MigError Machine::DestroyComputeInstance(int dev, int gpu_instance, int compute_instance) {
  if (const MigError error = Ready(*this, dev); error != MigError::kOk) return error;
  StateLock lock(state_);
  ReapLocked(*state_, true);
  GpuInstanceState* const instance = LiveInstance(*state_, dev, gpu_instance);
  if (instance == nullptr || compute_instance < 0 || compute_instance >= kMaxComputeInstances ||
      instance->compute[compute_instance].live == 0) {
    return MigError::kNotFound;
  }
  if (InUse(*state_, dev, gpu_instance, compute_instance)) return MigError::kInUse;
  instance->compute[compute_instance].live = 0;
  return MigError::kOk;
}

std::size_t Machine::GpuInstances(int dev, MigInstance* out, std::size_t room) {
  if (Ready(*this, dev) != MigError::kOk) return 0;
  StateLock lock(state_);
  std::size_t found = 0;
  for (int gi = 0; gi < kMaxGpuInstances; ++gi) {
    if (state_->device[dev].instance[gi].live == 0) continue;
    if (found < room) out[found] = Describe(*state_, dev, gi, -1);
    ++found;
  }
  return found;
}

std::size_t Machine::ComputeInstances(int dev, int gpu_instance, MigInstance* out, std::size_t room) {
  if (Ready(*this, dev) != MigError::kOk) return 0;
  StateLock lock(state_);
  const GpuInstanceState* const instance = LiveInstance(*state_, dev, gpu_instance);
  if (instance == nullptr) return 0;
  std::size_t found = 0;
  for (int ci = 0; ci < kMaxComputeInstances; ++ci) {
    if (instance->compute[ci].live == 0) continue;
    if (found < room) out[found] = Describe(*state_, dev, gpu_instance, ci);
    ++found;
  }
  return found;
}

std::uint32_t Machine::FreePlacements(int dev, std::uint32_t profile, std::uint32_t* starts) {
  if (Ready(*this, dev) != MigError::kOk || profile >= spec(dev).mig_profile_count) return 0;
  StateLock lock(state_);
  const MigProfile& wanted = state_->spec[dev].mig[profile];
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < wanted.placement_count; ++i) {
    if (PlacementFree(*state_, dev, profile, wanted.placement_start[i])) starts[found++] = wanted.placement_start[i];
  }
  return found;
}

bool Machine::UseInstance(int dev, int gpu_instance, int compute_instance) {
  if (Ready(*this, dev) != MigError::kOk) return false;
  StateLock lock(state_);
  const int own = OwnSlotLocked(*state_);
  GpuInstanceState* const instance = LiveInstance(*state_, dev, gpu_instance);
  if (own < 0 || instance == nullptr || compute_instance < 0 || compute_instance >= kMaxComputeInstances ||
      instance->compute[compute_instance].live == 0) {
    return false;
  }
  ProcessDevice& device = state_->process[own].device[dev];
  if (device.gpu_instance >= 0 &&
      (device.gpu_instance != gpu_instance || device.compute_instance != compute_instance)) {
    return false;  // one instance a process, as CUDA has it
  }
  Touch(device);
  device.gpu_instance = gpu_instance;
  device.compute_instance = compute_instance;
  return true;
}

}  // namespace simgpu
