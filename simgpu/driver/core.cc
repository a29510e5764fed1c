// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/core.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "simgpu/driver/context.h"
#include "simgpu/driver/mps_client.h"
#include "simgpu/driver/visible.h"
#include "simgpu/machine/container.h"
#include "simgpu/machine/control.h"

namespace simgpu {

constinit std::atomic<Phase> g_phase{Phase::kNew};

namespace {

struct Devices {
  int count = 0;
  Device list[kMaxDevices];
};
constinit Devices g_devices;
constinit std::mutex g_init_lock;

CUuuid ToCuda(const std::uint8_t (&uuid)[16]) {
  CUuuid out;
  std::memcpy(&out, uuid, sizeof out);
  return out;
}

std::vector<MigInstance> ComputeInstancesOf(Machine& machine, int dev) {
  MigInstance gis[kMaxGpuInstances];
  std::vector<MigInstance> all;
  const std::size_t count = std::min<std::size_t>(machine.GpuInstances(dev, gis, kMaxGpuInstances), kMaxGpuInstances);
  for (std::size_t i = 0; i < count; ++i) {
    MigInstance cis[kMaxComputeInstances];
    const std::size_t found = std::min<std::size_t>(
        machine.ComputeInstances(dev, gis[i].gpu_instance, cis, kMaxComputeInstances), kMaxComputeInstances);
    std::copy_if(cis, cis + found, std::back_inserter(all),
                 [&](const MigInstance& compute) { return IsPresent(machine, dev, compute); });
  }
  return all;
}

Candidate Describe(Machine& machine, int dev, const std::vector<MigInstance>& instances) {
  const DeviceSpec& spec = machine.spec(dev);
  char text[64];
  Candidate gpu;
  FormatUuid("GPU-", spec.uuid, text);
  gpu.uuid = text;
  gpu.speed = double{1} * spec.sm_count * spec.sm_clock_mhz * spec.cores_per_sm;
  gpu.mig_enabled = machine.MigEnabled(dev);
  for (const MigInstance& instance : instances) {
    FormatUuid("MIG-", instance.uuid, text);
    gpu.instances.push_back({text, instance.gpu_instance, instance.compute_instance});
  }
  return gpu;
}

void AddDevice(Machine& machine, const Selected& selected, const std::vector<MigInstance>& instances) {
  Device& device = g_devices.list[g_devices.count];
  const DeviceSpec& spec = machine.spec(selected.machine);
  device.ordinal = g_devices.count;
  device.machine = selected.machine;
  device.spec = &spec;
  device.uuid = device.gpu_uuid = ToCuda(spec.uuid);
  device.sm_count = static_cast<int>(spec.sm_count);
  if (selected.instance >= 0) {
    const MigInstance& instance = instances[static_cast<std::size_t>(selected.instance)];
    if (!machine.UseInstance(selected.machine, instance.gpu_instance, instance.compute_instance)) return;
    device.uuid = ToCuda(instance.uuid);
    device.gpu_instance = instance.gpu_instance;
    device.compute_instance = instance.compute_instance;
    device.sm_count = static_cast<int>(instance.sm_count);
  }
  if (IsMpsClient()) {
    const mps::Terms& terms = MpsTerms();
    device.sm_count = std::max(device.sm_count * terms.percent / 100, 1);
    const auto limit = terms.limits.find(device.ordinal);
    machine.JoinMps(device.machine, limit == terms.limits.end() ? 0 : limit->second);
  }
  ++g_devices.count;
}

CUresult Discover(Machine& machine) {
  std::vector<Candidate> gpus;
  std::vector<std::vector<MigInstance>> instances;
  Present present = PresentDevices(machine);
  for (int i = 0; i < present.count; ++i) {
    instances.push_back(ComputeInstancesOf(machine, present.dev[i]));
    gpus.push_back(Describe(machine, present.dev[i], instances.back()));
  }
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  const bool pci = order != nullptr && std::strcmp(order, "PCI_BUS_ID") == 0;
  if (present.count > 0) SIMGPU_TRY(JoinMps(static_cast<int>(machine.spec(present.dev[0]).cc_major)));
  // The daemon's devices are all that its clients can name.
  if (IsMpsClient() && MpsTerms().devices != "*") {
    std::vector<Candidate> served;
    Present served_present;
    std::vector<std::vector<MigInstance>> served_instances;
    for (const Selected& selected : SelectDevices(gpus, MpsTerms().devices.c_str(), pci)) {
      const auto index = static_cast<std::size_t>(selected.machine);
      served.push_back(gpus[index]);
      served_instances.push_back(instances[index]);
      served_present.dev[served_present.count++] = present.dev[selected.machine];
    }
    gpus = std::move(served);
    instances = std::move(served_instances);
    present = served_present;
  }
  for (const Selected& selected : SelectDevices(gpus, std::getenv("CUDA_VISIBLE_DEVICES"), pci)) {
    AddDevice(machine, {present.dev[selected.machine], selected.instance},
              instances[static_cast<std::size_t>(selected.machine)]);
  }
  return g_devices.count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

// A child inherits objects whose memory, threads and books are its parent's; like the real driver, it is told so.
void InChild() {
  if (g_phase.load(std::memory_order_relaxed) == Phase::kReady) {
    ForgetMps();
    g_phase.store(Phase::kForked, std::memory_order_release);
  }
}

// Calls that choose a context or a device: they work on while the current context's GPU is lost, so that a program can
// turn to another one.
bool AsksNothingOfTheGpu(const char* function) {
  static constexpr const char* kPrefixes[] = {"cuDevice",         "cuCtxSetCurrent", "cuCtxGetCurrent",
                                              "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxGetDevice"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [function](const char* prefix) {
    return std::strncmp(function, prefix, std::strlen(prefix)) == 0;
  });
}

CUresult Initialise() {
  Machine& machine = Machine::Get();
  if (!machine.ok()) return CUDA_ERROR_NO_DEVICE;
  machine.Reap();
  SIMGPU_TRY(static_cast<CUresult>(machine.FaultFor("cuInit")));
  SIMGPU_TRY(Discover(machine));
  ReadHostCosts(g_devices.list[0].machine);
  SpendHost(kInitNanos);
  PrepareContexts(g_devices.list, g_devices.count);
  static constinit bool registered = false;
  if (!registered) {
    pthread_atfork(nullptr, nullptr, InChild);
    registered = true;
  }
  g_phase.store(Phase::kReady, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult NotReady() { return CUDA_ERROR_NOT_INITIALIZED; }

CUresult FaultOf(const char* function) {
  Machine& machine = Machine::Get();
  SIMGPU_TRY(MpsTrouble());
  if (machine.NothingInjected()) return CUDA_SUCCESS;
  Context* ctx = CurrentContext();
  int dev = ctx != nullptr ? ctx->machine() : -1;
  if (machine.Lost(dev) && AsksNothingOfTheGpu(function)) dev = -1;
  return static_cast<CUresult>(machine.FaultFor(function, dev));
}

int DeviceCount() { return g_devices.count; }

const Device* FindDevice(CUdevice ordinal) {
  return ordinal >= 0 && ordinal < g_devices.count ? &g_devices.list[ordinal] : nullptr;
}

const Device* DeviceOfMachine(int machine) {
  for (int i = 0; i < g_devices.count; ++i) {
    if (g_devices.list[i].machine == machine) return &g_devices.list[i];
  }
  return nullptr;
}

}  // namespace simgpu

using namespace simgpu;

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> guard(g_init_lock);
  switch (g_phase.load(std::memory_order_acquire)) {
    case Phase::kReady:
      return CUDA_SUCCESS;
    case Phase::kForked:
      return CUDA_ERROR_NOT_INITIALIZED;
    case Phase::kNew:
      break;
  }
  return Initialise();
}

CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Machine& machine = Machine::Get();
  const auto configured = machine.ok() ? static_cast<int>(machine.options().cuda_version) : 0;
  *version = configured != 0 ? configured : 13000;
  return CUDA_SUCCESS;
}
